"""Rows that wait in slots for later batches: the output is that of the batch query all the same."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

from spillway import Query
from spillway.checkpoint.checkpoint import Checkpoint
from spillway.metrics.events import Reloaded, Spilled
from tier import LONGEST_S, few

A, B = "k bigint, ts timestamp, a int", "k bigint, ts timestamp, b string"
#: So little time that a slot which has been measured once has a budget of a few rows.
SKEW = {"skew_buffer": "1MB", "batch_target": "1 millisecond"}


def filled(scenario: Scenario, files: int, seed: int = 3) -> None:
    rng = np.random.default_rng(seed)
    for number in range(files):
        keys = rng.integers(0, 60, (2, 80)).tolist()
        times = [datetime(2024, 1, 1, 0, number, i % 60) for i in range(80)]
        scenario.add(
            a=[(k, ts, i) for i, (k, ts) in enumerate(zip(keys[0], times, strict=True))],
            b=[(k, ts, f"b{i}") for i, (k, ts) in enumerate(zip(keys[1], times, strict=True))],
        )


def waited(query: Query) -> list[int]:
    return [entry["spooledRows"] for entry in query.recentProgress]


@pytest.mark.parametrize("window", few([None, "4 minutes"], 1))
def test_rows_beyond_a_budget_wait_and_are_joined_later(
    spark: SparkSession, tmp_path: Path, window: str | None
) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    filled(scenario, files=7)
    joined = scenario.join().on("k")
    if window:
        joined = joined.within(window, time="ts", lateness="1 minute")
    query = scenario.run(joined, slots=2, **SKEW)
    scenario.check(joined)
    assert max(waited(query)) > 0
    assert waited(query)[-1] == 0


@pytest.mark.full
def test_a_small_buffer_is_never_exceeded_by_more_than_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    filled(scenario, files=8)
    joined = scenario.join().on("k")
    query = scenario.run(joined, slots=1, skew_buffer=2_000, batch_target="1 millisecond")
    scenario.check(joined)
    assert 0 < max(waited(query)) < 3 * 160


def test_what_waits_survives_a_restart_with_other_slots(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    filled(scenario, files=8)
    joined = scenario.join().on("k")
    query = scenario.start(joined, slots=2, **SKEW)
    ends = time.monotonic() + LONGEST_S
    while not any(waited(query)) and query.exception() is None:
        assert time.monotonic() < ends, "no row waits"
        time.sleep(0.02)
    query.stop()
    state = Checkpoint(str(scenario.checkpoint / "spillway")).log.latest()
    assert state is not None
    assert state.spooled_rows > 0
    query = scenario.run(joined, slots=3)
    scenario.check(joined)
    assert waited(query)[-1] == 0


@pytest.mark.parametrize("window", few([None, "4 minutes"], 1))
def test_groups_that_take_turns_in_memory_give_the_batch_join(
    spark: SparkSession, tmp_path: Path, window: str | None
) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    filled(scenario, files=7)
    joined = scenario.join().on("k")
    if window:
        joined = joined.within(window, time="ts", lateness="1 minute")
    query = scenario.run(
        joined, slots=2, memory=6_000, spill_mode="rotation", t_gap="10 milliseconds"
    )
    scenario.check(joined)
    assert max(waited(query)) > 0
    assert waited(query)[-1] == 0
    # Rows wait for their groups, so no result is ever missing between parts.
    assert all(entry["groupsPending"] == 0 for entry in query.recentProgress)
    kinds = {type(event) for event in query.events}
    assert {Spilled, Reloaded} <= kinds


@pytest.mark.full
def test_a_start_may_change_how_groups_live_with_little_memory(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a=A, b=B)
    joined = scenario.join().on("k")
    for seed, mode in enumerate(("generations", "rotation", "generations")):
        filled(scenario, files=4, seed=seed)
        scenario.run(joined, slots=2, memory=6_000, spill_mode=mode, cleanup="manual")
    scenario.run(joined, slots=1)
    scenario.check(joined)
