"""With too little memory the answer is the same: run time and cleanup together are the batch join."""

from __future__ import annotations

import random
import time
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from scenario import Scenario

from spillway.errors import QueryError, SettingsError
from spillway.metrics.events import CleanedUp, Reloaded, Spilled
from spillway.settings import VICTIMS
from spillway.spark.runtime import loop
from spillway.testing import Fault
from tier import LONGEST_S, few

SCHEMA = "k bigint, v bigint, name string"
BATCHES = 5


def make(
    spark: SparkSession, root: Path, streams: int, batches: int = BATCHES, **more: int
) -> Scenario:
    """Streams of random rows over few keys, so that most groups have partners to miss."""
    draw = random.Random(streams)
    scenario = Scenario(spark, root, **{f"s{i}": SCHEMA for i in range(streams)})
    keys = more.get("keys", 60)
    for batch in range(batches):
        scenario.add(
            **{
                f"s{i}": [
                    (draw.randrange(keys), batch * 1000 + at, f"row {at} of {batch}")
                    for at in range(more.get("rows", 60))
                ]
                for i in range(streams)
            }
        )
    return scenario


@pytest.mark.parametrize("victims", few(VICTIMS, 0))
def test_every_victim_policy_is_exact(spark: SparkSession, tmp_path: Path, victims: str) -> None:
    scenario = make(spark, tmp_path, 3)
    joined = scenario.join().on("k")
    query = scenario.run(joined, memory=6_000, victims=victims, inactive_batches=2)
    scenario.check(scenario.join().on("k"))
    kinds = {type(event) for event in query.events}
    assert Spilled in kinds
    assert kinds & {CleanedUp, Reloaded}
    last = query.lastProgress
    assert last is not None
    assert last["groupsPending"] == 0
    scenario.check_files(2)


@pytest.mark.full
@pytest.mark.parametrize("fraction", few([0.1, 1.0], 0))
@pytest.mark.parametrize("streams", few([2, 5], 1))
def test_any_part_of_memory_may_go(
    spark: SparkSession, tmp_path: Path, streams: int, fraction: float
) -> None:
    scenario = make(spark, tmp_path, streams, batches=4, keys=200 if streams == 5 else 60)
    query = scenario.run(scenario.join().on("k"), memory=4_000, spill_fraction=fraction)
    scenario.check(scenario.join().on("k"))
    assert any(isinstance(event, Spilled) for event in query.events)


def test_memory_stays_below_its_limit(spark: SparkSession, tmp_path: Path) -> None:
    scenario = make(spark, tmp_path, 2, batches=6)
    query = scenario.run(scenario.join().on("k"), memory={0: 3_000, 1: 9_000})
    for entry in query.recentProgress:
        held = [sum(slot["stateBytes"].values()) for slot in entry["slots"]]
        assert held[0] <= 3_000
        assert held[1] <= 9_000
    scenario.check(scenario.join().on("k"))


