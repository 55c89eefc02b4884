"""Any data source Spark can append to: jdbc, kafka, noop, a custom one.

Known limitation: at least once around a crash. Such a source takes rows, not batches, so it gets a
batch twice if a restart replays it after the write. If that matters, use foreachBatch: its function
gets the batch id, which is the same in the replay, and can skip or replace the batch.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spillway.spark.sinks.refusal import refusals
from spillway.spark.sinks.spec import SinkSpec


class AppendSink:
    """Appends each batch through the batch writer of the data source."""

    def __init__(self, spec: SinkSpec, format_name: str) -> None:
        self._format = format_name
        self._path = spec.path
        self._options = spec.options_without("path") if spec.path else dict(spec.options)

    def open(self, schema: StructType) -> None:
        """Does nothing: only the source can check the schema, at the first batch."""

    def write(self, df: DataFrame, batch_id: int, *, replay: bool) -> None:  # noqa: ARG002
        """Append the batch."""
        with refusals(
            f"The sink {self._format!r} rejected batch {batch_id}",
            hint=f"check the options of {self._format!r} in its documentation; the same "
            f'options must work with df.write.format("{self._format}")…save()',
        ):
            df.write.format(self._format).options(**self._options).mode("append").save(self._path)
