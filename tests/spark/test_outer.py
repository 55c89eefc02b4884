"""Outer, semi and anti joins are exactly those of Spark's batch query, whatever happens to the state."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scenario import Scenario

import spillway as sw
from spillway.testing import Fault, assert_same_rows, oracle
from tier import few

BEGIN = dt.datetime(2026, 1, 1)
SCHEMA = "k int, ts timestamp, v int, note string"
#: The windows of the streams, in minutes.
WINDOWS = {"orders": 15, "payments": 9, "shipments": 12}
KINDS = ("left", "right", "full", "semi", "anti")
#: Settings that make groups spill, wait, move and return, and what must have happened then.
MECHANISMS: dict[str, tuple[dict[str, Any], str]] = {
    "memory": ({}, ""),
    "generations": ({"memory": 2_000, "strategy": "spill-only"}, "Spilled"),
    "rotation": ({"memory": 800, "spill_mode": "rotation", "t_gap": "1 millisecond"}, "Spilled"),
    "moves": (
        {"strategy": "relocate-only", "relocation_batches": 1, "relocation_threshold": 0.99},
        "GroupsChosen",
    ),
    "skew buffer": ({"skew_buffer": "1MB", "batch_target": "1 millisecond"}, ""),
}


def filled(spark: SparkSession, root: Path, *names: str, batches: int = 5) -> Scenario:
    """Rows with many partners, few and none; without key, without time; and a hot key."""
    chance = random.Random(len(names))
    scenario = Scenario(spark, root, **dict.fromkeys(names, SCHEMA))
    value = iter(range(10_000))

    def row(batch: int) -> tuple[Any, ...]:
        key = None if chance.random() < 0.06 else min(int(chance.expovariate(0.12)), 40)
        minutes = 7 * batch + chance.uniform(0, 9)
        time = None if chance.random() < 0.05 else BEGIN + dt.timedelta(minutes=minutes)
        number = next(value)
        return key, time, number, None if number % 9 == 0 else "x" * (number % 40)

    for batch in range(batches):
        scenario.add(**{name: [row(batch) for _ in range(40)] for name in names})
    # The watermark passes everything; these rows are partners of each other.
    scenario.add(**{name: [(99, BEGIN + dt.timedelta(days=1), -1, None)] for name in names})
    scenario.add()
    return scenario


def joined(scenario: Scenario, **how: str) -> sw.Join:
    frames = {name: stream.stream(1) for name, stream in scenario.streams.items()}
    return with_windows(sw.join(**frames, **how))


def with_windows(join: sw.Join) -> sw.Join:
    windows = {name: f"{WINDOWS[name]} minutes" for name in join.frames}
    return join.on("k").within(windows, time="ts", lateness="30 minutes")


def expected(scenario: Scenario, how: str, condition: str | None = None) -> DataFrame:
    names = list(scenario.streams)
    return oracle(
        {name: stream.batch() for name, stream in scenario.streams.items()},
        dict.fromkeys(names, ("k",)),
        {name: ("ts", WINDOWS[name] * 60_000_000) for name in names},
        condition,
        how,
    )


def happened(query: sw.Query, event: str) -> bool:
    return not event or event in {type(one).__name__ for one in query.events}


CASES = [(kind, mechanism) for kind in KINDS for mechanism in MECHANISMS]


@pytest.mark.parametrize(("kind", "mechanism"), few(CASES, CASES.index(("full", "generations"))))
def test_every_kind_is_sparks_with_every_mechanism(
    spark: SparkSession, tmp_path: Path, kind: str, mechanism: str
) -> None:
    scenario = filled(spark, tmp_path, "orders", "payments")
    join = joined(scenario, how=kind)
    settings, event = MECHANISMS[mechanism]
    query = scenario.run(join, **settings)
    wanted = expected(scenario, kind)
    assert_same_rows(scenario.output(join), wanted)
    assert happened(query, event)
    assert wanted.count() > 10
    assert f"n-way join, {kind}" in query.describe()
    assert sum(sum(one["rowsNull"].values()) for one in query.recentProgress) > 10


OPTIONAL = [
    (("payments", "shipments"), "left,left"),
    (("shipments",), "inner,left"),
    (("payments",), "left,inner"),
]


@pytest.mark.parametrize(("optional", "how"), few(OPTIONAL, 0))
@pytest.mark.parametrize("memory", few([None, 3_000], 1))
def test_optional_streams_are_a_chain_of_left_joins(
    spark: SparkSession, tmp_path: Path, optional: tuple[str, ...], how: str, memory: int | None
) -> None:
    scenario = filled(spark, tmp_path, "orders", "payments", "shipments")
    condition = "orders.v % 3 + shipments.v % 3 < 4"
    join = joined(scenario).match(condition).optional(*optional)
    query = scenario.run(join, memory=memory, strategy="spill-only")
    wanted = expected(scenario, how, condition)
    assert_same_rows(scenario.output(join), wanted)
    assert happened(query, "Spilled" if memory else "")
    lacking = [name for name in optional if wanted.where(f"{name} IS NULL").count()]
    assert lacking == list(optional)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_conditions_belong_to_the_join_and_where_comes_after(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    scenario = filled(spark, tmp_path, "orders", "payments")
    condition = "orders.v % 5 < payments.v % 7 AND orders.note IS NOT NULL"
    join = joined(scenario, how=kind).match(condition).where("orders.v % 2 = 0")
    scenario.run(join)
    wanted = expected(scenario, kind, condition).where("orders.v % 2 = 0")
    assert_same_rows(scenario.output(join), wanted)
    assert wanted.count() > 5


@pytest.mark.full
@pytest.mark.parametrize("kind", ["left", "full", "semi"])
@pytest.mark.parametrize("point", ["before-runs", "after-runs", "after-manifest"])
def test_failed_tasks_and_restarts_give_each_row_once(
    spark: SparkSession, tmp_path: Path, kind: str, point: str
) -> None:
    scenario = filled(spark, tmp_path, "orders", "payments", batches=6)
    query = scenario.start(
        joined(scenario, how=kind),
        faults=tuple(
            Fault(point, batch, slot, str(tmp_path / f"{batch}-{slot}"))
            for batch, slot in ((2, 0), (4, 1))
        ),
        memory=2_000,
        slots=2,
    )
    for slots in (2, 3, 1):
        try:
            query.awaitTermination(120)
            break
        except Exception:
            query = scenario.start(joined(scenario, how=kind), memory=4_000, slots=slots)
    assert_same_rows(scenario.output(joined(scenario, how=kind)), expected(scenario, kind))


@pytest.mark.full
def test_rows_within_the_window_wait_for_the_next_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, orders=SCHEMA, payments=SCHEMA)

    def at(key: int, minute: int) -> tuple[Any, ...]:
        return key, BEGIN + dt.timedelta(minutes=minute), key, None

    scenario.add(orders=[at(1, 0), at(2, 0), at(3, 50)], payments=[at(1, 1), at(9, 55)])

    def left() -> sw.Join:
        frames = {name: stream.stream(1) for name, stream in scenario.streams.items()}
        return sw.join(**frames, how="left").on("k").within("10 minutes", time="ts")

    def given() -> list[tuple[int, int | None]]:
        rows = scenario.output(left()).select("orders.k", F.col("payments.k").alias("p")).collect()
        return sorted((row.k, row.p or 0) for row in rows)

    scenario.run(left(), slots=2)
    assert given() == [(1, 1), (2, 0)]
    scenario.add(orders=[at(9, 100)], payments=[at(3, 54), at(3, 56), at(9, 105)])
    scenario.run(left(), slots=3)
    # The watermark was 00:50, so both payments are in time.
    assert given() == [(1, 1), (2, 0), (3, 3), (3, 3), (9, 9)]


@pytest.mark.full
def test_results_of_an_outer_join_can_be_grouped(spark: SparkSession, tmp_path: Path) -> None:
    scenario = filled(spark, tmp_path, "orders", "payments")
    totals = (
        joined(scenario, how="left")
        .group_by("orders.k")
        .agg(rows=sw.count(), paid=sw.count("payments.v"))
    )
    found: dict[int | None, Mapping[str, int]] = {}

    def keep(rows: DataFrame, _: int) -> None:
        found.update({row.k: row.asDict() for row in rows.collect()})

    query = (
        totals.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "ck"))
        .adapt(slots=2, groups=16, memory=3_000)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    wanted = (
        expected(scenario, "left")
        .groupBy("orders.k")
        .agg(F.count("*").alias("rows"), F.count("payments.v").alias("paid"))
    )
    assert found == {row.k: row.asDict() for row in wanted.collect()}
