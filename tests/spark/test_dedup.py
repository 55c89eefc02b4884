"""dedup on Spark: which rows are let through, against a plain computation over all of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway import Dedup, PlanError
from spillway.metrics.events import Spilled
from spillway.testing import FileStream, assert_same_rows

START = datetime(2026, 1, 1)
LONGEST_S = 120


class Clicks:
    """A stream of clicks, with their files, and the output of a query on it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.source = FileStream(spark, root / "in", "id bigint, at timestamp_ntz, what string")

    def add(self, rows: int, seed: int, ids: int, second: float = 0.0) -> None:
        rng = np.random.default_rng(seed)
        picked = zip(
            rng.integers(0, ids, rows).tolist(),
            (second + rng.random(rows)).tolist(),
            rng.integers(0, 5, rows).tolist(),
            strict=True,
        )
        self.source.add(
            [
                (None if which == 0 else which, START + timedelta(seconds=at), f"w{word}")
                for which, at, word in picked
            ]
        )

    def run(self, query: Dedup, **adapt: Any) -> sw.Query:
        running = (
            query.writeStream.format("parquet")
            .option("checkpointLocation", str(self.root / "checkpoint"))
            .adapt(**({"slots": 2, "groups": 16} | adapt))
            .trigger(availableNow=True)
            .start(str(self.root / "out"))
        )
        assert running.awaitTermination(LONGEST_S), "the query hangs"
        return running

    def check(self, expected: list[tuple[Any, ...]]) -> None:
        schema = self.source.batch().schema
        found = self.spark.read.schema(schema).parquet(str(self.root / "out"))
        assert_same_rows(found, self.spark.createDataFrame(expected, schema))

    def rows_by_file(self) -> list[list[tuple[Any, ...]]]:
        files = [str(path) for path in self.source.files]
        return [[tuple(row) for row in self.spark.read.parquet(one).collect()] for one in files]


@pytest.fixture
def clicks(spark: SparkSession, tmp_path: Path) -> Clicks:
    return Clicks(spark, tmp_path)


def test_the_first_row_of_each_key_is_let_through(clicks: Clicks) -> None:
    for seed in range(4):
        clicks.add(150, seed, ids=200)
    clicks.run(sw.stream(clicks.source.stream()).dedup("id", by="at"))
    first: dict[Any, tuple[Any, ...]] = {}
    for rows in clicks.rows_by_file():
        for row in sorted(rows, key=lambda row: (row[1], row[2])):
            first.setdefault(row[0], row)
    clicks.check(list(first.values()))


@pytest.mark.parametrize("adapt", [{}, {"memory": 1500, "strategy": "spill-only"}])
def test_one_row_of_each_key_per_range_is_let_through(clicks: Clicks, adapt: Any) -> None:
    for seed in range(6):
        clicks.add(200, seed, ids=150, second=0.5 * seed)
    query = sw.stream(clicks.source.stream()).dedup(
        "id", within="700 milliseconds", time="at", lateness="10 seconds"
    )
    running = clicks.run(query, **adapt)
    assert any(isinstance(event, Spilled) for event in running.events) == bool(adapt)
    passed: dict[Any, list[datetime]] = {}
    expected = []
    for rows in clicks.rows_by_file():
        for row in sorted(rows, key=lambda row: (row[1], row[2])):
            near = (
                abs(row[1] - one) < timedelta(milliseconds=700) for one in passed.get(row[0], ())
            )
            if not any(near):
                passed.setdefault(row[0], []).append(row[1])
                expected.append(row)
    clicks.check(expected)


def test_restart_remembers_the_keys(clicks: Clicks) -> None:
    for slots in (2, 3, 1):
        clicks.add(120, slots, ids=100)
        clicks.run(sw.stream(clicks.source.stream()).dedup("id"), slots=slots)
    found = clicks.spark.read.parquet(str(clicks.root / "out"))
    keys = clicks.source.batch().select("id").distinct()
    assert_same_rows(found.groupBy("id").count(), keys.withColumn("count", F.lit(1).cast("bigint")))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda s: s.dedup(), "dedup() needs at least one key"),
        (lambda s: s.dedup("id", within="1 second"), "dedup() takes within and time together"),
        (lambda s: s.dedup("no"), "stream clicks has no column 'no' to use as key"),
        (lambda s: s.dedup("id", within="1 second", time="what"), "which is string, not a time"),
    ],
)
def test_what_is_wrong_is_named(clicks: Clicks, wrong: Any, said: str) -> None:
    clicks.add(1, 0, ids=2)
    with pytest.raises(PlanError) as problem:
        wrong(sw.stream(clicks.source.stream(), "clicks"))
    assert said in str(problem.value)
