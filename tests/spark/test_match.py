"""Joins on any predicate against Spark's batch cross join: streams, windows, ways to spread them."""

from __future__ import annotations

import datetime as dt
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from scenario import Scenario

import spillway as sw
from spillway.testing import assert_same_rows, oracle

BEGIN = dt.datetime(2024, 3, 10, 6, 50)
SCHEMA = "id int, x double, name string, ts timestamp"
PAIRS = {
    ("a", "b"): "abs(a.x - b.x) < 1.5",
    ("b", "c"): "b.x + c.x > 9",
    ("c", "d"): "abs(c.x - d.x) < 2",
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


def scenario_of(spark: SparkSession, root: Path, names: str, batches: int = 4) -> Scenario:
    scenario = Scenario(spark, root, **dict.fromkeys(names, SCHEMA))
    for batch in range(batches):
        scenario.add(**{n: rows(100 * at + batch) for at, n in enumerate(names)})
    return scenario


def windows_of(names: str) -> dict[str, str]:
    return {name: f"{2 + 2 * at} minutes" for at, name in enumerate(names)}


def matched(scenario: Scenario, names: str) -> sw.Join:
    """The pairs of neighbours, by functions and by SQL; the last condition is over all."""

    def near(a: Any, b: Any) -> Any:
        return np.abs(a.x - b.x) < 1.5

    joined = scenario.join().within(windows_of(names), time="ts", lateness="6 minutes")
    joined = joined.match(near, "a", "b")
    for pair, text in list(PAIRS.items())[1 : len(names) - 1]:
        joined = joined.match(text, *pair)
    return joined


def expected(scenario: Scenario, names: str, more: str = "true") -> Any:
    chosen = list(PAIRS.values())[: len(names) - 1]
    windows = {n: ("ts", 60_000_000 * int(w.split()[0])) for n, w in windows_of(names).items()}
    frames = {name: stream.batch() for name, stream in scenario.streams.items()}
    return oracle(frames, None, windows, " and ".join([*chosen, more]))


@pytest.mark.parametrize("names", ["ab", "abc", "abcd"])
def test_every_combination_comes_once(spark: SparkSession, tmp_path: Path, names: str) -> None:
    scenario = scenario_of(spark, tmp_path, names)
    joined = matched(scenario, names)
    query = scenario.run(joined)
    assert sum(sum(one["rowsLate"].values()) for one in query.recentProgress) == 0
    assert_same_rows(scenario.output(joined), expected(scenario, names))
    stored = query.recentProgress[-1]["stateRows"]
    held = sum(sum(slot["stateRows"].values()) for slot in query.recentProgress[-1]["slots"])
    assert held == stored > 0


@pytest.mark.parametrize("how", [{"distribute": "atr"}, {"distribute": "ctr", "copies": 2}])
def test_other_distributions_give_the_same(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any]
) -> None:
    scenario = scenario_of(spark, tmp_path, "abc")
    joined = matched(scenario, "abc")
    scenario.run(joined, slots=3, **how)
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))


def test_condition_over_all_streams_and_a_function_of_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = scenario_of(spark, tmp_path, "abc", batches=2)

    def same_letter(a: Any, c: Any) -> bool:
        return bool(a.name[1] == c.name[1])

    with pytest.warns(UserWarning, match="same_letter"):
        test = sw.scalar(same_letter)
    joined = matched(scenario, "abc").match(test, "a", "c").match("a.x + b.x + c.x < 14")
    scenario.run(joined)
    more = "a.name = c.name and a.x + b.x + c.x < 14"
    assert_same_rows(scenario.output(joined), expected(scenario, "abc", more))


def test_conditions_beside_equal_keys(spark: SparkSession, tmp_path: Path) -> None:
    scenario = scenario_of(spark, tmp_path, "abc")
    joined = matched(scenario, "abc").on("name")
    scenario.run(joined)
    more = "a.name = b.name and b.name = c.name"
    assert_same_rows(scenario.output(joined), expected(scenario, "abc", more))


@pytest.mark.parametrize("memory", [2000, 20_000])
def test_slices_on_disk_are_still_found(spark: SparkSession, tmp_path: Path, memory: int) -> None:
    scenario = scenario_of(spark, tmp_path, "abc")
    joined = matched(scenario, "abc")
    query = scenario.run(joined, memory=memory)
    if memory < 10_000:
        assert any(one["diskBytes"] for one in query.recentProgress)
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))


def test_restart_with_other_slots(spark: SparkSession, tmp_path: Path) -> None:
    scenario = scenario_of(spark, tmp_path, "abc", batches=2)
    scenario.run(matched(scenario, "abc"), slots=2)
    for batch in (2, 3):
        scenario.add(**{n: rows(100 * at + batch) for at, n in enumerate("abc")})
    joined = matched(scenario, "abc")
    scenario.run(joined, slots=3)
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))


def test_explain_tells_what_was_measured(spark: SparkSession, tmp_path: Path) -> None:
    scenario = scenario_of(spark, tmp_path, "abc")
    text = scenario.run(matched(scenario, "abc")).describe()
    assert "none: rows visit all slots" in text
    assert "µs a pair, selectivity 0." in text
    assert "probe orders: a -> b -> c" in text
    assert "in use" in text


def test_slots_are_added_and_taken_away_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    scenario = scenario_of(spark, tmp_path, "abc", batches=2)
    joined = matched(scenario, "abc")
    query = scenario.start(joined, trigger={"processingTime": "0 seconds"}, slots=2)
    try:
        for batch, slots in ((2, 3), (3, 2)):
            query.processAllAvailable()
            query.scale(slots=slots)
            ends = time.monotonic() + 90
            while query.slots != slots and time.monotonic() < ends:
                time.sleep(0.2)
            scenario.add(**{n: rows(100 * at + batch) for at, n in enumerate("abc")})
            query.processAllAvailable()
            assert query.slots == slots
    finally:
        query.stop()
    assert_same_rows(scenario.output(joined), expected(scenario, "abc"))


def test_no_window_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    joined = scenario.join().match("a.x < b.x")
    with pytest.raises(sw.PlanError, match="neither equal keys nor a window"):
        scenario.start(joined)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("a.y < b.x", "has no column y"),
        ("a.x < z.x", "z"),
        ("sha2(a.name, 256) = b.name", "sha2"),
        ("a.x > 3", "one stream"),
    ],
)
def test_conditions_that_do_not_fit_are_refused(
    spark: SparkSession, tmp_path: Path, condition: str, said: str
) -> None:
    scenario = Scenario(spark, tmp_path, a=SCHEMA, b=SCHEMA)
    with pytest.raises(sw.PlanError, match=said):
        scenario.join().match(condition)
