"""Checks of the sinks for Delta Lake and Iceberg, in a session that has the package."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

import pytest
from places import PLACES
from pyspark.sql import SparkSession

from spillway.errors import PlanError, QueryError, StateError
from spillway.spark.api.session import local_session
from spillway.spark.sinks import SinkBatch, SinkSpec, make_sink

SCHEMA = "k bigint, name string"
ROWS = [(1, "a/b"), (2, "x=y z"), (3, "50% [:]"), (4, None), (None, "e")]


class Lake:
    """A session, and tables of one format in it."""

    def __init__(self, spark: SparkSession, kind: str) -> None:
        self.spark = spark
        self.kind = kind
        self.prefix = "" if kind == "delta" else "ice.db."

    def sink(self, table: str, *partition_by: str, schema: str = SCHEMA, **options: str) -> Any:
        """An open sink for a table."""
        spec = SinkSpec(self.kind, options, partition_by, table=self.prefix + table, writer="ab")
        sink = make_sink(spec, self.spark)
        sink.open(self.spark.createDataFrame([], schema).schema)
        return sink

    def write(self, sink: Any, rows: list[Any], number: int, *, replay: bool = False) -> None:
        """Writes a batch, whose rows belong to a clone of the session as in a query."""
        clone = SparkSession(self.spark.sparkContext, self.spark._jsparkSession.cloneSession())
        sink.write(SinkBatch(clone.createDataFrame(rows, SCHEMA).repartition(2), number, replay))

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        """What the user's session sees."""
        return Counter(tuple(row) for row in self.spark.table(self.prefix + table).collect())


def batches_are_there_once(lake: Lake) -> None:
    """A replay changes nothing, and the user's session sees results at once."""
    sink = lake.sink("once", "name")
    lake.write(sink, ROWS, 0)
    assert lake.rows("once") == Counter(ROWS), lake.rows("once")
    lake.write(sink, ROWS[:1], 1)
    again = lake.sink("once")
    lake.write(again, ROWS[:1], 1, replay=True)
    lake.write(again, [], 2)
    lake.write(again, [(9, "z")], 3)
    assert lake.rows("once") == Counter([*ROWS, ROWS[0], (9, "z")]), lake.rows("once")


def rows_merge_by_key(lake: Lake) -> None:
    """NULL is a key, a condition deletes, other columns stay."""
    sink = lake.sink("merged", mergeKeys="K", deleteWhen="name = 'gone'")
    lake.write(sink, [(1, "a"), (2, "b"), (None, "c"), (3, "gone"), (5, "")], 0)
    lake.spark.sql(f"ALTER TABLE {lake.prefix}merged ADD COLUMN note string")
    again = lake.sink("merged", mergeKeys="k", deleteWhen="name = 'gone'")
    lake.write(again, [(1, "a2"), (2, "gone"), (None, "c2"), (4, None)], 1)
    lake.write(again, [(1, "a2"), (2, "gone"), (None, "c2"), (4, None)], 1, replay=True)
    lake.write(again, [], 2)
    wanted = [(1, "a2", None), (None, "c2", None), (4, None, None), (5, "", None)]
    assert lake.rows("merged") == Counter(wanted), lake.rows("merged")


def late_driver_adds_nothing(lake: Lake) -> None:
    """It has prepared a batch when another start commits it, and the next one."""
    for table, options in (("late", {}), ("late_merge", {"mergeKeys": "k"})):
        old, new = lake.sink(table, **options), lake.sink(table, **options)
        frame = lake.spark.createDataFrame(ROWS, SCHEMA)
        prepared = old._exact._target.prepare(frame, 0)
        lake.write(new, ROWS, 0)
        old._exact._target.commit(prepared, 0)
        lake.write(new, [(9, "z")], 1)
        old._exact._target.commit(prepared, 0)
        old._exact._target.discard(prepared)
        assert lake.rows(table) == Counter([*ROWS, (9, "z")]), lake.rows(table)


def other_writers_do_not_disturb(lake: Lake) -> None:
    """Someone else writes to the table between prepare and commit."""
    sink = lake.sink("shared", mergeKeys="k")
    lake.write(sink, ROWS, 0)
    target = sink._exact._target
    prepared = target.prepare(lake.spark.createDataFrame([(1, "new")], SCHEMA), 1)
    lake.spark.sql(f"INSERT INTO {lake.prefix}shared VALUES (77, 'theirs')")
    target.commit(prepared, 1)
    target.discard(prepared)
    wanted = [(1, "new"), *ROWS[1:], (77, "theirs")]
    assert lake.rows("shared") == Counter(wanted), lake.rows("shared")


def what_cannot_be_is_refused(lake: Lake) -> None:
    """Errors name the thing, and have a hint."""
    lake.sink("refused", "name")
    _refuses(
        PlanError,
        "the result has k, other",
        lambda: lake.sink("refused", schema="k int, other int"),
    )
    _refuses(PlanError, "no column 'q'", lambda: lake.sink("refused", mergeKeys="q"))
    _refuses(
        PlanError, "cannot evaluate 'q = 1'",
        lambda: lake.sink("refused", mergeKeys="k", deleteWhen="q = 1"),
    )  # fmt: skip
    sink = lake.sink("refused", mergeKeys="k")
    _refuses(
        QueryError, "more than one result with the same key (k)",
        lambda: lake.write(sink, [(1, "a"), (1, "b")], 0),
    )  # fmt: skip
    lake.write(sink, ROWS, 5)
    again = lake.sink("refused")
    _refuses(
        StateError, "it has the batches up to 5", lambda: lake.write(again, ROWS, 3, replay=True)
    )
    assert lake.rows("refused") == Counter(ROWS)


def _refuses(kind: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(kind) as raised:
        call()
    assert text in str(raised.value)
    assert raised.value.hint  # type: ignore[attr-defined]


CHECKS = (
    batches_are_there_once,
    rows_merge_by_key,
    late_driver_adds_nothing,
    other_writers_do_not_disturb,
    what_cannot_be_is_refused,
)


def main(text: str) -> None:
    """Runs all checks; a file for each that passed."""
    given = json.loads(text)
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    conf = {
        "spark.jars": given["jars"],
        "spark.driver.extraJavaOptions": java,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{given['root']}/tables",
        **PLACES[given["place"]].conf(given["root"]),
    }
    lake = Lake(local_session("lake", "local[2]", conf), given["place"])
    for check in CHECKS:
        check(lake)
        Path(given["root"], check.__name__).touch()
    Path(given["root"], "done").touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
