"""The oracle and the file streams that the other tests rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spillway.testing import FileStream, assert_same_rows, multiset_difference, oracle

NAN = float("nan")


def test_difference_counts_rows_as_often_as_they_differ(spark: SparkSession) -> None:
    schema = "x double, m map<string,map<int,double>>, a array<float>, s struct<`a.b`:string>"
    one = [(NAN, {"p": {2: -0.0, 1: NAN}, "q": {}}, [-0.0, NAN], ("x",)), (None, None, None, None)]
    same = [(NAN, {"q": {}, "p": {1: NAN, 2: 0.0}}, [0.0, NAN], ("x",)), (None, None, None, None)]
    a, b = spark.createDataFrame(one, schema), spark.createDataFrame(same, schema)
    assert multiset_difference(a, b) == 0
    assert multiset_difference(a.union(a), b) == 2
    assert multiset_difference(a, b.where("x is null")) == 1
    with pytest.raises(AssertionError, match="0 rows are unexpected, 1 are missing") as raised:
        assert_same_rows(a.where("x is null"), b)
    assert "missing: {'x': nan" in str(raised.value)


def test_frames_of_different_columns_are_refused(spark: SparkSession) -> None:
    with pytest.raises(AssertionError, match="column 0 is id bigint in one frame and id string"):
        assert_same_rows(spark.range(1), spark.range(1).selectExpr("string(id) AS id"))
    with pytest.raises(AssertionError, match="one frame has 1 columns, the other 2"):
        assert_same_rows(spark.range(1), spark.range(1).selectExpr("id", "id AS other"))


def test_oracle_keeps_combinations_within_every_window(spark: SparkSession) -> None:
    def times(*seconds: int) -> Any:
        return spark.createDataFrame([(1, s) for s in seconds], "k int, s int").selectExpr(
            "k", "timestamp_seconds(s) AS ts"
        )

    frames = {"a": times(0, 100), "b": times(95, 110)}
    keys = {"a": ("k",), "b": ("k",)}
    windows = {"a": ("ts", 10_000_000), "b": ("ts", 100_000_000)}
    found = oracle(frames, keys, windows).selectExpr("unix_seconds(a.ts)", "unix_seconds(b.ts)")
    assert [tuple(row) for row in found.collect()] == [(100, 95)]
    assert oracle(frames, keys).count() == 4


def test_file_stream_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    FileStream(spark, tmp_path, "k int, v string").add([{"k": 1, "v": "a"}])
    again = FileStream(spark, tmp_path, "k int, v string")
    again.add()
    again.add(spark.createDataFrame([(2, "b")], "k int, v string"))
    assert [path.name for path in again.files] == [f"part-00000{n}.parquet" for n in range(3)]
    assert sorted(tuple(row) for row in again.batch().collect()) == [(1, "a"), (2, "b")]
    times = [path.stat().st_mtime for path in again.files]
    assert times == sorted(set(times))
