"""Rows with a NULL key or time match nothing; every one is counted once."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from matched import expected, matched, scenario_of
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scenario import Scenario

import spillway as sw
from spillway.checkpoint.checkpoint import Checkpoint
from spillway.operators.input import null_number
from spillway.spark.runtime.exchange.lanes import COPY, HASH, STREAM, with_copies
from spillway.testing import Fault, assert_same_rows
from tier import few

BEGIN = dt.datetime(2024, 3, 10, 6, 50)
#: Rows of a batch, by what is NULL in them.
WHOLE, NO_KEY, NO_TIME, NEITHER = 5, 3, 2, 1


def batch(seed: int) -> list[tuple[Any, ...]]:
    """Rows of one batch; in each, some lack a key, a time, or both."""
    kinds = [(True, True)] * WHOLE + [(False, True)] * NO_KEY
    kinds += [(True, False)] * NO_TIME + [(False, False)] * NEITHER
    return [
        (
            at % 3 if key else None,
            BEGIN + dt.timedelta(minutes=seed) if time else None,
            at,
            {"m": at},
        )
        for at, (key, time) in enumerate(kinds)
    ]


def test_rows_with_a_null_are_counted_once_though_tasks_and_sinks_repeat(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = "k int, ts timestamp, v int, m map<string,int>"
    scenario = Scenario(spark, tmp_path, a=schema, b="k int, v int")
    for number in range(3):
        scenario.add(a=batch(number), b=[(number, 1), (None, 2), (None, 3)])

    def joined() -> sw.Join:
        timed = scenario.join()
        frames = {
            "a": timed.frames["a"],
            "b": timed.frames["b"].withColumn("ts", F.lit(BEGIN).cast("timestamp")),
        }
        return sw.join(**frames).on("k").within("1 hour", time="ts", lateness="1 hour")

    def twice(results: DataFrame, _: int) -> None:
        results.count()
        results.write.format("noop").mode("append").save()

    fault = Fault("after-manifest", 1, 1, str(tmp_path / "happened"))
    with pytest.raises(StreamingQueryException, match="fault placed after-manifest"):
        scenario.run(joined(), sink=twice, faults=(fault,))
    entries = scenario.run(joined(), sink=twice).recentProgress
    empty = {"a": NO_KEY + NO_TIME + NEITHER, "b": 2}
    assert [(one["batchId"], one["rowsNull"]) for one in entries] == [(1, empty), (2, empty)]
    assert [one["rowsIn"] for one in entries] == [{"a": WHOLE, "b": 1}] * 2
    state = Checkpoint(str(scenario.checkpoint / "spillway")).log.latest()
    assert state.rows_null == (3 * empty["a"], 3 * empty["b"])


@pytest.mark.parametrize(
    "how", few([{}, {"distribute": "ctr", "copies": 2}, {"distribute": "atr"}], 1)
)
def test_rows_without_a_time_are_counted_by_one_slot_of_a_join_on_predicates(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any]
) -> None:
    scenario = scenario_of(spark, tmp_path, "ab", batches=2)
    joined = matched(scenario, "ab")
    entries = scenario.run(joined, **how).recentProgress
    counted = {name: sum(one["rowsNull"][name] for one in entries) for name in "ab"}
    wanted = {n: s.batch().where("ts IS NULL").count() for n, s in scenario.streams.items()}
    assert counted == wanted
    assert sum(counted.values()) > 0
    assert_same_rows(scenario.output(joined), expected(scenario, "ab"))


def test_key_that_is_null_after_its_cast_matches_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", False)
    session.conf.set("spark.sql.adaptive.enabled", False)
    session.conf.set("spark.sql.legacy.decimal.retainFractionDigitsOnTruncate", True)
    scenario = Scenario(session, tmp_path, a="k decimal(38,0)", b="k decimal(38,18)")
    # The common type has no room for a number of 38 digits before the point.
    large = [(Decimal(10) ** 37,), (Decimal(2) * 10**37,), (Decimal(7),)]
    scenario.add(a=large, b=[(Decimal(7),), (None,)])
    scenario.add(a=large)
    joined = scenario.join().on("k")
    assert joined.spark.conf.get("spark.sql.ansi.enabled") == "false"
    entries = scenario.run(joined).recentProgress
    assert [one["rowsNull"] for one in entries] == [{"a": 2, "b": 1}, {"a": 2, "b": 0}]
    assert scenario.output(joined).count() == 2


def test_row_with_a_null_is_not_copied_to_a_second_slot(spark: SparkSession) -> None:
    streams = [0, 1, null_number(0), null_number(1)]
    rows = spark.createDataFrame([(one, 0) for one in streams], f"{STREAM} smallint, {HASH} int")
    copied, slot = with_copies(rows, F.lit(0), {0: 1}, 4)
    found = [
        (row[STREAM], row["slot"]) for row in copied.select(STREAM, slot.alias("slot")).collect()
    ]
    assert sorted(found) == [
        (null_number(1), 0),
        (null_number(0), 0),
        (0, 0),
        (1, 0),
        (COPY, 1),
        (COPY + 1, 1),
    ]
