"""Groups that move between slots while the stream goes on: the output is the batch join."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

from spillway import Query
from spillway.checkpoint.checkpoint import Checkpoint
from spillway.errors import QueryError, SettingsError
from spillway.metrics.events import (
    STEPS,
    Event,
    GroupsDeactivated,
    GroupsReactivated,
    MoveEvent,
    MoveRolledBack,
    Scaled,
    SendingFailed,
)
from spillway.protocols.relocation import MOST_FAILURES
from spillway.settings import STRATEGIES
from spillway.testing import Fault
from tier import LONGEST_S, few

A, B = "k bigint, ts timestamp, a int", "k bigint, ts timestamp, b string"
FILES, ROWS = 8, 60


def skewed(scenario: Scenario, files: int = FILES, seed: int = 3) -> None:
    """Rows of which most are of few keys, so that slots differ."""
    rng = np.random.default_rng(seed)
    for number in range(files):
        few, many = rng.integers(0, 6, (2, ROWS)), rng.integers(0, 90, (2, ROWS))
        keys = np.where(rng.random((2, ROWS)) < 0.7, few, many).tolist()
        times = [datetime(2024, 1, 1, 0, number, i % 60) for i in range(ROWS)]
        scenario.add(
            a=[(k, ts, i) for i, (k, ts) in enumerate(zip(keys[0], times, strict=True))],
            b=[(k, ts, f"b{i}") for i, (k, ts) in enumerate(zip(keys[1], times, strict=True))],
        )


def steps_of(query: Query) -> dict[int, list[type]]:
    found: dict[int, list[type]] = {}
    for event in query.events:
        if isinstance(event, MoveEvent):
            found.setdefault(event.move, []).append(type(event))
    return found


@pytest.mark.parametrize("window", few([None, "4 minutes"], 1))
@pytest.mark.parametrize("strategy", few(STRATEGIES, 8))
def test_every_strategy_gives_the_batch_join(
    spark: SparkSession, tmp_path: Path, strategy: str, window: str | None
) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario)
    joined = scenario.join().on("k")
    if window:
        joined = joined.within(window, time="ts", lateness="1 minute")
    query = scenario.run(
        joined,
        slots=3,
        strategy=strategy,
        memory=9000,
        relocation_threshold=0.95,
        relocation_batches=1,
        productivity_ratio=1.1,
    )
    scenario.check(joined)
    moved = [e for e in query.events if isinstance(e, GroupsReactivated)]
    # Whether slots are unequally busy is for the machine to say.
    if strategy != "flux-load":
        assert bool(moved) == (strategy not in ("none", "spill-only"))
    for steps in steps_of(query).values():
        assert steps == list(STEPS)[: len(steps)]


def moving(slots: int = 2, **more: object) -> dict[str, object]:
    """Settings under which groups move as soon as slots differ at all."""
    often = {"strategy": "relocate-only", "relocation_threshold": 0.99, "relocation_batches": 1}
    return {"slots": slots, **often, **more}


def live(scenario: Scenario, **adapt: object) -> Query:
    """The query on a stream that does not end."""
    trigger = {"processingTime": "0 seconds"}
    return scenario.start(scenario.join().on("k"), trigger=trigger, **adapt)


def until(query: Query, true: Callable[[], bool], seconds: float = LONGEST_S) -> None:
    """Waits for something that the query does by itself."""
    ends = time.monotonic() + seconds
    while not true():
        assert query.exception() is None
        assert time.monotonic() < ends, "it took too long"
        time.sleep(0.05)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are taken to have memory tiers of their own, so that the receiver fetches state."""
    monkeypatch.setattr("spillway.coordinator.coordinator.in_one_place", lambda *_: False)


def happened(query: Query, kind: type) -> list[Event]:
    return [event for event in query.events if isinstance(event, kind)]


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("window", few([None, "4 minutes"], 1))
def test_state_that_is_fetched_gives_the_batch_join_and_progress_shows_it(
    spark: SparkSession, tmp_path: Path, window: str | None
) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario)
    joined = scenario.join().on("k")
    if window:
        joined = joined.within(window, time="ts", lateness="1 minute")
    query = scenario.run(joined, **moving())
    scenario.check(joined)
    move = happened(query, GroupsReactivated)[0]
    assert move.bytes > 0
    assert move.reason.startswith("M_least/M_max = ")
    phases = [move["phase"] for entry in query.recentProgress for move in entry["moves"]]
    assert {"computing", "deactivating", "sending"} <= set(phases)


@pytest.mark.full
def test_where_slots_share_memory_state_moves_by_name(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario)
    joined = scenario.join().on("k")
    # Fetching would fail.
    faults = tuple(
        Fault("receiving", move, slot, str(tmp_path / "failed"))
        for move in range(9)
        for slot in (0, 1)
    )
    query = scenario.run(joined, faults=faults, **moving())
    scenario.check(joined)
    assert happened(query, GroupsReactivated)
    assert not happened(query, SendingFailed)
    assert not any(s["restored"] for entry in query.recentProgress for s in entry["slots"])
    scenario.check_files(slots=2)


