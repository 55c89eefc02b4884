"""Spark's `rate-micro-batch` source, and the same rows as a batch DataFrame.

Batch b of the source is the values [b * rows, (b + 1) * rows), all with the timestamp
start + b * advance. A workload is made of expressions over these two columns, so that its stream can
be replayed and its rows can be had again, in a batch query, for a check.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

#: 2024-01-01T00:00:00Z; any time would do, as long as it is the same in every run.
_START_MS = 1_704_067_200_000


@dataclass(frozen=True)
class Rate:
    """A number of rows per batch, and the event time that a batch takes."""

    rows: int
    #: Partitions of the source, which is how many tasks make the rows.
    partitions: int = 2
    start_ms: int = _START_MS
    advance_ms: int = 1000

    def stream(self, spark: SparkSession) -> DataFrame:
        """`timestamp`, `value`: one batch for each trigger, for ever."""
        return (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", self.rows)
            .option("numPartitions", self.partitions)
            .option("startTimestamp", self.start_ms)
            .option("advanceMillisPerBatch", self.advance_ms)
            .load()
        )

    def batch(self, spark: SparkSession, first: int, last: int) -> DataFrame:
        """The rows that the stream gives in the batches `first` to `last`, both included."""
        values = spark.range(first * self.rows, (last + 1) * self.rows).select(
            F.col("id").alias("value")
        )
        began_ms = F.lit(self.start_ms) + self.batch_of(F.col("value")) * self.advance_ms
        return values.select(F.timestamp_millis(began_ms).alias("timestamp"), "value")

    def batch_of(self, value: Column) -> Column:
        """The batch a value comes in."""
        return F.floor(value / F.lit(self.rows)).cast("bigint")
