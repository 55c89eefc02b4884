"""dedup on Spark: which rows are let through, against a plain computation over all of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

import spillway as sw
from spillway import Dedup, PlanError
from spillway.metrics.events import Spilled
from spillway.testing import FileStream, assert_same_rows
from tier import LONGEST_S, few

START = datetime(2026, 1, 1)
EPOCH = datetime(1970, 1, 1)


class Clicks:
    """A stream of clicks, with their files, and the output of a query on it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.source = FileStream(spark, root / "in", "id bigint, at timestamp_ntz, what string")

    def add(
        self,
        rows: int,
        seed: int,
        ids: int,
        second: float = 0.0,
        *,
        start: datetime = START,
        seconds: float = 1.0,
    ) -> None:
        """A file of rows at random times of so many seconds from the second on."""
        rng = np.random.default_rng(seed)
        picked = zip(
            rng.integers(0, ids, rows).tolist(),
            (second + seconds * rng.random(rows)).tolist(),
            rng.integers(0, 5, rows).tolist(),
            strict=True,
        )
        self.source.add(
            [
                (None if which == 0 else which, start + timedelta(seconds=at), f"w{word}")
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

    def check_first_of_each(self, length: str, lateness: timedelta) -> None:
        """One row of each key and window was let through, as Spark itself finds them.

        Each file is a batch; rows that were late when it came do not count.
        """
        in_time, newest = [], datetime.min + lateness
        for number, rows in enumerate(self.rows_by_file()):
            in_time += [(*row, number) for row in rows if row[1] >= newest - lateness]
            newest = max(newest, *(row[1] for row in rows))
        assert len(in_time) < sum(map(len, self.rows_by_file())), "no row was late"
        batch = StructField("file", IntegerType())
        rows = self.spark.createDataFrame(in_time, StructType([*self.source.schema, batch]))
        order = Window.partitionBy("id", F.window("at", length)).orderBy("file", "at", "what")
        first = rows.withColumn("place", F.row_number().over(order)).where("place = 1")
        found = self.spark.read.schema(self.source.schema).parquet(str(self.root / "out"))
        assert_same_rows(found, first.drop("place", "file"))

    def rows_by_file(self) -> list[list[tuple[Any, ...]]]:
        tables = (pq.read_table(path) for path in self.source.files)
        return [[tuple(row.values()) for row in table.to_pylist()] for table in tables]


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


@pytest.mark.parametrize("adapt", few([{}, {"memory": 1500, "strategy": "spill-only"}], 1))
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


def test_one_row_of_each_key_and_stretch_is_let_through(clicks: Clicks) -> None:
    # Rows come up to 0.8 s late, of which half a second is allowed, and stretches cross the epoch.
    lateness = timedelta(milliseconds=500)

    def query() -> Dedup:
        stream = sw.stream(clicks.source.stream())
        return stream.dedup("id", every="700 milliseconds", time="at", lateness=lateness)

    for start, slots in ((0, 2), (3, 3)):
        for number in range(start, start + 3):
            clicks.add(200, number, 90, 0.2 * number - 1.1, start=EPOCH)
        running = clicks.run(query(), slots=slots)
    assert "window every 0.7 s on at, lateness 0.5 s" in running.describe()
    clicks.check_first_of_each("700 milliseconds", lateness)


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
        (lambda s: s.dedup("id", every="1 second"), "dedup() takes every and time together"),
        (lambda s: s.dedup("id", time="at"), "dedup() takes within and time together"),
        (
            lambda s: s.dedup("id", within="2 seconds", every="1 second", time="at"),
            "dedup() takes within or every, not both: within='2 seconds', every='1 second'\n"
            "  hint: within is the least distance in time between two results of a key; every is the "
            "length of the time intervals, each of which gives one result of a key",
        ),
        (
            lambda s: s.dedup("id", every="0 seconds", time="at"),
            "the window of stream clicks must be positive, not '0 seconds'",
        ),
        (lambda s: s.dedup("no"), "stream clicks has no column 'no' to use as key"),
        (lambda s: s.dedup("id", within="1 second", time="what"), "which is string, not a time"),
    ],
)
def test_what_is_wrong_is_named(clicks: Clicks, wrong: Any, said: str) -> None:
    clicks.add(1, 0, ids=2)
    with pytest.raises(PlanError) as problem:
        wrong(sw.stream(clicks.source.stream(), "clicks"))
    assert said in str(problem.value)
