"""Streams that are matched by predicates, and what Spark's batch cross join gives of them."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from scenario import Scenario

import spillway as sw
from spillway.testing import oracle

BEGIN = dt.datetime(2024, 3, 10, 6, 50)
SCHEMA = "id int, x double, name string, ts timestamp"
PAIRS = {
    ("a", "b"): "abs(a.x - b.x) < 1.5",
    ("b", "c"): "b.x + c.x > 9",
    ("c", "d"): "abs(c.x - d.x) < 2",
    ("d", "e"): "d.x < e.x",
}


def rows(seed: int, count: int = 40) -> list[tuple[Any, ...]]:
    """Five minutes of a stream from `seed` on, in no order, with NULLs."""
    random_ = random.Random(seed)
    found = []
    for number in range(count):
        at = BEGIN + dt.timedelta(minutes=5 * (seed % 100), seconds=random_.uniform(0, 300))
        x = None if random_.random() < 0.05 else random_.uniform(0, 10)
        found.append((number, x, f"n{number % 7}", None if random_.random() < 0.03 else at))
    return found


def scenario_of(
    spark: SparkSession, root: Path, names: str, batches: int = 4, count: int = 40
) -> Scenario:
    scenario = Scenario(spark, root, **dict.fromkeys(names, SCHEMA))
    for batch in range(batches):
        scenario.add(**{n: rows(100 * at + batch, count) for at, n in enumerate(names)})
    return scenario


def windows_of(names: str, equal: bool = False) -> dict[str, str]:
    return {name: f"{4 if equal else 2 + 2 * at} minutes" for at, name in enumerate(names)}


def window_rows(names: str, equal: bool, count: int, batches: int = 4) -> int:
    """Rows that can find partners after the last batch, by the watermark that it had."""
    times = [
        [[row[3] for row in rows(100 * at + batch, count) if row[3]] for batch in range(batches)]
        for at in range(len(names))
    ]
    newest = min(max(one for batch in some[:-1] for one in batch) for some in times)
    mark = newest - dt.timedelta(minutes=6)
    lengths = [int(said.split()[0]) for said in windows_of(names, equal).values()]
    return sum(
        one + dt.timedelta(minutes=minutes) > mark
        for some, minutes in zip(times, lengths, strict=True)
        for batch in some
        for one in batch
    )


def matched(scenario: Scenario, names: str, equal: bool = False) -> sw.Join:
    """The pairs of neighbours, by functions and by SQL; the last condition is over all."""

    def near(a: Any, b: Any) -> Any:
        return np.abs(a.x - b.x) < 1.5

    joined = scenario.join().within(windows_of(names, equal), time="ts", lateness="6 minutes")
    joined = joined.match(near, "a", "b")
    for pair, text in list(PAIRS.items())[1 : len(names) - 1]:
        joined = joined.match(text, *pair)
    return joined


def expected(scenario: Scenario, names: str, more: str = "true", equal: bool = False) -> Any:
    chosen = list(PAIRS.values())[: len(names) - 1]
    lengths = {name: int(said.split()[0]) for name, said in windows_of(names, equal).items()}
    windows = {name: ("ts", 60_000_000 * minutes) for name, minutes in lengths.items()}
    frames = {name: stream.batch() for name, stream in scenario.streams.items()}
    return oracle(frames, None, windows, " and ".join([*chosen, more]))
