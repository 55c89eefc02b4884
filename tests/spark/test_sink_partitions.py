"""Sinks that change the partitions of the results, read them in part, or keep the last id they have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from scenario import Scenario

import spillway as sw
from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.log import Log
from spillway.testing import FileStream, assert_same_rows
from tier import LONGEST_S, few

A, B = "k bigint, a bigint, x string", "k bigint, b bigint"
FILES, ROWS = 6, 80
DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


@pytest.fixture
def scenario(spark: SparkSession, tmp_path: Path) -> Scenario:
    """Two streams with few keys; some files have rows of one key only, so that slots get none."""
    rng = np.random.default_rng(7)
    made = Scenario(spark, tmp_path, a=A, b=B)
    for number in range(FILES):
        keys = np.full((2, ROWS), 3) if number % 3 == 2 else rng.integers(0, 30, (2, ROWS))
        first = number * ROWS
        made.add(
            a=[(k, first + at, f"row {at}") for at, k in enumerate(keys[0].tolist())],
            b=[(k, first + at) for at, k in enumerate(keys[1].tolist())],
        )
    return made


def flat(joined: sw.Join) -> sw.Join:
    return joined.select("a.k AS k", "a.a AS a", "a.x AS x", "b.b AS b")


def expected(scenario: Scenario) -> DataFrame:
    return scenario.expected(scenario.join().on("k")).selectExpr("a.k", "a.a", "a.x", "b.b")


@pytest.mark.parametrize("partitions", few([1, 2, 3], 0))
def test_jdbc_sink_that_coalesces_gets_every_row_once(
    scenario: Scenario, partitions: int, tmp_path: Path
) -> None:
    """Spark's own JDBC writer coalesces to numPartitions; Derby comes with Spark."""
    url = f"jdbc:derby:{tmp_path / 'database'};create=true"
    query = (
        flat(scenario.join().on("k"))
        .writeStream.format("jdbc")
        .options(url=url, driver=DERBY, dbtable="results", numPartitions=partitions)
        .option("checkpointLocation", str(scenario.checkpoint))
        .adapt(slots=4, groups=16, memory="2KB", strategy="spill-only")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(LONGEST_S), "the query hangs"
    assert query._loop.state.rows_cleaned > 0
    read = scenario.spark.read.format("jdbc").options(url=url, driver=DERBY, dbtable="results")
    assert_same_rows(read.load().select("k", "a", "x", "b"), expected(scenario))


def coalescing(out: Path, partitions: int) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, number: int) -> None:
        target = str(out / f"batch={number}")
        rows.coalesce(partitions).write.mode("overwrite").parquet(target)

    return write


def run_and_scale(
    result: Any, stream: FileStream, root: Path, more: list[list[tuple[Any, ...]]], partitions: int
) -> None:
    """A query whose slots lose all their groups between batches, with a sink that coalesces."""
    writer = (
        result.writeStream.foreachBatch(coalescing(root / "out", partitions))
        .option("checkpointLocation", str(root / "checkpoint"))
        .adapt(slots=4, groups=16)
    )
    query = writer.trigger(processingTime="0 seconds").start()
    for rows, slots in zip(more, (3, 1, 2, 4), strict=True):
        query.processAllAvailable()
        query.scale(slots=slots)
        stream.add(rows)
    query.processAllAvailable()
    query.stop()
    # Groups may still be on their way; a query over finite input ends when they have arrived.
    assert writer.trigger(availableNow=True).start().awaitTermination(LONGEST_S)


@pytest.mark.parametrize("partitions", few([1, 2], 0))
def test_join_that_scales_down_gives_a_coalescing_sink_every_row_once(
    scenario: Scenario, partitions: int
) -> None:
    joined = scenario.join().on("k")
    more = [[(k, 10_000 + at, "more") for k in range(30)] for at in range(4)]
    run_and_scale(flat(joined), scenario.streams["a"], scenario.root, more, partitions)
    found = scenario.spark.read.parquet(str(scenario.out)).select("k", "a", "x", "b")
    assert_same_rows(found, expected(scenario))


