"""Anchors keep a slot on the executor that has its state in memory.

Spark chooses new places for the tasks of a shuffle in every batch, but plans a join with a cached
table where its partitions are. So the stage joins the routed rows with a cached table of one row per
slot, the anchors, and every slot runs where its anchor is.

Spark's hash of the anchor value partitions both sides. A search finds values such that slot s lands
in partition s: slots share no partition, no partition is empty, and the task knows its slot.

If an executor dies, Spark caches its anchors again wherever the slots run next.

Known limitation: a new executor gets no slot until a slot loses its anchor. When the slot count
changes, Spark caches all anchors again; a slot that changes its executor then fetches its state from
the durable tier once.
"""

from __future__ import annotations

import warnings
from collections import Counter
from functools import lru_cache

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.spark.runtime.session import ANCHORING, is_local

ANCHOR = "_anchor"
#: How often to cache the anchors again if Spark has spread them unevenly. With more slots than cores,
#: one try in four was uneven on three busy executors; with as many slots as cores, none was.
_TRIES = 6


class Anchors:
    """The cached table of one query; a change of the slot count makes a new one."""

    def __init__(self, spark: SparkSession, slots: int) -> None:
        check_settings(spark)
        self.slots = slots
        self.values = anchor_values(spark, slots)
        self._context = spark.sparkContext._jsc.sc()
        rows = [(value,) for value in self.values]
        # The same expression on both sides lets Spark see that neither needs another exchange.
        self._table = spark.createDataFrame(rows, f"{ANCHOR} int").repartition(slots, ANCHOR)
        try:
            self._cache()
        except BaseException:
            self.close()
            raise

    def exchange(self, rows: DataFrame, slot: Column) -> DataFrame:
        """The rows partitioned by slot, each slot where its anchor is."""
        if not self._table.storageLevel.useMemory:
            # The user has cleared Spark's cache; without the table Spark would choose another plan.
            self._cache()
        values = F.array(*(F.lit(value) for value in self.values))
        routed = rows.withColumn(ANCHOR, F.get(values, slot))
        placed = routed.repartition(self.slots, ANCHOR)
        return placed.join(self._table.hint("shuffle_hash"), ANCHOR).drop(ANCHOR)

    def places(self) -> tuple[str, ...]:
        """For each slot, Spark's name of the executor that has its anchor; "" if none has."""
        rdd = self._table.select(ANCHOR)._jdf.queryExecution().toRdd()
        found = (self._context.getPreferredLocs(rdd, slot) for slot in range(self.slots))
        return tuple("" if at.isEmpty() else str(at.head().toString()) for at in found)

    def close(self) -> None:
        """Releases the cached table."""
        self._table.unpersist()

    def _cache(self) -> None:
        for _ in range(_TRIES):
            self._table.unpersist(blocking=True)
            self._table.cache().count()
            if self._even():
                return

    def _even(self) -> bool:
        # The list includes the driver, which is an executor only if there is no other.
        executors = max(1, self._context.getExecutorMemoryStatus().size() - 1)
        share = Counter(self.places())
        return len(share) == min(executors, self.slots) and (
            max(share.values()) - min(share.values()) <= 1
        )


def anchor_values(spark: SparkSession, slots: int) -> tuple[int, ...]:
    """For each slot, an integer that Spark's hash partitioning sends to the slot's partition."""
    found: dict[int, int] = {}
    tried, step = 0, max(1024, slots * 32)
    while len(found) < slots:
        numbers = spark.range(tried, tried + step, 1, 1)
        rows = numbers.selectExpr("int(id) AS value", f"pmod(hash(int(id)), {slots}) AS slot")
        for row in rows.collect():
            found.setdefault(row["slot"], row["value"])
        tried += step
    return tuple(found[slot] for slot in range(slots))


def check_settings(spark: SparkSession) -> None:
    """Warns if Spark started without the settings that keep slots on their executors."""
    name, wanted = next(iter(ANCHORING.items()))
    if not is_local(spark) and spark.sparkContext.getConf().get(name, "true").lower() != wanted:
        warnings.warn(
            f"slots will change executors from batch to batch, and fetch their state each time: "
            f"{name} is not {wanted}. Set it before you create the Spark session.",
            stacklevel=4,
        )


def group_expression(groups: int) -> str:
    """SQL for the group of a row from its `_h`."""
    return f"shiftright((cast(_h as bigint) & 4294967295L) * {groups}L, 32)"


@lru_cache(maxsize=8)
def slot_expression(table: tuple[int, ...], slots: int) -> str:
    """SQL for the slot of a row from its `_h`, by the routing table.

    It is arithmetic for the even routing of a new query, and an array of slots otherwise.
    """
    groups = len(table)
    group = group_expression(groups)
    if table == tuple(g * slots // groups for g in range(groups)):
        return f"cast(({group}) * {slots}L div {groups}L as int)"
    return f"get(array({','.join(map(str, table))}), cast({group} as int))"
