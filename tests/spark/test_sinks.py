"""Sinks: each one writes what it is given; files and memory do so once, whatever crashes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from scenario import Scenario

from spillway.checkpoint.log import Log
from spillway.errors import PlanError, QueryError, SettingsError, SpillwayError
from spillway.spark.sinks import Sink, SinkBatch, SinkSpec, make_sink
from spillway.spark.sinks.files import FileSink
from spillway.spark.sinks.hadoop import HadoopDirectory, escape_glob
from spillway.spark.sinks.memory import find_class
from spillway.state.runs.durable import open_durable
from tier import few

SCHEMA = "k bigint, name string"
FIRST = [(1, "a"), (2, "b"), (3, "a")]
SECOND = [(4, "b"), (5, "c")]
OPTIONS = {"csv": {"header": "true", "inferSchema": "true"}, "xml": {"rowTag": "row"}}


@pytest.fixture
def batch(spark: SparkSession) -> Callable[..., DataFrame]:
    """Rows as the DataFrame of a batch, in two partitions."""

    def make(rows: Iterable[tuple[Any, ...]], schema: str = SCHEMA) -> DataFrame:
        return spark.createDataFrame(list(rows), schema)

    return make


def file_spec(kind: str, path: Path, *partition_by: str, **options: str) -> SinkSpec:
    return SinkSpec(kind, options, partition_by=partition_by, path=str(path))


def opened(spec: SinkSpec, spark: SparkSession, schema: str = SCHEMA) -> Sink:
    sink = make_sink(spec, spark)
    sink.open(spark.createDataFrame([], schema).schema)
    return sink


def read(spark: SparkSession, kind: str, path: Path, **options: str) -> list[tuple[Any, ...]]:
    loaded = spark.read.format(kind).options(**options).load(str(path))
    return sorted(tuple(row) for row in loaded.select("k", "name").collect())


def data_files(path: Path) -> list[str]:
    found = (p.relative_to(path) for p in path.rglob("*") if p.is_file())
    return sorted(str(p) for p in found if not p.name.startswith("."))


def refused(spec: SinkSpec, spark: SparkSession, schema: str = SCHEMA) -> SpillwayError:
    with pytest.raises(SpillwayError) as raised:
        opened(spec, spark, schema)
    assert raised.value.hint
    return raised.value


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", few(["parquet", "json", "orc", "csv", "xml"], 0))
@pytest.mark.parametrize("partition_by", [(), ("name",)])
def test_replayed_batch_replaces_its_files(
    spark: SparkSession,
    batch: Callable[..., DataFrame],
    tmp_path: Path,
    kind: str,
    partition_by: tuple[str, ...],
) -> None:
    out = tmp_path / "out"
    options = OPTIONS.get(kind, {})
    spec = file_spec(kind, out, *partition_by, **options)
    sink = opened(spec, spark)
    sink.write(SinkBatch(batch(FIRST), 0, replay=True))
    sink.write(SinkBatch(batch(SECOND), 1, replay=False))
    restarted = opened(spec, spark)
    restarted.write(SinkBatch(batch(SECOND), 1, replay=True))
    restarted.write(SinkBatch(batch([(6, "a")]), 2, replay=False))

    assert read(spark, kind, out, **options) == [*FIRST, *SECOND, (6, "a")]
    assert {name.rpartition("/")[2][:13] for name in data_files(out)} == {
        "b000000000000",
        "b000000000001",
        "b000000000002",
    }


def test_published_files_and_their_directories_are_durable(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(
            os, name, lambda handle: told.append(os.readlink(f"/proc/self/fd/{handle}"))
        )
    out = tmp_path / "new" / "out"
    spec = SinkSpec("parquet", {}, ("name",), path=str(out), fsync=True)
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "k bigint, name string")
    opened(spec, spark).write(SinkBatch(frame, 0))
    files = [path for path in out.rglob("*.parquet") if "_spillway" not in path.parts]
    assert len(files) == 2
    needed = {*files, *(path.parent for path in files), out, out.parent}
    assert set(map(str, needed)) <= set(told)


@pytest.mark.parametrize(
    ("kind", "partition_by", "moves"),
    few(
        [
            ("parquet", (), 0),
            ("parquet", (), 1),
            ("parquet", (), 2),
            ("parquet", ("name",), 1),
            ("json", ("name",), 1),
            ("json", ("name",), 2),
            ("csv", (), 1),
        ],
        *(1, 2, 3),
    ),
)
def test_crash_between_moves_leaves_no_row_twice_after_the_replay(
    spark: SparkSession,
    batch: Callable[..., DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    partition_by: tuple[str, ...],
    moves: int,
) -> None:
    out = tmp_path / "out"
    spec = file_spec(kind, out, *partition_by, header="true")
    sink = opened(spec, spark)
    sink.write(SinkBatch(batch(FIRST), 0, replay=True))
    done = 0
    move = HadoopDirectory.move

    def crashing(self: HadoopDirectory, source: str, target: str) -> None:
        nonlocal done
        if done == moves:
            raise KeyboardInterrupt
        done += 1
        move(self, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(HadoopDirectory, "move", crashing)
        if moves == 2:  # Both files are moved: the crash comes while the staging is removed.
            patch.setattr(HadoopDirectory, "delete", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            sink.write(SinkBatch(batch(SECOND), 1, replay=False))
    assert len([name for name in data_files(out) if "b000000000001" in name]) == moves

    opened(spec, spark).write(SinkBatch(batch(SECOND), 1, replay=True))
    loaded = spark.read.format(kind).schema(SCHEMA).option("header", "true").load(str(out))
    assert sorted(tuple(r) for r in loaded.select("k", "name").collect()) == [*FIRST, *SECOND]
    assert not [name for name in data_files(out) if name.startswith("_spillway")]


def test_late_move_of_a_driver_that_slept_leaves_no_row_twice(
    spark: SparkSession,
    batch: Callable[..., DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It sleeps after its last check, before a move; its successor writes the batch again meanwhile."""
    out = tmp_path / "out"
    spec = file_spec("parquet", out)
    sink, move = opened(spec, spark), HadoopDirectory.move
    slept: list[str] = []

    def sleeping(self: HadoopDirectory, source: str, target: str) -> None:
        if not slept:
            slept.append(target)
            # The successor leaves the staged files of others in this test.
            patch.setattr(HadoopDirectory, "delete", lambda *_: None)
            opened(spec, spark).write(SinkBatch(batch(SECOND), 1))
        move(self, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(HadoopDirectory, "move", sleeping)
        with pytest.raises(QueryError, match=r"cannot move the file .* to b0+1-part"):
            sink.write(SinkBatch(batch(SECOND), 1))
    loaded = spark.read.schema(SCHEMA).parquet(str(out))
    assert sorted(tuple(r) for r in loaded.select("k", "name").collect()) == sorted(SECOND)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_only_a_replay_lists_the_target(
    spark: SparkSession,
    batch: Callable[..., DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = opened(file_spec("parquet", tmp_path / "out", "name"), spark)
    patterns: list[str] = []
    matching = HadoopDirectory.matching

    def noted(self: HadoopDirectory, pattern: str) -> list[str]:
        patterns.append(pattern)
        return matching(self, pattern)

    monkeypatch.setattr(HadoopDirectory, "matching", noted)
    sink.write(SinkBatch(batch(FIRST), 7, replay=True))
    sink.write(SinkBatch(batch(SECOND), 8, replay=False))
    assert patterns == ["*=*/b000000000007-*"]


def test_driver_that_was_replaced_publishes_no_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another start takes over while the files of a batch are staged, and repeats the batch."""
    scenario = Scenario(spark, tmp_path, a="k int, x int", b="k int, y int")
    for number in range(3):
        scenario.add(a=[(1, number)], b=[(1, number)])
    stage, place = FileSink._stage, str(scenario.checkpoint / "spillway")

    def replaced(self: FileSink, df: DataFrame, label: str) -> str:
        staged = stage(self, df, label)
        if label == "1":
            Log(open_durable(place)).take_over()
        return staged

    with monkeypatch.context() as patched:
        patched.setattr(FileSink, "_stage", replaced)
        with pytest.raises(QueryError, match="has taken over the checkpoint"):
            scenario.run(scenario.join().on("k"))
    published = {path.name.split("-")[0] for path in scenario.out.glob("b*")}
    assert published == {f"b{0:012d}"}
    scenario.run(scenario.join().on("k"))
    scenario.check(scenario.join().on("k"))


def test_writers_of_one_directory_replace_only_their_own_files(
    spark: SparkSession, batch: Callable[..., DataFrame], tmp_path: Path
) -> None:
    specs = [
        SinkSpec("json", {}, path=str(tmp_path / "out"), writer=writer) for writer in ("ab", "cd")
    ]
    opened(specs[0], spark).write(SinkBatch(batch(FIRST), 0, replay=True))
    for _ in range(2):
        opened(specs[1], spark).write(SinkBatch(batch(SECOND), 0, replay=True))
    assert read(spark, "json", tmp_path / "out") == [*FIRST, *SECOND]


def test_odd_characters_in_path_and_partition_values_are_kept(
    spark: SparkSession, batch: Callable[..., DataFrame], tmp_path: Path
) -> None:
    out = tmp_path / "out [1] {a,b} 100%*"
    rows = [(1, "a/b"), (2, "x=y z"), (3, "50% [:]"), (4, None)]
    spec = file_spec("parquet", out, "name")
    for _ in range(2):
        opened(spec, spark).write(SinkBatch(batch(rows), 0, replay=True))
    # Spark's reader takes the path for a glob pattern.
    loaded = spark.read.parquet(escape_glob(str(out)))
    assert sorted(tuple(row) for row in loaded.select("k", "name").collect()) == rows


def test_empty_batches_leave_at_most_the_first_file(
    spark: SparkSession, batch: Callable[..., DataFrame], tmp_path: Path
) -> None:
    for kind, options in (("parquet", {}), ("json", {}), ("csv", {"header": "true"})):
        out = tmp_path / kind
        sink = opened(file_spec(kind, out, **options), spark)
        for batch_id in range(3):
            sink.write(SinkBatch(batch([]), batch_id, replay=batch_id == 0))
        assert len(data_files(out)) == 1
        sink.write(SinkBatch(batch(FIRST), 3, replay=False))
        assert spark.read.format(kind).options(**options).load(str(out)).count() == len(FIRST)


def test_file_options_reach_the_files(
    spark: SparkSession, batch: Callable[..., DataFrame], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = {"header": "true", "sep": ";", "compression": "gzip", "Path": str(out)}
    sink = opened(SinkSpec("csv", options), spark)
    sink.write(SinkBatch(batch(FIRST), 0, replay=True))
    assert {name[-7:] for name in data_files(out)} == {".csv.gz"}
    assert read(spark, "csv", out, header="true", sep=";", inferSchema="true") == FIRST


def test_leftover_of_dynamic_overwrite_is_not_published(
    spark: SparkSession, batch: Callable[..., DataFrame], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    spec = file_spec("parquet", out, "name", partitionOverwriteMode="dynamic")
    for rows in (FIRST, SECOND):
        opened(spec, spark).write(SinkBatch(batch(rows), 0, replay=True))
    assert read(spark, "parquet", out) == SECOND


def test_default_format_is_that_of_the_session(
    spark: SparkSession, batch: Callable[..., DataFrame], tmp_path: Path
) -> None:
    opened(SinkSpec(None, {}, path=str(tmp_path / "out")), spark).write(
        SinkBatch(batch(FIRST), 0, replay=True)
    )
    assert read(spark, "parquet", tmp_path / "out") == FIRST


def test_file_that_cannot_be_moved_is_named(spark: SparkSession, tmp_path: Path) -> None:
    directory = HadoopDirectory(spark, str(tmp_path), {})
    with pytest.raises(QueryError, match=r"cannot move the file gone to b1-gone"):
        directory.move("gone", "b1-gone")


# --- memory, console, foreachBatch, noop, tables -------------------------------------------------


def test_memory_table_takes_each_batch_once(
    spark: SparkSession, batch: Callable[..., DataFrame]
) -> None:
    spec = SinkSpec("memory", {}, query_name="results")
    sink = opened(spec, spark)
    assert spark.sql("select * from results").count() == 0
    sink.write(SinkBatch(batch(FIRST), 3, replay=True))
    sink.write(SinkBatch(batch(FIRST), 3, replay=True))
    sink.write(SinkBatch(batch(SECOND), 4, replay=False))
    rows = spark.sql("select k, name from results order by k").collect()
    assert [tuple(row) for row in rows] == [*FIRST, *SECOND]

    opened(spec, spark)
    assert spark.table("results").count() == 0


def test_memory_table_of_a_running_stream_is_seen_by_the_users_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = make_sink(SinkSpec("MEMORY", {}, query_name="live"), spark)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "5").load()
    query = (
        source.selectExpr("value", "array(struct(timestamp)) as nested")
        .writeStream.foreachBatch(
            lambda df, batch_id: sink.write(SinkBatch(df, batch_id, replay=False))
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        while len(query.recentProgress) < 3:
            assert query.exception() is None
            query.awaitTermination(1)
    finally:
        query.stop()
    values = [row.value for row in spark.sql("select value from live order by value").collect()]
    assert len(values) >= 10
    assert values == list(range(len(values)))


def test_missing_class_of_spark_is_told() -> None:
    class Session:
        version = "9.9"
        _jvm = type("View", (), {"a.B": object()})()

    with pytest.raises(SpillwayError, match=r"does not support Spark 9\.9"):
        find_class(Session(), ["a.B"])


def test_console_shows_header_and_rows(
    spark: SparkSession, batch: Callable[..., DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(i, "x" * 30) for i in range(3)]
    spec = SinkSpec("console", {"numrows": "2", "truncate": "false"})
    opened(spec, spark).write(SinkBatch(batch(rows), 12, replay=False))
    shown = capsys.readouterr().out
    assert "Batch: 12\n" in shown
    assert shown.count("x" * 30) == 2
    assert "only showing top 2 rows" in shown

    opened(SinkSpec("console", {"truncate": "5"}), spark).write(
        SinkBatch(batch(rows), 13, replay=False)
    )
    assert capsys.readouterr().out.count("xx...") == 3


def test_foreach_batch_gets_rows_and_batch_id(
    spark: SparkSession, batch: Callable[..., DataFrame]
) -> None:
    seen: list[tuple[int, int]] = []
    spec = SinkSpec(
        None, {}, foreach_batch=lambda df, batch_id: seen.append((batch_id, df.count()))
    )
    opened(spec, spark).write(SinkBatch(batch(FIRST), 5, replay=False))
    assert seen == [(5, 3)]


def test_noop_evaluates_and_keeps_nothing(
    spark: SparkSession, batch: Callable[..., DataFrame]
) -> None:
    counted = spark.sparkContext.accumulator(0)

    def count(rows: Iterable[Any]) -> Iterable[Any]:
        for row in rows:
            counted.add(1)
            yield row

    df = spark.createDataFrame(batch(FIRST).rdd.mapPartitions(count), SCHEMA)
    opened(SinkSpec("noop", {}), spark).write(SinkBatch(df, 0, replay=False))
    assert counted.value == 3


def test_table_is_created_and_then_appended_to_by_name(
    spark: SparkSession, batch: Callable[..., DataFrame]
) -> None:
    spec = SinkSpec("orc", {}, table="sink_table", partition_by=("name",))
    try:
        opened(spec, spark).write(SinkBatch(batch(FIRST), 0, replay=True))
        again = opened(SinkSpec(None, {}, table="sink_table"), spark, "name string, k bigint")
        again.write(SinkBatch(batch(SECOND).select("name", "k"), 1, replay=False))
        rows = spark.sql("select k, name from sink_table order by k").collect()
        assert [tuple(row) for row in rows] == [*FIRST, *SECOND]
    finally:
        spark.sql("drop table if exists sink_table")


# --- what cannot be, said before the stream starts -----------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (SinkSpec("parquet", {}), "the parquet sink needs a directory to write to"),
        (SinkSpec("memory", {}), "the memory sink needs a name for its table"),
        (SinkSpec("memory", {}, query_name="a-b"), "queryName('a-b') cannot be the name"),
        (SinkSpec("memory", {}, query_name="a.b"), "it names a schema"),
        (SinkSpec("parkay", {}), "there is no data source 'parkay' to write to"),
        (SinkSpec("kafka", {}), "there is no data source 'kafka' to write to"),
        (SinkSpec("rate", {}), "'rate' is a source; queries cannot write to it"),
        (
            SinkSpec("noop", {}, partition_by=("k",)),
            "the sink 'noop' does not support partitionBy(k)",
        ),
        (SinkSpec("console", {}, partition_by=("k",)), "does not support partitionBy(k)"),
        (SinkSpec(None, {}, foreach_batch=7), "expects a function, not int 7"),
        (SinkSpec(None, {}, foreach_batch=lambda df: None), "takes (df)"),
        (
            SinkSpec("parquet", {}, path="nofs://host/out"),
            "cannot reach the path 'nofs://host/out'",
        ),
        (SinkSpec(None, {}, table="a b"), "toTable('a b'): Spark cannot look up the table"),
        (SinkSpec(None, {}, table="no_schema.t"), "Spark cannot create table no_schema.t"),
    ],
)
def test_spec_without_a_sink_is_refused(spark: SparkSession, spec: SinkSpec, message: str) -> None:
    error = refused(spec, spark)
    assert isinstance(error, PlanError)
    assert message in error.message


@pytest.mark.parametrize("option", ["numRows", "truncate"])
def test_console_option_must_be_a_number(spark: SparkSession, option: str) -> None:
    error = refused(SinkSpec("console", {option: "many"}), spark)
    assert isinstance(error, SettingsError)
    assert error.message == (
        f"option {option} of the console sink must be a whole number, not 'many'"
    )


@pytest.mark.parametrize(
    ("kind", "schema", "partition_by", "message", "hint"),
    [
        ("csv", "k int, s struct<x:int>", (), "column 's' is of type struct<x:int>", '"s.x"'),
        ("csv", "k int, l array<int>", (), "which csv files cannot hold", "to_json(l)"),
        ("csv", "k int, m map<string,int>", (), "column 'm'", "to_json(m)"),
        ("csv", "k int, b binary", (), "column 'b' is of type binary", "base64(b)"),
        ("text", "a string, b string", (), "text files hold one column; the result has 2", "csv"),
        ("text", "a int", (), "column 'a' is of type int", "cast(a as string)"),
        ("parquet", "k int, K string", (), "more than one column named K, k", "alias"),
        ("json", "k int, name string", ("day",), "no column 'day'", "k, name"),
        ("json", "k int, l array<int>", ("l",), "a directory name cannot hold it", "simple type"),
        ("json", "k int", ("k",), "no column is left", "at least one column"),
    ],
)
def test_columns_that_files_cannot_hold_are_named(
    spark: SparkSession,
    tmp_path: Path,
    kind: str,
    schema: str,
    partition_by: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    error = refused(file_spec(kind, tmp_path / "out", *partition_by), spark, schema)
    assert message in error.message
    assert hint in (error.hint or "")


def test_option_that_spark_refuses_is_found_before_the_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    error = refused(file_spec("parquet", tmp_path / "out", compression="zap"), spark)
    assert error.message.startswith("the query cannot write parquet files to")
    assert "codec zap is not available" in (error.detail or "")


def test_path_that_is_no_directory_of_ours_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file" in refused(file_spec("json", tmp_path / "file"), spark).message
    (tmp_path / "out" / "_spark_metadata").mkdir(parents=True)
    error = refused(file_spec("json", tmp_path / "out"), spark)
    assert "Spark's own file sink wrote the directory" in error.message


def test_table_of_another_shape_is_refused(spark: SparkSession) -> None:
    spark.sql("create table shape (k bigint, name string) using json partitioned by (name)")
    spark.sql("create temporary view seen as select 1 as k")
    try:
        stored = refused(SinkSpec("orc", {}, table="shape"), spark)
        assert stored.message == "toTable('shape'): the table is stored as json, not as orc"
        columns = refused(SinkSpec(None, {}, table="shape"), spark, "k bigint, price double")
        assert columns.message == "table shape has the columns k, name; the result has k, price"
        partitions = refused(SinkSpec(None, {}, table="shape", partition_by=("k",)), spark)
        assert partitions.message == "table shape is partitioned by (name), not by (k)"
        assert "this is a view" in refused(SinkSpec(None, {}, table="seen"), spark).message
    finally:
        spark.sql("drop table shape")
        spark.catalog.dropTempView("seen")


def test_sink_that_lacks_an_option_or_a_driver_is_refused_before_the_start(
    spark: SparkSession,
) -> None:
    assert refused(SinkSpec("jdbc", {}), spark).message == "the sink 'jdbc' needs the option url"
    given = {"url": "jdbc:nosuch:here", "dbtable": "results"}
    error = refused(SinkSpec("jdbc", given), spark)
    assert error.message == "the sink 'jdbc' does not take the results of the query"
    assert "No suitable driver" in (error.detail or "")


def test_rows_that_a_data_source_rejects_are_named_by_sink_and_batch(
    spark: SparkSession, batch: Callable[..., DataFrame]
) -> None:
    url = "jdbc:derby:memory:sinks;create=true"
    sink = opened(SinkSpec("jdbc", {"url": url, "dbtable": "results"}), spark)
    sink.write(SinkBatch(batch(FIRST), 0, replay=False))
    stored = spark.read.jdbc(url, "results")
    assert sorted(tuple(row) for row in stored.collect()) == FIRST
    with pytest.raises(PlanError, match="the sink 'jdbc' rejected batch 4") as raised:
        sink.write(SinkBatch(batch(FIRST).withColumnRenamed("k", "other"), 4, replay=False))
    assert "other" in (raised.value.detail or "")


def test_job_that_fails_upstream_of_a_sink_is_not_blamed_on_it(
    spark: SparkSession, batch: Callable[..., DataFrame]
) -> None:
    failing = batch(FIRST).selectExpr("raise_error('<<upstream>>') as k")
    with pytest.raises(Exception, match="<<upstream>>") as raised:
        opened(SinkSpec("noop", {}), spark).write(SinkBatch(failing, 0, replay=False))
    assert not isinstance(raised.value, SpillwayError)


def test_results_in_a_table_are_visible_at_once_in_the_users_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The user's session reads the table between two batches, and needs no refresh."""
    scenario = Scenario(spark, tmp_path, a="k int, x int", b="k int, y int")
    joined = scenario.join().on("k").select("a.k", "a.x", "b.y")
    seen = []
    try:
        for number in range(3):
            scenario.add(a=[(number, 1)], b=[(number, 2)])
            query = (
                joined.writeStream.option("checkpointLocation", str(scenario.checkpoint))
                .adapt(slots=2, groups=16)
                .trigger(availableNow=True)
                .toTable("seen_at_once")
            )
            assert query.awaitTermination(60)
            seen.append(sorted(row.k for row in spark.table("seen_at_once").collect()))
            kept = spark.sql("select count(*) as n from seen_at_once").first()
            assert kept is not None
            assert kept.n == number + 1
    finally:
        spark.sql("drop table if exists seen_at_once")
    assert seen == [[0], [0, 1], [0, 1, 2]]
