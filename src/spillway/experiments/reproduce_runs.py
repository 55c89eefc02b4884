"""The runs behind the figures: a workload as files, a query over them to its end, what it reported.

The batches of the workload are written once, a file for each stream and minute, so that the input
ends and cleanup follows by itself. Groups stay where they are until then (`calm_batches` is longer
than the run): the papers bring nothing back at run time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.errors import QueryError
from spillway.experiments.reproduce_spec import GROUPS, MINUTES, Variant
from spillway.spark.join import join
from spillway.workloads.dcape import Dcape

_SCHEMA = "k bigint, v bigint, payload string"
#: Spark reads files in the order of their times; any beginning would do.
_FIRST_FILE_AT_S = 1_700_000_000
#: No run takes this long unless something hangs.
_PATIENCE_S = 900
_SEED = 0


@dataclass(frozen=True)
class Run:
    """What one query did, minute by minute; plain numbers."""

    #: Rows produced at run time until the end of each minute.
    output: tuple[int, ...]
    #: Bytes in memory at the end of each minute, and the most that a check found in it.
    memory: tuple[int, ...]
    peak: tuple[int, ...]
    spills: int
    #: Rows made by cleanup, and the seconds it took.
    cleaned: int
    cleanup_s: float

    @property
    def total(self) -> int:
        """All rows, of run time and of cleanup."""
        return self.output[-1] + self.cleaned

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, Any]]) -> Run:
        """From the entries of `query.recentProgress`."""
        known = list(entries)
        batches = [entry for entry in known if not entry["cleanupRound"]]
        events = [event for entry in known for event in entry["events"]]
        made = np.cumsum([entry["rowsOut"] - entry["rowsCleaned"] for entry in batches])
        return cls(
            tuple(made.tolist()),
            tuple(entry["memoryBytes"] for entry in batches),
            tuple(
                max(entry["memoryBytes"], *(slot["peakBytes"] for slot in entry["slots"]))
                for entry in batches
            ),
            sum(event["event"] == "spilled" for event in events),
            sum(entry["rowsCleaned"] for entry in known),
            sum(event["seconds"] for event in events if "rows_out" in event),
        )


class Input:
    """A workload as files, one for each stream and minute."""

    def __init__(self, spark: SparkSession, workload: Dcape, folder: Path) -> None:
        self._spark = spark
        self._folders = {name: folder / name for name in workload.names}
        for name, rows in workload.batch(spark, 0, MINUTES - 1).items():
            _write(rows, self._folders[name])

    def streams(self) -> dict[str, DataFrame]:
        """The streams, a minute at a time."""
        reader = self._spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        return {name: reader.parquet(str(folder)) for name, folder in self._folders.items()}

    def rows_expected(self) -> int:
        """The rows of the join, counted without joining: products of how often each key is there."""
        counts = [
            self._spark.read.schema(_SCHEMA).parquet(str(folder)).groupBy("k").agg(
                F.count("*").alias(name)
            )
            for name, folder in self._folders.items()
        ]  # fmt: skip
        whole, product = counts[0], F.lit(1)
        for other in counts[1:]:
            whole = whole.join(other, "k")
        for name in self._folders:
            product = product * F.col(name)
        found = whole.agg(F.sum(product).alias("rows")).first()
        return int(found["rows"] or 0) if found is not None else 0


def _write(rows: DataFrame, folder: Path) -> None:
    folder.mkdir(parents=True)
    table = rows.sort("v").toArrow()
    size = table.num_rows // MINUTES
    for minute in range(MINUTES):
        path = folder / f"{minute:03d}.parquet"
        pq.write_table(table.slice(minute * size, size), path)
        os.utime(path, (_FIRST_FILE_AT_S + minute,) * 2)


def run_variant(source: Input, variant: Variant, limit_bytes: int | None, checkpoint: Path) -> Run:
    """One query over the whole input, cleanup included."""
    joined = join(**source.streams()).on("k").select("a.k", "a.v")
    adapt: dict[str, object] = {"slots": 1, "groups": GROUPS}
    if variant.victims is not None:
        adapt |= {
            "memory": limit_bytes,
            "victims": variant.victims,
            "spill_fraction": variant.spill_fraction,
            "calm_batches": MINUTES + 1,
            "seed": _SEED,
        }
    query = (
        joined.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .adapt(**adapt)
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not query.awaitTermination(_PATIENCE_S):
            raise QueryError(
                f"the run {variant.name} did not end in {_PATIENCE_S} seconds",
                hint="run `spillway doctor`",
            )
    finally:
        query.stop()
    run = Run.of(query.recentProgress)
    if len(run.output) != MINUTES:
        # Progress keeps a bounded number of entries; rounds of cleanup must not crowd out batches.
        raise QueryError(f"the run {variant.name} told of {len(run.output)} batches, not {MINUTES}")
    return run
