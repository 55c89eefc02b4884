"""Anchors: what keeps a slot on the executor that has its state in memory.

Spark places the tasks of a shuffle anew in every batch. A cached table with one row per slot has a
place, though, and a join with it is planned where its partitions are: so the routed rows are joined
with the anchors, partition by partition, and every slot runs where its anchor is cached.

Both sides are partitioned by Spark's hash of the anchor value. The values are searched for, so that
slot s lands in partition s: no partition is shared, none is empty, and the task knows its slot.
"""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

ANCHOR = "_anchor"


class Anchors:
    """The cached table of one query, made anew when the number of slots changes."""

    def __init__(self, spark: SparkSession, slots: int) -> None:
        self.slots = slots
        self.values = anchor_values(spark, slots)
        rows = [(value,) for value in self.values]
        # The same expression on both sides lets Spark see that neither needs another exchange.
        self._table = (
            spark.createDataFrame(rows, f"{ANCHOR} int").repartition(slots, ANCHOR).cache()
        )
        self._table.count()

    def exchange(self, rows: DataFrame, slot: Column) -> DataFrame:
        """The rows partitioned by slot, each slot where its anchor is."""
        values = F.array(*(F.lit(value) for value in self.values))
        routed = rows.withColumn(ANCHOR, F.get(values, slot))
        placed = routed.repartition(self.slots, ANCHOR)
        joined = placed.hint("shuffle_hash").join(self._table.hint("shuffle_hash"), ANCHOR)
        return joined.drop(ANCHOR)

    def close(self) -> None:
        """Gives the cached table back."""
        self._table.unpersist()


def anchor_values(spark: SparkSession, slots: int) -> tuple[int, ...]:
    """For each slot, an integer that Spark's hash partitioning sends to the partition of its number."""
    found: dict[int, int] = {}
    tried, step = 0, max(1024, slots * 32)
    while len(found) < slots:
        rows = (
            spark.range(tried, tried + step)
            .selectExpr("int(id) AS value", f"pmod(hash(int(id)), {slots}) AS slot")
            .groupBy("slot")
            .agg(F.min("value").alias("value"))
            .collect()
        )
        for row in rows:
            found.setdefault(row["slot"], row["value"])
        tried += step
    return tuple(found[slot] for slot in range(slots))


@lru_cache(maxsize=8)
def slot_expression(table: tuple[int, ...], slots: int) -> str:
    """SQL for the slot of a row from its `_h`, by the routing table.

    Neighbouring groups of one slot are one comparison; the fewest comparisons of two forms are used:
    arithmetic for the even routing every query starts with, an array of slots otherwise.
    """
    groups = len(table)
    group = f"shiftright((cast(_h as bigint) & 4294967295L) * {groups}L, 32)"
    if table == tuple(g * slots // groups for g in range(groups)):
        return f"cast(({group}) * {slots}L div {groups}L as int)"
    return f"get(array({','.join(map(str, table))}), cast({group} as int))"
