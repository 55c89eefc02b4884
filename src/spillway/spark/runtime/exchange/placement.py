"""The exchange that brings rows to the slots of a stage.

With anchors, a slot stays on the executor that has its state in memory
(spark/runtime/exchange/anchors.py). In one process every place is right, so no anchors are needed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession

from spillway.spark.runtime.exchange.anchors import Anchors


class Placement:
    """The exchange of one stage."""

    def __init__(self, spark: SparkSession, *, anchored: bool) -> None:
        self._spark = spark
        self._anchored = anchored
        self.anchors: Anchors | None = None

    def place(self, slots: int) -> None:
        """Places this number of slots, if they are not placed yet."""
        if not self._anchored or (self.anchors is not None and self.anchors.slots == slots):
            return
        self.close()
        self.anchors = Anchors(self._spark, slots)

    def exchange(self, rows: DataFrame, slot: Column, slots: int) -> DataFrame:
        """Brings rows to their slots, for a batch with this number of slots."""
        if self.anchors is None:
            return rows.repartitionById(slots, slot)
        return self.anchors.exchange(rows, slot)

    def to_one(self, rows: DataFrame, slot: Column, *, first: bool = False) -> DataFrame:
        """Brings rows to one slot, for work between batches."""
        if self.anchors is not None:
            return self.anchors.exchange(rows, slot)
        return rows if first else rows.repartition(1)

    def close(self) -> None:
        """Releases the anchors."""
        if self.anchors is not None:
            self.anchors.close()
            self.anchors = None
