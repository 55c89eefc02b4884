"""With `wholeBatches`, a reader of the directory sees a batch whole or not at all."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from spillway.errors import PlanError, QueryError, StateError
from spillway.spark.sinks import Sink, SinkBatch, SinkSpec, make_sink
from spillway.spark.sinks.hadoop import HadoopDirectory
from tier import few

SCHEMA = "k bigint, name string"
ROWS = [
    (1, "a/b"),
    (2, "x=y z"),
    (3, "50% [:]"),
    (4, None),
    (5, "__HIVE_DEFAULT_PARTITION__x"),
    (6, " "),
]


def opened(spark: SparkSession, out: Path, *partition_by: str, **options: str) -> Sink:
    given = {"wholeBatches": "true", **options}
    spec = SinkSpec("parquet", given, partition_by, path=str(out), writer="ab", fsync=True)
    sink = make_sink(spec, spark)
    sink.open(spark.createDataFrame([], SCHEMA).schema)
    return sink


def batch(spark: SparkSession, rows: list[Any], number: int, *, replay: bool = False) -> SinkBatch:
    return SinkBatch(spark.createDataFrame(rows, SCHEMA).repartition(3), number, replay)


def read(spark: SparkSession, out: Path) -> Counter[tuple[Any, ...]]:
    loaded = spark.read.option("basePath", str(out)).parquet(str(out))
    return Counter(tuple(row) for row in loaded.select("_batch", "k", "name").collect())


@pytest.mark.parametrize("partition_by", few([((),), (("name",),)], 1))
def test_batch_is_there_once_with_null_and_odd_partition_values(
    spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    sink = opened(spark, out, *partition_by)
    sink.write(batch(spark, ROWS, 0))
    sink.write(batch(spark, ROWS[:2], 1))
    again = opened(spark, out, *partition_by)
    again.write(batch(spark, ROWS[:2], 1, replay=True))
    again.write(batch(spark, [], 2))
    again.write(batch(spark, [(7, "c")], 3))
    wanted = [(0, *row) for row in ROWS] + [(1, *row) for row in ROWS[:2]] + [(3, 7, "c")]
    assert read(spark, out) == Counter(wanted)
    assert not list((out / "_spillway").rglob("*.parquet"))


@pytest.mark.full
@pytest.mark.parametrize("late", [False, True], ids=["crash", "late driver"])
def test_attempt_that_died_or_slept_leaves_one_batch(
    spark: SparkSession, tmp_path: Path, late: bool
) -> None:
    out = tmp_path / "out"
    old = opened(spark, out)._target  # type: ignore[attr-defined]
    prepared = old.prepare(batch(spark, ROWS, 0).rows, 0)
    new = opened(spark, out)
    new._knows = late  # type: ignore[attr-defined] # A start that knows sweeps nothing.
    new.write(batch(spark, ROWS, 0, replay=not late))
    if late:
        old.commit(prepared, 0)
    assert read(spark, out) == Counter((0, *row) for row in ROWS)


@pytest.mark.full
def test_reader_meanwhile_sees_no_half_batch(spark: SparkSession, tmp_path: Path) -> None:
    """It lists and reads the directory all the time, without Spark; every batch has ten files."""
    out, files, rows = tmp_path / "out", 10, 40
    sink = opened(spark, out)
    seen: set[int] = set()
    odd: list[dict[int, int]] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            counts = {p: sum(1 for _ in p.glob("*.parquet")) for p in out.glob("_batch=*")}
            seen.update(int(p.name[7:]) for p in counts)
            odd.extend({n: n} for n in counts.values() if n != files)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(4):
            frame = spark.range(rows).selectExpr("id AS k", "'x' AS name").repartition(files)
            sink.write(SinkBatch(frame, number))
    finally:
        stop.set()
        watcher.join()
    assert not odd
    assert seen == {0, 1, 2, 3}
    parts = ds.partitioning(flavor="hive")
    table = ds.dataset(out, partitioning=parts, ignore_prefixes=["_spillway", "."]).to_table()
    assert table.num_rows == 4 * rows


def _remote(spark: SparkSession, path: Path) -> None:
    HadoopDirectory.scheme = property(lambda self: "s3a")  # type: ignore[method-assign, assignment]
    try:
        opened(spark, path)
    finally:
        HadoopDirectory.scheme = _SCHEME  # type: ignore[method-assign]


_SCHEME = HadoopDirectory.scheme


@pytest.mark.full
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s, p: opened(s, p, path=str(p)).open(
            s.createDataFrame([], "k int, _batch int").schema), "the result has a column _batch"),
        (_remote, "a directory of s3a:// cannot be renamed in one step"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_before_the_start(
    spark: SparkSession,
    tmp_path: Path,
    make: Callable[[SparkSession, Path], Any],
    message: str,
) -> None:
    with pytest.raises(PlanError, match=message):
        make(spark, tmp_path / "out")


@pytest.mark.full
def test_directory_that_cannot_be_renamed_is_named(spark: SparkSession, tmp_path: Path) -> None:
    directory = HadoopDirectory(spark, str(tmp_path), {})
    with pytest.raises(QueryError, match=r"cannot rename the directory gone to _batch=1"):
        directory.appear("gone", "_batch=1")


@pytest.mark.full
def test_new_checkpoint_for_an_old_directory_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    opened(spark, tmp_path / "out").write(batch(spark, ROWS, 4))
    with pytest.raises(StateError, match="is ahead of the checkpoint: it has the batches up to 4"):
        opened(spark, tmp_path / "out").write(batch(spark, ROWS, 0))
