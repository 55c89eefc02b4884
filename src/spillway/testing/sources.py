"""Finite streams with known rows, files and batches, so that a test can replay them.

Every file has the rows of one trigger. The oracle reads the same directory as a batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from spillway.spark.runtime.exchange.lanes import arrow_type

#: Modification time of the first file of a stream. Each later file is one second younger, which every
#: filesystem can distinguish. Spark's file source reads files in this order.
_FIRST_FILE_AT_S = 1_577_836_800


class FileStream:
    """A finite stream: a directory of Parquet files, each with the rows of one trigger.

    A new `FileStream` on the same directory continues after the existing files.
    """

    def __init__(
        self, spark: SparkSession, directory: str | os.PathLike[str], schema: str | StructType
    ) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._spark = spark
        #: The columns of the stream.
        self.schema: StructType = spark.createDataFrame([], schema).schema
        # Spark can say its Arrow schema too, but runs a job for it.
        self._arrow = pa.schema(
            [pa.field(one.name, arrow_type(one.dataType), one.nullable) for one in self.schema]
        )

    @property
    def files(self) -> list[Path]:
        """The files so far, in the order the stream reads them."""
        return sorted(self.directory.glob("part-*.parquet"))

    def add(self, rows: Iterable[Any] | DataFrame | pa.Table = ()) -> Path:
        """Adds one file of rows: tuples, dicts, Rows, a batch DataFrame or an Arrow table.

        In a `timestamp` column, a datetime without a zone is in UTC.
        """
        number = len(self.files)
        target = self.directory / f"part-{number:06d}.parquet"
        hidden = self.directory / f".{target.name}.{os.getpid()}"
        pq.write_table(self._table(rows), hidden)
        at = _FIRST_FILE_AT_S + number
        os.utime(hidden, (at, at))
        hidden.replace(target)
        return target

    def stream(self, max_files_per_trigger: int | None = 1) -> DataFrame:
        """The files as a stream, at most this many in a batch; None: all."""
        reader = self._spark.readStream.schema(self.schema)
        if max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", max_files_per_trigger)
        return reader.parquet(str(self.directory))

    def batch(self) -> DataFrame:
        """All rows so far, as a batch DataFrame."""
        return self._spark.read.schema(self.schema).parquet(str(self.directory))

    def _table(self, rows: Iterable[Any] | DataFrame | pa.Table) -> pa.Table:
        if isinstance(rows, DataFrame):
            rows = rows.toArrow()
        if isinstance(rows, pa.Table):
            return rows.select(self.schema.names).cast(self._arrow)
        plain = [_plain(row, self.schema) for row in rows]
        columns = [
            pa.array([row[field.name] for row in plain], field.type) for field in self._arrow
        ]
        return pa.Table.from_arrays(columns, schema=self._arrow)


def _plain(value: Any, kind: DataType) -> Any:
    """A value in Arrow's form: structs as dicts, maps as lists of pairs."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        if isinstance(value, Mapping):
            value = [value.get(field.name) for field in kind]
        pairs = zip(kind, value, strict=True)
        return {field.name: _plain(one, field.dataType) for field, one in pairs}
    if isinstance(kind, ArrayType):
        return [_plain(one, kind.elementType) for one in value]
    if isinstance(kind, MapType):
        entries = value.items() if isinstance(value, Mapping) else value
        return [(_plain(k, kind.keyType), _plain(v, kind.valueType)) for k, v in entries]
    return value
