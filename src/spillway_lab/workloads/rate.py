"""Spark's `rate-micro-batch` source, and the same rows as a batch DataFrame.

Batch b has the values [b * rows, (b + 1) * rows), all with the timestamp start + b * advance. Workloads
are expressions over these two columns, so that streams can be replayed and batch queries can check them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

#: 2024-01-01T00:00:00Z; arbitrary, but the same in every run.
_START_MS = 1_704_067_200_000


@dataclass(frozen=True)
class Rate:
    """The rows of a batch, and its length in event time."""

    rows: int
    #: Partitions of the source: one task makes the rows of each.
    partitions: int = 2
    start_ms: int = _START_MS
    advance_ms: int = 1000

    def stream(self, spark: SparkSession) -> DataFrame:
        """`timestamp`, `value`: one batch for each trigger, without end."""
        return (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", self.rows)
            .option("numPartitions", self.partitions)
            .option("startTimestamp", self.start_ms)
            .option("advanceMillisPerBatch", self.advance_ms)
            .load()
        )

    def batch(self, spark: SparkSession, first: int, last: int) -> DataFrame:
        """The rows of batches `first` to `last`, inclusive."""
        values = spark.range(first * self.rows, (last + 1) * self.rows).select(
            F.col("id").alias("value")
        )
        began_ms = F.lit(self.start_ms) + self.batch_of(F.col("value")) * self.advance_ms
        return values.select(F.timestamp_millis(began_ms).alias("timestamp"), "value")

    def batch_of(self, value: Column) -> Column:
        """The batch of a value."""
        return F.floor(value / F.lit(self.rows)).cast("bigint")
