"""Files in a directory, exactly once per batch.

The sink writes a batch to a staging directory that readers ignore. Then it moves each file to its
place, under a name that begins with the batch:

    out/_spillway/<writer>/<batch>-<attempt>/p=1/part-00000-….parquet      staged
    out/p=1/b000000000007-<writer>-part-00000-c000.….parquet               published

A published name has the batch and the number of the slot's partition, and nothing of the attempt. Every
attempt at a batch has the same rows in the same slots. So a late driver finds the name of its file
taken: the filesystem refuses the move (local disks, HDFS), or replaces a file with the same rows.

**Invariant: the published files of batch b hold each of its rows at most once. Some of them are missing
only until the replay of b.** A crash can happen at any point:

- before the first move: nothing of b is published. The replay drops the staged files;
- between moves, or after them but before the commit: the replay stages b again, deletes every file
  named for b, and only then moves its own.

Each attempt has its own staging directory, so a task of a dead driver cannot add to a later attempt. A
driver that slept while another start took over finds out before its next move.
The sink lists the target only in a replay and in the first batch after a start.

On a local filesystem, the sink syncs the files and their directories before the batch is committed
(setting `fsync`).

Names and directories are plain, so `spark.read.format(f).load(out)` reads the result.

Known limitations: a filesystem that replaces files may replace one with other rows of the same batch,
in two cases. The writer's option `maxRecordsPerFile` cuts the rows of a slot in any order, and a join
without keys on several streams may make a result in another slot. A late file that arrives while the
new owner moves its own can stop the new owner; its restart writes the batch again. A reader sees part
of the batch during the moves; the option `wholeBatches` avoids that with one directory per batch
(`transactions/directories.py`). Spark writes an empty file for an empty batch; the sink keeps it only
for the first batch of a run, so that the schema is readable.
"""

from __future__ import annotations

import re
import uuid

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spillway.errors import PlanError
from spillway.spark.sinks.columns import check_columns
from spillway.spark.sinks.formats import SinkFormat
from spillway.spark.sinks.hadoop import FileName, HadoopDirectory, escape_glob
from spillway.spark.sinks.refusal import any_failure, refusals
from spillway.spark.sinks.spec import SinkBatch, SinkSpec

_STAGING = "_spillway"
_HIDDEN = ("_", ".")
#: The part of a name that Spark draws anew for every job.
_ATTEMPT = re.compile(r"^(part-\d+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class FileSink:
    """Writes each batch as files of one format below one directory."""

    def __init__(self, spec: SinkSpec, kind: SinkFormat, spark: SparkSession) -> None:
        self._kind = kind
        self._spark = spark
        self._partition_by = spec.partition_by
        self._options = spec.options_without("path", "partitionOverwriteMode")
        self._directory = directory_of(spec, kind, spark, self._options)
        self._staging = f"{_STAGING}/{spec.writer or 'staging'}"
        self._writer = f"{spec.writer}-" if spec.writer else ""
        self._check_owner = spec.check_owner
        self._fsync = spec.fsync
        self._empty_bytes = 0
        self._has_published = False

    def open(self, schema: StructType) -> None:
        """Checks the columns, then writes an empty batch to the staging directory and drops it.

        This rehearsal finds errors that only a write shows: options that Spark rejects, and a
        directory without write permission.
        """
        check_columns(schema, self._kind, self._partition_by, self._spark)
        with any_failure(
            f"the query cannot write {self._kind.name} files to {self._directory}",
            hint="check the options of the writer, and the write permission of the directory",
        ):
            staged = self._stage(self._spark.createDataFrame([], schema), "rehearsal")
            files = self._directory.files_in(staged)
            self._directory.delete(staged)
        self._empty_bytes = max((f.length_bytes for f in files if _is_data(f)), default=0)

    def write(self, batch: SinkBatch) -> None:
        """Writes the batch; a replay replaces what the batch wrote before."""
        # The first batch of a start also clears what an older checkpoint, restored from a backup, left.
        replaces = batch.replay or not self._has_published
        if replaces:
            self._directory.delete(self._staging)
        with refusals(
            f"the query cannot write batch {batch.number} as {self._kind.name} to {self._directory}",
            hint="check the columns of the result and the options of the writer",
        ):
            staged = self._stage(batch.rows, str(batch.number))
        self._check_owner()
        if replaces:
            self._withdraw(batch.number)
        self._publish(staged, batch.number, batch.rows.schema)
        self._directory.delete(staged)

    def _stage(self, df: DataFrame, label: str) -> str:
        staged = f"{self._staging}/{label}-{uuid.uuid4().hex[:8]}"
        writer = df.write.format(self._kind.name).options(**self._options)
        writer.partitionBy(*self._partition_by).save(self._directory.uri(staged))
        return staged

    def _withdraw(self, batch_id: int) -> None:
        folders = "*=*/" * len(self._partition_by)
        for name in self._directory.matching(f"{folders}{escape_glob(self._prefix(batch_id))}*"):
            self._directory.delete(name)

    def _publish(self, staged: str, batch_id: int, schema: StructType) -> None:
        files = [f for f in self._directory.files_in(staged) if _is_data(f)]
        if self._has_published:
            files = [f for f in files if not self._is_empty(staged, f, schema)]
        for folder in sorted({f.folder for f in files} - {""}):
            self._directory.make(folder)
        targets = []
        for file in files:
            base = _ATTEMPT.sub(r"\1", file.base)
            target = f"{file.folder}/{self._prefix(batch_id)}{base}".lstrip("/")
            self._check_owner()
            self._directory.move(f"{staged}/{file.name}", target)
            targets.append(target)
        if self._fsync:
            self._directory.sync(targets)
        self._has_published = True

    def _prefix(self, batch_id: int) -> str:
        return f"b{batch_id:012d}-{self._writer}"

    def _is_empty(self, staged: str, file: FileName, schema: StructType) -> bool:
        # A file as short as the empty one of the rehearsal probably has no row; reading it proves it.
        if self._partition_by or file.length_bytes > self._empty_bytes:
            return False
        reader = self._spark.read.format(self._kind.name).options(**self._options).schema(schema)
        path = self._directory.uri(f"{staged}/{file.name}")
        return file.length_bytes == 0 or reader.load(path).isEmpty()


def _is_data(file: FileName) -> bool:
    return not file.base.startswith(_HIDDEN)


def directory_of(
    spec: SinkSpec, kind: SinkFormat, spark: SparkSession, options: dict[str, str]
) -> HadoopDirectory:
    """The directory of a file sink; raises `PlanError` if files cannot be written to it."""
    path = spec.path or spec.option("path")
    if not path:
        raise PlanError(
            f"the {kind.name} sink needs a directory to write to",
            hint='name it: .start("out"), or .option("path", "out")',
        )
    directory = HadoopDirectory(spark, path, options)
    with any_failure(f"the query cannot read the path {path!r}", hint="check its permissions"):
        is_file, has_log = directory.is_file(), directory.exists("_spark_metadata")
    if is_file:
        raise PlanError(
            f"the path {path!r} is a file, not a directory", hint="name a directory to write to"
        )
    if has_log:
        raise PlanError(
            f"Spark's own file sink wrote the directory {path!r}",
            detail="Spark reads only the files listed in _spark_metadata, so it would ignore new ones",
            hint="name another directory, or remove _spark_metadata if all files there are complete",
        )
    return directory
