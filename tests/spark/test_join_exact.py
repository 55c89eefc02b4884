"""The whole output equals a batch join of the whole input, whatever the rows are like."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from scenario import Scenario

from spillway import join
from spillway.operators.equi.join import JoinOperator
from spillway.operators.input import StreamColumns
from spillway.operators.stats import OperatorStats
from spillway.state.runs.run import RunData
from spillway.testing import assert_same_rows
from tier import few

# --- keys that are even, skewed, duplicated, NULL; streams that are empty or silent ---------------


@dataclass(frozen=True)
class Load:
    """The rows of a test: how many streams, how their keys are spread."""

    streams: int
    rows: int
    keys: int
    #: Part of the rows that have the one hot key.
    hot: float = 0.0
    batches: int = 5

    def names(self) -> list[str]:
        return [f"s{number}" for number in range(self.streams)]

    def fill(self, scenario: Scenario) -> None:
        """Batches with NULL keys and duplicate rows; one has no row, one stream is silent at first."""
        random_ = random.Random(self.streams * 1000 + self.keys)
        for batch in range(self.batches):
            silent = {self.names()[-1]} if batch < 2 else set(self.names()) if batch == 3 else set()
            scenario.add(**{n: self._rows(random_) for n in self.names() if n not in silent})

    def _rows(self, random_: random.Random) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = [
            (self._key(random_), random_.randrange(10), random_.choice(["", "x", "ü" * 9, None]))
            for _ in range(self.rows)
        ]
        return rows + random_.sample(rows, self.rows // 10)

    def _key(self, random_: random.Random) -> int | None:
        if random_.random() < 0.05:
            return None
        return 7 if random_.random() < self.hot else random_.randrange(self.keys)


LOADS = {
    "2 streams, uniform": (Load(2, 400, 300), {}),
    "2 streams, one hot key": (Load(2, 200, 100, hot=0.5), {"block_rows": 100}),
    "3 streams, skewed": (Load(3, 100, 60, hot=0.1), {"memory": "8kB", "piece_bytes": "2kB"}),
    "5 streams, uniform": (Load(5, 50, 80), {"slots": 3}),
}


@pytest.mark.parametrize("case", few(LOADS, 1))
def test_output_equals_the_batch_join(spark: SparkSession, tmp_path: Path, case: str) -> None:
    load, adapt = LOADS[case]
    scenario = Scenario(spark, tmp_path, **dict.fromkeys(load.names(), "k bigint, v int, t string"))
    load.fill(scenario)
    joined = scenario.join().on("k")
    query = scenario.run(joined, **adapt)

    scenario.check(joined)
    progress = query.recentProgress
    assert sum(not entry["cleanupRound"] for entry in progress) == load.batches
    assert sum(entry["rowsOut"] for entry in progress) == scenario.output(joined).count() > 1000
    with_key = {n: s.batch().where("k is not null").count() for n, s in scenario.streams.items()}
    assert {n: sum(entry["rowsIn"][n] for entry in progress) for n in with_key} == with_key
    assert progress[-1]["stateRows"] == sum(with_key.values())


@pytest.mark.full
def test_merging_of_many_small_batches_loses_no_row(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a="k int, v int", b="k int, v int")
    random_ = random.Random(1)
    for _ in range(11):
        a, b = ([(random_.randrange(40), random_.randrange(9)) for _ in range(20)] for _ in "ab")
        scenario.add(a=a, b=b)
    joined = scenario.join().on("k")
    last = scenario.run(joined).recentProgress[-1]

    scenario.check(joined)
    assert all(layers <= 4 for slot in last["slots"] for layers in slot["layers"].values())
    assert last["stateRows"] == 2 * 11 * 20
    scenario.check_files(slots=2)


def test_keys_that_share_a_hash_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    hashes = spark.range(400_000).select("id", F.shiftright(F.xxhash64("id"), 32).alias("h"))
    shared = hashes.groupBy("h").agg(F.collect_list("id").alias("ids")).where("size(ids) > 1")
    keys = [key for row in shared.collect() for key in row["ids"]]
    assert len(keys) >= 4
    scenario = Scenario(spark, tmp_path, a="k bigint, v int", b="k bigint, v int")
    scenario.add(a=[(key, 1) for key in keys], b=[(key, 2) for key in keys])
    scenario.add(a=[(key, 3) for key in keys], b=[(key, 4) for key in keys])
    joined = scenario.join().on("k")
    scenario.run(joined)

    scenario.check(joined)
    assert scenario.output(joined).count() == 4 * len(keys)


def test_stream_read_twice_is_joined_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a="k bigint, parent bigint")
    scenario.add(a=[(1, None), (2, 1), (3, 1)])
    scenario.add(a=[(4, 2), (5, 2)])
    child, parent = scenario.streams["a"].stream(), scenario.streams["a"].stream()
    joined = join(child=child, parent=parent).on(child="parent", parent="k")
    scenario.run(joined)

    rows = scenario.output(joined).select("child.k", "parent.k").collect()
    assert sorted(tuple(row) for row in rows) == [(2, 1), (3, 1), (4, 2), (5, 2)]


# --- where and select -----------------------------------------------------------------------------


def test_where_and_select_shape_the_rows_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(spark, tmp_path, a="k int, price double, t string", b="k int, price double")
    random_ = random.Random(3)
    for _ in range(2):
        a = [(random_.randrange(20), random_.random(), "x") for _ in range(80)]
        scenario.add(a=a, b=[(random_.randrange(20), random_.random()) for _ in range(80)])
    joined = (
        scenario.join()
        .on("k")
        .where("a.price < b.price")
        .filter(F.col("a.k") > 3)
        .select("b.price - a.price AS gain", F.col("a.t"), "a.k AS key", "b.*")
        .where("gain < 0.5")
    )
    scenario.run(joined)

    whole = scenario.expected(joined)
    shaped = whole.where("a.price < b.price AND a.k > 3 AND b.price - a.price < 0.5").selectExpr(
        "b.price - a.price AS gain", "a.t", "a.k AS key", "b.*"
    )
    assert joined.schema.names == ["gain", "t", "key", "k", "price"]
    assert scenario.output(joined).count() > 50
    assert_same_rows(scenario.output(joined), shaped)


# --- restart --------------------------------------------------------------------------------------


def test_restart_with_more_and_with_fewer_slots_loses_no_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    load = Load(3, 100, 80, hot=0.05, batches=3)
    scenario = Scenario(spark, tmp_path, **dict.fromkeys(load.names(), "k bigint, v int, t string"))
    used = []
    for slots in (2, 5, 1):
        load.fill(scenario)
        joined = scenario.join().on("k")
        progress = scenario.run(joined, slots=slots).recentProgress
        assert len(progress) == 3
        used.append(len(progress[-1]["slots"]))
        scenario.check(joined)
    assert used == [2, 5, 1]


def test_restart_after_a_stop_within_a_batch_loses_no_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    load = Load(2, 300, 200, batches=8)
    scenario = Scenario(spark, tmp_path, **dict.fromkeys(load.names(), "k bigint, v int, t string"))
    load.fill(scenario)
    joined = scenario.join().on("k")
    query = scenario.start(joined, trigger={"processingTime": "0 seconds"})
    while not query.recentProgress:
        query.awaitTermination(0.05)
    query.stop()
    assert query.exception() is None
    assert len(query.recentProgress) < 8
    scenario.run(scenario.join().on("k"))
    scenario.check(joined)


# --- a hot key ------------------------------------------------------------------------------------


def test_hot_key_with_millions_of_combinations_leaves_in_bounded_batches() -> None:
    streams = [StreamColumns(name, ("k", "v"), (0, 1), (0,)) for name in "abc"]
    rows = 128
    deltas = [_run_of_one_key(rows) for _ in streams]
    stats = OperatorStats(16)
    total = 0
    for batch in JoinOperator(streams, block_rows=4096).terms([[], [], []], deltas, stats, {}):
        assert batch.num_rows <= 4096
        total += batch.num_rows
    assert total == rows**3 == stats.outputs.sum() > 2_000_000


def _run_of_one_key(rows: int) -> RunData:
    columns = {
        "_h": pa.array(np.full(rows, 7, np.uint32)),
        "c0": pa.array(np.zeros(rows, np.int64)),
        "c1": pa.array(np.arange(rows)),
    }
    return RunData(pa.record_batch(columns))


def test_smallest_blocks_lose_no_combination() -> None:
    streams = [StreamColumns(name, ("k", "v"), (0, 1), (0,)) for name in "ab"]
    deltas = [_run_of_one_key(5) for _ in streams]
    for block_rows in (1, 2, 3):
        join_ = JoinOperator(streams, block_rows)
        sizes = [b.num_rows for b in join_.terms([[], []], deltas, OperatorStats(4), {})]
        assert sum(sizes) == 25
        assert max(sizes) <= block_rows


@pytest.mark.full
def test_hot_key_with_millions_of_combinations_completes_exactly(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path, a="k int, v int", b="k int, v int")
    rows = [(1, n) for n in range(1450)]
    scenario.add(a=rows, b=rows)
    joined = scenario.join().on("k").select("a.v AS x", "b.v AS y")
    query = scenario.run(joined, block_rows=4096)

    assert query.recentProgress[-1]["rowsOut"] == 1450**2
    numbers = spark.range(1450)
    pairs = numbers.selectExpr("int(id) AS x").crossJoin(numbers.selectExpr("int(id) AS y"))
    assert_same_rows(scenario.output(joined), pairs)
