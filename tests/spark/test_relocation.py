"""Groups that move between slots while the stream goes on: the output is the batch join."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

from spillway import Query
from spillway.metrics.events import STEPS, GroupsReactivated, MoveEvent
from spillway.settings import STRATEGIES

A, B = "k bigint, ts timestamp, a int", "k bigint, ts timestamp, b string"
FILES, ROWS = 12, 60


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


@pytest.mark.parametrize("window", [None, "4 minutes"])
@pytest.mark.parametrize("strategy", STRATEGIES)
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
    assert bool(moved) == (strategy not in ("none", "spill-only"))
    for steps in steps_of(query).values():
        assert steps == list(STEPS)[: len(steps)]