@pytest.mark.full
@pytest.mark.parametrize("partitions", few([1, 2], 0))
@pytest.mark.parametrize("operator", few(["dedup", "group by"], 0))
def test_grouping_that_scales_down_gives_a_coalescing_sink_each_key_once(
    spark: SparkSession, tmp_path: Path, operator: str, partitions: int
) -> None:
    source = FileStream(spark, tmp_path / "in", "k bigint, v bigint")
    batches = [[(k, 100 * at + k) for k in range(60)] for at in range(5)]
    source.add(batches[0])
    rows = sw.stream(source.stream(), "s")
    result: Any = rows.dedup("k")
    if operator == "group by":
        result = rows.group_by("k").agg(n=sw.count(), total=sw.sum("v"))
    run_and_scale(result, source, tmp_path, batches[1:], partitions)
    found = spark.read.parquet(str(tmp_path / "out"))
    if operator == "dedup":
        assert sorted(row.k for row in found.collect()) == list(range(60))
        return
    known = totals(batches)
    given = found.collect()
    assert len({(row.batch, row.k) for row in given}) == len(given)
    assert all(known[row.n - 1][row.k] == row.total for row in given)
    assert {row.k for row in given if row.n == len(batches)} == set(range(60))


def totals(batches: list[list[tuple[int, int]]]) -> list[dict[int, int]]:
    """After each batch, the sum of every key; all keys are in all batches."""
    found = [dict.fromkeys(range(60), 0)]
    for batch in batches:
        found.append({k: found[-1][k] + v for k, v in batch})
    return found[1:]


@pytest.mark.parametrize(
    ("reads", "first"), [("nothing", 0), *few([("nothing", 2)]), ("one row", 2)]
)
def test_batch_that_the_sink_did_not_read_is_not_committed(
    scenario: Scenario, reads: str, first: int
) -> None:
    written: dict[int, list[tuple[Any, ...]]] = {}

    def part(rows: DataFrame, number: int) -> None:
        if number < first:
            written[number] = [tuple(row) for row in rows.collect()]
        elif reads == "one row":
            assert len(rows.limit(1).collect()) == 1

    joined = flat(scenario.join().on("k"))
    with pytest.raises(Exception, match=f"the sink has not read all results of batch {first}"):
        scenario.run(joined, sink=part, slots=4)
    committed = log_of(scenario).latest()
    assert first == (0 if committed is None else committed.batch + 1)

    def whole(rows: DataFrame, number: int) -> None:
        assert number not in written
        written[number] = [tuple(row) for row in rows.collect()]

    scenario.run(flat(scenario.join().on("k")), sink=whole, slots=4)
    found = scenario.spark.createDataFrame(
        [row for rows in written.values() for row in rows], expected(scenario).schema
    )
    assert_same_rows(found, expected(scenario))


def test_first_batch_after_a_clean_restart_must_be_read_too(scenario: Scenario) -> None:
    scenario.run(flat(scenario.join().on("k")), slots=2)
    scenario.add(a=[(1, 5000, "more")], b=[(1, 5000)])
    message = f"the sink has not read all results of batch {FILES}"
    with pytest.raises(Exception, match=message):
        scenario.run(flat(scenario.join().on("k")), sink=lambda rows, number: None, slots=2)
    assert log_of(scenario).latest().batch == FILES - 1


def log_of(scenario: Scenario) -> Log:
    return Checkpoint(str(scenario.checkpoint / "spillway")).log


def test_sink_that_keeps_the_last_id_misses_no_batch_and_no_round(scenario: Scenario) -> None:
    """A transactional table skips what is not above the last id that it has, and reads nothing then."""
    ids: list[int] = []
    table: list[tuple[Any, ...]] = []

    def transaction(rows: DataFrame, number: int) -> None:
        if ids and number <= ids[-1]:
            return
        found = [tuple(row) for row in rows.collect()]
        table.extend(found)
        ids.append(number)
        if len(ids) in (3, FILES + 1):
            raise OSError("the connection was lost after the transaction")

    how: dict[str, Any] = {"memory": 2_000, "sink": transaction, "slots": 3}
    for _ in range(2):
        with pytest.raises(Exception, match="the connection was lost"):
            scenario.run(flat(scenario.join().on("k")), **how)
    scenario.run(flat(scenario.join().on("k")), **how)
    assert ids == list(range(len(ids)))
    assert len(ids) > FILES, "there was no round"
    found = scenario.spark.createDataFrame(table, expected(scenario).schema)
    assert_same_rows(found, expected(scenario))


@pytest.mark.full
def test_join_of_forty_streams(spark: SparkSession, tmp_path: Path) -> None:
    """Marks on rows are above all stream numbers."""
    names = [f"s{number}" for number in range(40)]
    scenario = Scenario(spark, tmp_path, **dict.fromkeys(names, "k int"))
    scenario.add(**{name: [(1,), (number + 2,)] for number, name in enumerate(names)})
    query = scenario.run(scenario.join().on("k"))
    assert query.lastProgress is not None
    assert query.lastProgress["rowsOut"] == 1
    [row] = scenario.output(scenario.join().on("k")).collect()
    assert [row[name]["k"] for name in names] == [1] * 40
