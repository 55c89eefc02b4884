"""Any data source Spark can append to: jdbc, kafka, noop, a custom one.

Known limitation: at least once around a crash. Such a source takes rows, not batches, so it gets a
batch twice if a restart replays it after the write. If that matters, use a sink with transactions
(`transactions/`), or foreachBatch: its function gets the batch id, which is the same in the replay,
and can skip or replace the batch. A data source written in Python gets the number of the batch in its
options (`spillwayNumber`, and `spillwayWriter` for the query), so its commit can do the same.

`open` appends a batch without rows. Only the source can check its options, its permissions and the
columns, and a write is the only way to ask it. A source may create its table then, as the first batch
would. Missing options that every query needs have errors of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spillway.errors import PlanError
from spillway.spark.sinks.refusal import any_failure, refusals
from spillway.spark.sinks.spec import SinkBatch, SinkSpec

#: By format, the options that it cannot do without, each with an example.
_NEEDED: Mapping[str, Mapping[str, str]] = {
    "jdbc": {"url": "jdbc:postgresql://host/database", "dbtable": "schema.table"},
    "kafka": {"kafka.bootstrap.servers": "host:9092"},
}


class AppendSink:
    """Appends each batch through the batch writer of the data source."""

    def __init__(
        self, spec: SinkSpec, format_name: str, spark: SparkSession, *, numbered: bool = False
    ) -> None:
        self._spec = spec
        self._numbered = numbered
        self._format = format_name
        self._spark = spark
        self._path = spec.path
        self._options = spec.options_without("path") if spec.path else dict(spec.options)

    def open(self, schema: StructType) -> None:
        """Checks options and columns, then appends a batch without rows."""
        check_needs(self._format, self._spec, schema.names)
        with any_failure(
            f"the sink {self._format!r} does not take the results of the query", hint=self._hint
        ):
            self._append(self._spark.createDataFrame([], schema))

    def write(self, batch: SinkBatch) -> None:
        """Appends the batch."""
        with refusals(f"the sink {self._format!r} rejected batch {batch.number}", hint=self._hint):
            self._append(batch.rows, batch.number)

    def _append(self, df: DataFrame, number: int | None = None) -> None:
        writer = df.write.format(self._format).options(**self._options)
        if self._numbered and number is not None:
            writer = writer.options(spillwayWriter=self._spec.writer, spillwayNumber=number)
        writer.mode("append").save(self._path)

    @property
    def _hint(self) -> str:
        return (
            f"check the options of {self._format!r} in its documentation; the same "
            f'options must work with df.write.format("{self._format}")…save()'
        )


def check_needs(kind: str, spec: SinkSpec, columns: list[str]) -> None:
    """Rejects a sink that lacks an option or a column without which no batch can be written."""
    for option, example in _NEEDED.get(kind.lower(), {}).items():
        if not spec.option(option):
            raise PlanError(
                f"the sink {kind!r} needs the option {option}",
                hint=f'add .option("{option}", "{example}")',
            )
    if kind.lower() == "kafka":
        _check_message(spec, {name.lower() for name in columns})


def _check_message(spec: SinkSpec, columns: set[str]) -> None:
    """Rejects results that are not messages for Kafka."""
    if "value" not in columns:
        raise PlanError(
            "the sink 'kafka' needs a column named value, of text or binary",
            detail=f"the result has {', '.join(sorted(columns))}",
            hint='make one: select("to_json(struct(*)) AS value"), with a key column if needed',
        )
    if "topic" not in columns and not spec.option("topic"):
        raise PlanError(
            "the sink 'kafka' needs a topic",
            hint='add .option("topic", "results"), or select(...) a column named topic',
        )
