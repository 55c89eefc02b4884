"""Group-by over windows on Spark: every row's statistic, against a plain computation over all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import spillway as sw
from spillway import PlanError, Query, WindowedGroupBy
from spillway.metrics.events import Spilled
from spillway.spark.api.stream import Grouped
from spillway.testing import FileStream, assert_same_rows
from tier import LONGEST_S, few

START = datetime(2026, 1, 1)
Row = tuple[Any, ...]


def made_here() -> Callable[[Mapping[str, pa.Array], np.ndarray], np.ndarray]:
    """A function that travels by value: workers do not have this module."""

    def spread(columns: Mapping[str, pa.Array], offsets: np.ndarray) -> np.ndarray:
        values = columns["value"].to_numpy()
        high, low = (reduce.reduceat(values, offsets[:-1]) for reduce in (np.maximum, np.minimum))
        return high - low

    return spread


spread = made_here()


class Readings:
    """A stream of readings of sensors, and the output of a query on it."""

    SCHEMA = "sensor string, at timestamp_ntz, value bigint"

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.source = FileStream(spark, root / "in", self.SCHEMA)
        self.batches: list[list[Row]] = []

    def add(self, rows: int, seed: int, second: float = 0.0, sensors: int = 12) -> None:
        rng = np.random.default_rng(seed)
        picked = zip(
            rng.integers(0, sensors, rows).tolist(),
            (second + rng.random(rows)).tolist(),
            rng.integers(0, 100, rows).tolist(),
            strict=True,
        )
        made = [
            (None if who == 0 else f"s{who}", START + timedelta(seconds=round(at, 3)), value)
            for who, at, value in picked
        ]
        self.batches.append(made)
        self.source.add(made)

    def grouped(self) -> Grouped:
        return sw.stream(self.source.stream(), "readings").group_by("sensor")

    def run(self, query: WindowedGroupBy, mode: str = "append", **adapt: Any) -> Query:
        running = (
            query.writeStream.format("parquet")
            .outputMode(mode)
            .option("checkpointLocation", str(self.root / "checkpoint"))
            .adapt(**({"slots": 2, "groups": 16} | adapt))
            .trigger(availableNow=True)
            .start(str(self.root / "out"))
        )
        assert running.awaitTermination(LONGEST_S), "the query hangs"
        return running

    def expected(
        self, seen: Callable[[Sequence[Row], Row], Sequence[Row]], *, per_row: bool = True
    ) -> list[Row]:
        """For every row, or the last of each sensor and batch, what the aggregates are."""
        before: dict[Any, list[Row]] = {}
        found: list[Row] = []
        for batch in self.batches:
            given: dict[Any, Row] = {}
            for number, row in enumerate(sorted(batch, key=lambda row: row[1:])):
                mine = before.setdefault(row[0], [])
                values = [one[2] for one in (*seen(mine, row), row)]
                mean = sum(values) / len(values)
                result = (row[0], row[1], len(values), mean, max(values) - min(values))
                given[number if per_row else row[0]] = result
                mine.append(row)
            found += given.values()
        return found

    def check(self, query: WindowedGroupBy, expected: list[Row]) -> None:
        found = self.spark.read.schema(query.schema).parquet(str(self.root / "out"))
        assert_same_rows(found, self.spark.createDataFrame(expected, query.schema))


AGGREGATES = {
    "rows": sw.count(),
    "mean": sw.avg("value"),
    "spread": sw.function(spread, "value", returns="bigint"),
}


def last_four(before: Sequence[Row], _: Row) -> Sequence[Row]:
    return before[-3:]


def half_a_second(before: Sequence[Row], row: Row) -> Sequence[Row]:
    return [one for one in before if row[1] - timedelta(milliseconds=500) < one[1] <= row[1]]


@pytest.fixture
def readings(spark: SparkSession, tmp_path: Path) -> Readings:
    return Readings(spark, tmp_path)


@pytest.mark.parametrize("mode", ["append", "update"])
def test_statistic_of_the_last_rows_of_a_key(readings: Readings, mode: str) -> None:
    for seed in range(4):
        readings.add(80, seed, second=seed)
    query = readings.grouped().last(4, by="at").agg(**AGGREGATES)
    readings.run(query, mode)
    readings.check(query, readings.expected(last_four, per_row=mode == "append"))


@pytest.mark.parametrize("adapt", few([{}, {"memory": 1200, "strategy": "spill-only"}], 1))
def test_statistic_of_a_range_of_time(readings: Readings, adapt: Any) -> None:
    for seed in range(5):
        readings.add(80, seed, second=0.4 * seed)
    query = (
        readings.grouped()
        .within("500 milliseconds", time="at", lateness="10 seconds")
        .agg(**AGGREGATES)
    )
    running = readings.run(query, **adapt)
    assert any(isinstance(event, Spilled) for event in running.events) == bool(adapt)
    readings.check(query, readings.expected(half_a_second))


def test_restarts_with_other_slots_see_the_rows_before(readings: Readings) -> None:
    for number, slots in enumerate((2, 1, 3)):
        readings.add(60, number, second=number)
        query = readings.grouped().last(4, by="at").agg(**AGGREGATES)
        readings.run(query, slots=slots)
    readings.check(query, readings.expected(last_four))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda g: g.last(0), "last(0) must be a positive number of rows"),
        (lambda g: g.last(3, by="when"), "stream readings has no column 'when' to use as order"),
        (lambda g: g.within("1 second", time="value"), "which is bigint, not a time"),
        (
            lambda g: g.agg(spread=sw.function(spread, "value", returns="bigint")),
            "aggregate spread is a Python function, which needs the rows of a sliding window",
        ),
        (
            lambda g: g.last(3).agg(spread=sw.function(spread, "valu", returns="bigint")),
            "stream readings has no column 'valu' to use as argument of spread",
        ),
    ],
)
def test_what_is_wrong_is_named(readings: Readings, wrong: Any, said: str) -> None:
    readings.add(1, 0)
    with pytest.raises(PlanError) as problem:
        wrong(readings.grouped())
    assert said in str(problem.value)