@pytest.mark.full
def test_a_window_loses_no_result_to_an_expired_generation(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = "k bigint, ts timestamp, v bigint"
    scenario = Scenario(spark, tmp_path, a=schema, b=schema)
    draw = random.Random(3)
    for minute in range(14):
        at = [
            datetime(2026, 1, 1, 0, minute, second, tzinfo=timezone.utc)
            for second in range(0, 60, 2)
        ]
        scenario.add(
            a=[(draw.randrange(12), t, minute) for t in at],
            b=[(draw.randrange(12), t, minute) for t in at],
        )

    def joined() -> Any:
        return scenario.join().on("k").within("4 minutes", time="ts", lateness="1 minute")

    query = scenario.run(joined(), memory=1_500)
    scenario.check(joined())
    entries = query.recentProgress
    assert sum(entry["rowsExpired"] for entry in entries) > 0
    assert any(isinstance(event, Spilled) for event in query.events)
    assert any(
        isinstance(event, CleanedUp) and event.reason == "expiring" for event in query.events
    )


def test_manual_cleanup_waits_until_it_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    scenario = make(spark, tmp_path, 2)
    query = scenario.run(scenario.join().on("k"), memory=2_000, cleanup="manual")
    joined = scenario.join().on("k")
    at_run_time = scenario.output(joined).count()
    assert at_run_time < scenario.expected(joined).count()
    with pytest.raises(QueryError, match="has ended"):
        query.cleanup()

    again = scenario.start(
        scenario.join().on("k"), memory=2_000, trigger={"processingTime": "100 milliseconds"}
    )
    seen: list[float] = []
    done = again.cleanup(show=lambda cleanup: seen.append(cleanup.done))
    again.stop()
    assert done.groups_left == 0
    assert done.groups > 0
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert done.rows_out == scenario.expected(joined).count() - at_run_time
    scenario.check(joined)


@pytest.mark.full
def test_more_memory_brings_groups_back_while_the_stream_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = make(spark, tmp_path, 2)
    query = scenario.start(
        scenario.join(1).on("k"),
        memory=2_000,
        cleanup="manual",
        calm_batches=1,
        trigger={"processingTime": "100 milliseconds"},
    )
    query.processAllAvailable()
    assert any(isinstance(event, Spilled) for event in query.events)
    with pytest.raises(SettingsError, match="no slot 7"):
        query.set_memory(slot=7, bytes="1MB")
    query.set_memory(bytes="10MB")
    ends = time.monotonic() + LONGEST_S
    while (query.lastProgress or {}).get("diskBytes") and time.monotonic() < ends:
        scenario.add(s0=[(1, 1, "more")])
        query.processAllAvailable()
    query.stop()
    assert any(isinstance(event, Reloaded) for event in query.events)
    last = query.lastProgress
    assert last is not None
    assert last["diskBytes"] == 0
    assert last["groupsPending"] == 0
    scenario.check(scenario.join().on("k"))


@pytest.mark.full
@pytest.mark.parametrize("point", few(["after-runs", "after-manifest"], 1))
def test_a_round_that_fails_is_repeated_by_the_next_start(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr(loop, "ROUND_BYTES", 600)
    scenario = make(spark, tmp_path, 2)
    scenario.run(scenario.join().on("k"), memory=2_000, cleanup="manual")
    fault = Fault(point, batch=4, slot=1, marker=str(tmp_path / "marker"))
    with pytest.raises(Exception, match="fault placed"):
        scenario.run(scenario.join().on("k"), memory=2_000, faults=(fault,))
    scenario.run(scenario.join().on("k"), memory=2_000)
    scenario.check(scenario.join().on("k"))


@pytest.mark.full
def test_a_sink_that_fails_in_cleanup_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "ROUND_BYTES", 600)
    scenario = make(spark, tmp_path, 2)
    written: dict[int, list[Any]] = {}
    fails = {"left": 3}

    def sink(rows: DataFrame, batch_id: int) -> None:
        # Keeps what it got for an id, as a store that replaces by id would, and then may fail.
        written[batch_id] = [tuple(row) for row in rows.collect()]
        if batch_id >= BATCHES and fails["left"] and batch_id % 2 == 0:
            fails["left"] -= 1
            raise RuntimeError("no room in the store")

    for _ in range(6):
        left = fails["left"]
        how = pytest.raises(Exception, match="no room in the store") if left else nullcontext()
        with how:
            scenario.run(scenario.join().on("k"), memory=2_000, sink=sink)
    assert fails["left"] == 0
    joined = scenario.join().on("k")
    got = sorted(row for rows in written.values() for row in rows)
    assert got == sorted(tuple(row) for row in scenario.expected(joined).collect())


@pytest.mark.full
def test_restarts_with_other_slots_carry_generations_along(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = make(spark, tmp_path, 3, batches=2)
    scenario.run(scenario.join().on("k"), memory=3_000, cleanup="manual")
    for slots in (5, 1, 3):
        scenario.add(**{f"s{i}": [(k, 7, "again") for k in range(20)] for i in range(3)})
        scenario.run(scenario.join().on("k"), slots=slots, memory=3_000, cleanup="manual")
    scenario.run(scenario.join().on("k"), slots=2, memory=3_000)
    scenario.check(scenario.join().on("k"))


def test_a_group_and_a_batch_larger_than_memory_with_a_huge_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a="k bigint, v bigint", b="k bigint, v bigint")
    for batch in range(3):
        hot = [(7, batch * 1000 + at) for at in range(250)]
        scenario.add(a=[*hot, (1, batch)], b=[*hot, (2, batch)])
    query = scenario.run(
        scenario.join().on("k"), groups=2, memory=1_000, piece_bytes=2_000, block_rows=4_096
    )
    scenario.check(scenario.join().on("k"))
    assert query.lastProgress is not None
    cleaned = sum(entry["rowsCleaned"] for entry in query.recentProgress)
    assert cleaned > 300_000
    for entry in query.recentProgress:
        assert all(sum(slot["stateBytes"].values()) <= 1_000 for slot in entry["slots"])


def test_a_round_that_fails_in_a_running_query_is_repeated_before_the_next_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = make(spark, tmp_path, 2)
    written: dict[int, list[Any]] = {}
    fails = {"left": 1}

    def sink(rows: DataFrame, batch_id: int) -> None:
        # A store that ignores an id it has: a repeated round must bring what it brought before.
        written.setdefault(batch_id, [tuple(row) for row in rows.collect()])
        if batch_id >= BATCHES and fails["left"]:
            fails["left"] -= 1
            raise RuntimeError("no room in the store")

    query = scenario.start(
        scenario.join().on("k"), memory=2_000, sink=sink, trigger={"processingTime": "0 seconds"}
    )
    query.processAllAvailable()
    with pytest.raises(RuntimeError, match="no room in the store"):
        query.cleanup()
    scenario.add(s0=[(1, 1, "more")], s1=[(1, 2, "more")])
    query.processAllAvailable()
    query.set_memory(bytes=None)
    query.cleanup()
    query.stop()
    joined = scenario.join().on("k")
    got = sorted(row for rows in written.values() for row in rows)
    assert got == sorted(tuple(row) for row in scenario.expected(joined).collect())
