"""Files whose readers see whole batches: one directory per batch, which appears by one rename.

    out/_spillway/<writer>/<number>-<attempt>/p=1/part-….parquet     prepared; readers ignore it
    out/_batch=000000000007/p=1/part-….parquet                       committed

The option `wholeBatches` of the file sink chooses this layout. The name of the directory is the number,
and readers get it as a partition column `_batch`. The rename fails if the directory exists, so a batch
is there once. It needs a filesystem that renames a directory in one step: a local disk or HDFS, but no
object store, which copies the files one by one.
"""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spillway.errors import PlanError
from spillway.spark.sinks.columns import check_columns
from spillway.spark.sinks.formats import SinkFormat
from spillway.spark.sinks.hadoop import HadoopDirectory
from spillway.spark.sinks.refusal import any_failure, refusals
from spillway.spark.sinks.spec import SinkSpec

#: The option, the partition column that it adds, and the filesystems with the rename that it needs.
OPTION, COLUMN = "wholeBatches", "_batch"
_SCHEMES = ("file", "hdfs", "viewfs")


class DirectoryTarget:
    """A directory of batches, as files of one format."""

    def __init__(
        self, spec: SinkSpec, kind: SinkFormat, spark: SparkSession, directory: HadoopDirectory
    ) -> None:
        self._kind = kind
        self._spark = spark
        self._partition_by = spec.partition_by
        self._options = spec.options_without("path", "partitionOverwriteMode", OPTION)
        self._directory = directory
        self._staging = f"_spillway/{spec.writer or 'staging'}"
        self._fsync = spec.fsync
        if directory.scheme not in _SCHEMES:
            raise PlanError(
                f"option {OPTION}: a directory of {directory.scheme}:// cannot be renamed in one step",
                hint="write to delta or iceberg, whose readers see whole batches on object stores",
            )

    def open(self, schema: StructType) -> None:
        """Checks the columns, then writes an empty batch to the staging directory and drops it."""
        if COLUMN in (name.lower() for name in schema.names):
            raise PlanError(
                f"option {OPTION}: the result has a column {COLUMN}, the name of the batch's directory",
                hint="select(...) it under another name",
            )
        check_columns(schema, self._kind, self._partition_by, self._spark)
        with any_failure(
            f"the query cannot write {self._kind.name} files to {self._directory}",
            hint="check the options of the writer, and the write permission of the directory",
        ):
            self.discard(self._stage(self._spark.createDataFrame([], schema), "rehearsal"))

    def last(self) -> int | None:
        """The newest number that a directory has."""
        names = self._directory.matching(f"{COLUMN}=*")
        return max((int(name.rpartition("=")[2]) for name in names), default=None)

    def prepare(self, rows: DataFrame, number: int) -> str:
        """Writes the files to a staging directory."""
        with refusals(
            f"the query cannot write batch {number} as {self._kind.name} to {self._directory}",
            hint="check the columns of the result and the options of the writer",
        ):
            staged = self._stage(rows, str(number))
        # Only directories and files of rows are left to appear.
        self._directory.delete(f"{staged}/_SUCCESS")
        if self._fsync:
            names = [f"{staged}/{file.name}" for file in self._directory.files_in(staged)]
            self._directory.sync([name for name in names if not name.endswith(".crc")])
        return staged

    def commit(self, prepared: str, number: int) -> None:
        """Renames the staging directory."""
        self._directory.appear(prepared, f"{COLUMN}={number:012d}")
        if self._fsync:
            self._directory.sync([])

    def discard(self, prepared: str) -> None:
        """Removes a staging directory that was not renamed."""
        self._directory.delete(prepared)

    def sweep(self) -> None:
        """Removes the staging directories of dead attempts."""
        self._directory.delete(self._staging)

    def _stage(self, rows: DataFrame, label: str) -> str:
        staged = f"{self._staging}/{label}-{uuid.uuid4().hex[:8]}"
        writer = rows.write.format(self._kind.name).options(**self._options)
        writer.partitionBy(*self._partition_by).save(self._directory.uri(staged))
        return staged
