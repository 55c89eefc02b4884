"""A data source written in Python as a sink: the number of the batch makes its commit exact."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import spillway as sw
from spillway.testing import CommitFault, Faults, FileStream


def numbered_files() -> type[DataSource]:
    """A data source that keeps the files of each number in one directory, and skips one that it has."""

    class Writer(DataSourceArrowWriter):
        def __init__(self, options: dict[str, str]) -> None:
            # Options come with names in lower case.
            number = options.get("spillwaynumber")
            self.target = None if number is None else f"{options['path']}/{int(number):06d}"
            self.staging = f"{options['path']}/_{uuid.uuid4().hex}"

        def write(self, iterator: Any) -> WriterCommitMessage:
            import os
            import uuid

            import pyarrow as pa
            import pyarrow.parquet as pq

            rows = list(iterator)
            if rows:
                os.makedirs(self.staging, exist_ok=True)
                pq.write_table(pa.Table.from_batches(rows), f"{self.staging}/{uuid.uuid4().hex}")
            return WriterCommitMessage()

        def commit(self, messages: Any) -> None:
            import os

            if self.target and os.path.isdir(self.staging) and not os.path.isdir(self.target):
                os.rename(self.staging, self.target)

        def abort(self, messages: Any) -> None:
            pass

    class NumberedFiles(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbered_files"

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            return Writer(self.options)

    return NumberedFiles


@pytest.mark.full
def test_batch_that_comes_again_after_its_write_is_there_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(numbered_files())
    streams = {}
    for name in ("a", "b"):
        streams[name] = FileStream(spark, tmp_path / "in" / name, f"k bigint, {name} string")
        for start in (0, 20):
            streams[name].add([(k, f"{name}{k}") for k in range(start, start + 30)])
    joined = sw.join(a=streams["a"].stream(), b=streams["b"].stream()).on("k")
    result = joined.select("a.k", "a.a", "b.b")

    def start() -> Any:
        fault = CommitFault("before-commit", 1, str(tmp_path / "failed"))
        writer = result.writeStream.format("numbered_files").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "ck")).adapt(slots=2, groups=16)
        return writer.faults(Faults(commits=(fault,))).trigger(availableNow=True).start()

    with pytest.raises(Exception, match="fault placed before-commit in batch 1"):
        start().awaitTermination()
    start().awaitTermination()
    parts = [pq.read_table(path) for path in (tmp_path / "out").glob("0*/*")]
    found = Counter(tuple(row.values()) for part in parts for row in part.to_pylist())
    frames = [streams[name].batch() for name in ("a", "b")]
    wanted = Counter(tuple(row) for row in frames[0].join(frames[1], "k").collect())
    assert found == wanted
    assert wanted.total() > 60
    assert len(list((tmp_path / "out").glob("0*"))) == 2
