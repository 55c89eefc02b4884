"""Kafka: appends each batch with its number, and a reader that drops what came twice.

A topic has no transaction that a batch of Spark could take part in. So the sink promises at least once,
and marks every message with headers:

    spillway-writer   the query; the same after a restart
    spillway-number   the number of the batch: it only grows, and a replay has it again
    spillway-row      the place of the message in its batch

A repeated batch has the same rows in the same slots, so the sink sorts the messages of each slot and
the place follows from their content alone. `without_repeats` keeps one message of each writer,
number, place and content. Readers without Spark compare the headers in the same way.

Known limitation: a join without equal keys on three streams or more may make a row of a replay in
another slot. Such a row can be repeated in spite of its headers; none is ever lost.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.errors import PlanError
from spillway.spark.sinks.append import AppendSink
from spillway.spark.sinks.spec import SinkBatch, SinkSpec
from spillway.spark.sinks.transactions.changes import tick

WRITER, NUMBER, ROW = HEADERS = ("spillway-writer", "spillway-number", "spillway-row")
_HEADERS_TYPE = "array<struct<key:string,value:binary>>"
#: Columns of a message that the sink can write, without headers.
_MESSAGE = ("key", "value", "topic", "partition")


class KafkaSink(AppendSink):
    """Appends each batch to a topic, with headers that tell repeated messages."""

    def __init__(self, spec: SinkSpec, spark: SparkSession) -> None:
        super().__init__(spec, "kafka", spark)
        self._writer = spec.writer or "query"

    def write(self, batch: SinkBatch) -> None:
        """Appends the batch with its number."""
        super().write(SinkBatch(self._marked(batch.rows, batch.number), batch.number, batch.replay))

    def _marked(self, rows: DataFrame, number: int) -> DataFrame:
        known = {name.lower(): name for name in rows.columns}
        parts = [F.col(tick(known[name])) for name in _MESSAGE if name in known]
        placed = rows.sortWithinPartitions(*parts)
        marks = [
            _header(WRITER, F.lit(self._writer)),
            _header(NUMBER, F.lit(str(number))),
            # The number of the partition and of the row in it.
            _header(ROW, F.monotonically_increasing_id().cast("string")),
        ]
        headers = F.array(*marks)
        if "headers" in known:
            own = F.col(tick(known["headers"]))
            headers = F.concat(F.coalesce(own, F.array().cast(_HEADERS_TYPE)), headers)
            return placed.withColumn(known["headers"], headers)
        return placed.withColumn("headers", headers)


def without_repeats(messages: DataFrame, within: str | None = None) -> DataFrame:
    """Messages of a topic, each once, whatever a restarted query wrote twice.

    `messages` comes from Spark's Kafka source with `includeHeaders`, as a batch or a stream. Messages
    without headers of Spillway all pass. A stream keeps the messages that it has seen for ever, or, if
    given, those of a time: `within="1 hour"` is right if a query restarts within an hour.

    Example:
        >>> topic = spark.read.format("kafka").option("includeHeaders", "true")  # doctest: +SKIP
        >>> without_repeats(topic.option("subscribe", "results").load())  # doctest: +SKIP
        DataFrame[key: binary, value: binary, ...]
    """
    if "headers" not in messages.columns:
        raise PlanError(
            "without_repeats needs the headers of the messages",
            hint='read the topic with .option("includeHeaders", "true")',
        )
    marked = messages.withColumns({_column(name): _value(name) for name in HEADERS})
    # Messages of others are never repeats: their own place in the topic tells them apart.
    own = F.col(_column(WRITER)).isNull()
    place = F.when(own, F.concat_ws("/", "topic", "partition", "offset"))
    marked = marked.withColumn("_spillway_place", place)
    same = [*(_column(name) for name in HEADERS), "_spillway_place", "topic", "key", "value"]
    if messages.isStreaming and within is not None:
        kept = marked.withWatermark("timestamp", within).dropDuplicatesWithinWatermark(same)
    else:
        kept = marked.dropDuplicates(same)
    return kept.select(*(tick(name) for name in messages.columns))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _column(header: str) -> str:
    return "_" + header.replace("-", "_")


def _value(header: str) -> Column:
    found = F.filter("headers", lambda one: one["key"] == header)
    return F.when(F.size(found) > 0, F.element_at(found, 1)["value"].cast("string"))