def test_slots_come_and_go_while_the_stream_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, files=3)
    query = live(scenario, slots=2)
    query.processAllAvailable()
    query.scale(slots=4)
    skewed(scenario, files=8, seed=4)
    until(query, lambda: len(happened(query, Scaled)) == 1)
    assert query.slots == 4
    served = query.lastProgress["slots"]
    assert all(sum(slot["stateRows"].values()) > 0 for slot in served)
    query.scale(slots=1)
    skewed(scenario, files=4, seed=5)
    until(query, lambda: len(happened(query, Scaled)) == 2)
    assert query.slots == 1
    query.processAllAvailable()
    query.stop()
    scenario.check(scenario.join().on("k"))
    scenario.check_files(slots=1)


@pytest.mark.full
def test_scaling_needs_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, files=2)
    query = live(scenario, slots=1)
    query.processAllAvailable()
    query.scale(slots=2)
    until(query, lambda: len(happened(query, Scaled)) == 1)
    query.stop()
    scenario.check(scenario.join().on("k"))


def test_scale_refuses_what_cannot_be(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, files=1)
    query = live(scenario, slots=1)
    for slots in (0, 17):
        with pytest.raises(SettingsError, match=f"{slots} slots cannot share 16 groups"):
            query.scale(slots=slots)
    with pytest.raises(SettingsError, match="'two' is not a whole number"):
        query.scale(slots="two")
    query.stop()
    with pytest.raises(QueryError, match="has ended, so it cannot change its slot count"):
        query.scale(slots=2)


@pytest.mark.full
def test_a_full_buffer_completes_the_move_before_the_next_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, files=8)
    joined = scenario.join().on("k")
    query = scenario.run(joined, **moving(buffer=1))
    scenario.check(joined)
    waited = [sum(s["parkedBytes"] for s in entry["slots"]) for entry in query.recentProgress]
    assert any(waited)
    # Rows wait in the batch that deactivates, and not in the next one: the groups have arrived.
    assert not any(now and then for now, then in pairwise(waited))


@pytest.mark.usefixtures("apart")
def test_what_fails_on_its_way_is_fetched_again(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, files=8)
    joined = scenario.join().on("k")
    # Which slot receives, and which move is the first with rows, is not known before.
    marker = str(tmp_path / "failed")
    faults = tuple(Fault("receiving", move, slot, marker) for move in range(9) for slot in (0, 1))
    query = scenario.run(joined, faults=faults, **moving(buffer=1))
    scenario.check(joined)
    (failed,) = happened(query, SendingFailed)
    assert "fault placed receiving" in failed.reason
    assert failed.move in [event.move for event in happened(query, GroupsReactivated)]


@pytest.mark.full
@pytest.mark.usefixtures("apart")
def test_a_move_that_cannot_be_made_is_rolled_back(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, files=8)
    joined = scenario.join().on("k")
    faults = tuple(
        Fault("receiving", move, slot, str(tmp_path / f"failed-{turn}"))
        for move in range(9)
        for slot in (0, 1)
        for turn in range(MOST_FAILURES)
    )
    query = scenario.run(joined, faults=faults, **moving(buffer=1))
    scenario.check(joined)
    assert len(happened(query, SendingFailed)) == MOST_FAILURES
    (back,) = happened(query, MoveRolledBack)
    assert back.move not in [event.move for event in happened(query, GroupsReactivated)]
    scenario.check_files(slots=2)


def test_a_move_goes_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, files=6)
    joined = scenario.join().on("k")
    query = scenario.start(joined, **moving())
    until(query, lambda: bool(happened(query, GroupsDeactivated)))
    query.stop()
    moved = Checkpoint(str(scenario.checkpoint / "spillway")).log.latest()
    assert moved is not None
    skewed(scenario, files=3, seed=8)
    # With another number of slots as well: what moves arrives first.
    query = scenario.run(joined, slots=3, strategy="none")
    scenario.check(joined)
    assert query.slots == 3
    # A task that was cut short may have written a run after the second start looked for such.
    scenario.run(joined, slots=3, strategy="none")
    scenario.check_files(slots=3)


@pytest.mark.parametrize("strategy", few(["spill-only", "lazy-disk"], 1))
def test_a_function_that_coalesces_gets_what_slots_without_rows_give(
    spark: SparkSession, tmp_path: Path, strategy: str
) -> None:
    """Such a function renumbers the tasks, and a slot that cleans up or is moved to may have no row."""
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    skewed(scenario, files=6)
    joined = scenario.join().on("k")
    query = scenario.run(
        joined,
        sink=lambda rows, batch: rows.coalesce(1).write.mode("append").parquet(str(scenario.out)),
        slots=3,
        strategy=strategy,
        memory=4000,
        relocation_batches=1,
        relocation_threshold=0.95,
    )
    assert query._loop.state.rows_cleaned > 0
    scenario.check(joined)
