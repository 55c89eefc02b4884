"""The runs behind the figures: a workload as files, a query over them to its end, and its report.

`Input` writes the workload once, a file for each batch with the rows of all streams. So the input ends,
and cleanup follows. Until then groups stay where they are (`calm_batches` is longer than the run): the
papers bring nothing back at run time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.errors import QueryError
from spillway.spark.api.join import join
from spillway.spark.api.query import Query
from spillway_lab.reproduce.terms import GROUPS, Feed, Variant

_SCHEMA = "stream string, k bigint, v bigint, payload string"
#: Spark reads files in the order of their times; any start would do.
_FIRST_FILE_AT_S = 1_700_000_000
#: No run takes this long unless something hangs.
_PATIENCE_S = 900
#: Progress keeps 100 entries, and no batch takes less than a tenth of a second.
_LOOK_EVERY_S = 2
_SEED = 0


@dataclass(frozen=True)
class Run:
    """What one query did, batch by batch; plain numbers."""

    #: Rows produced up to the end of each batch.
    output: tuple[int, ...]
    #: Bytes in memory at the end of each batch, and the most that a check found during it.
    memory: tuple[int, ...]
    peak: tuple[int, ...]
    #: Spills that slots decided on by themselves.
    spills: int
    #: Rows made by cleanup, and the seconds it took.
    cleaned: int
    cleanup_s: float
    #: Bytes in memory of each slot, at the end of each batch.
    slots: tuple[tuple[int, ...], ...] = ()
    #: The batches, counted from 0, in which a relocation ended, and in which the coordinator made a
    #: slot spill.
    relocated: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    #: The cleanup of each slot.
    slot_cleaned: tuple[int, ...] = ()
    slot_cleanup_s: tuple[float, ...] = ()
    #: The time of all batches.
    processing_s: float = 0.0

    @property
    def total(self) -> int:
        """All rows, of run time and of cleanup."""
        return self.output[-1] + self.cleaned

    @property
    def fullest(self) -> tuple[int, ...]:
        """Bytes in memory of the fullest slot, at the end of each batch."""
        return tuple(max(sizes) for sizes in zip(*self.slots, strict=True))

    @property
    def balance(self) -> tuple[float, ...]:
        """M_least/M_max at the end of each batch."""
        held = zip(*self.slots, strict=True)
        return tuple(min(sizes) / max(sizes) if max(sizes) else 1.0 for sizes in held)

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, Any]]) -> Run:
        """From the entries of `query.recentProgress`, oldest first."""
        known = list(entries)
        batches = [entry for entry in known if not entry["cleanupRound"]]
        events = [(entry["batchId"], event) for entry in known for event in entry["events"]]
        cleanups = [event for _, event in events if "rows_out" in event]
        made = np.cumsum([entry["rowsOut"] - entry["rowsCleaned"] for entry in batches])
        # Rows of groups that were on their way when the input ended are joined in a later round.
        made[-1] += sum(e["rowsOut"] - e["rowsCleaned"] for e in known if e["cleanupRound"])
        return cls(
            tuple(made.tolist()),
            tuple(entry["memoryBytes"] for entry in batches),
            tuple(
                max(entry["memoryBytes"], *(slot["peakBytes"] for slot in entry["slots"]))
                for entry in batches
            ),
            sum(event["event"] == "spilled" for _, event in events),
            sum(entry["rowsCleaned"] for entry in known),
            sum(event["seconds"] for event in cleanups),
            _slot_bytes(batches),
            tuple(batch for batch, event in events if event["event"] == "groups-reactivated"),
            tuple(batch for batch, event in events if event["event"] == "force-spilled"),
            _by_slot(batches, cleanups, "rows_out"),
            _by_slot(batches, cleanups, "seconds"),
            sum(entry["batchMs"] for entry in batches) / 1e3,
        )


def _slot_bytes(batches: Iterable[Mapping[str, Any]]) -> tuple[tuple[int, ...], ...]:
    held = ([sum(slot["stateBytes"].values()) for slot in entry["slots"]] for entry in batches)
    return tuple(zip(*held, strict=True))


def _by_slot(
    batches: list[Mapping[str, Any]], events: Iterable[Mapping[str, Any]], what: str
) -> tuple[Any, ...]:
    sums = [0] * len(batches[0]["slots"])
    for event in events:
        sums[event["slot"]] += event[what]
    return tuple(sums)


class Input:
    """A workload as files, one for each batch of all streams.

    One source reads all streams: Spark polls each source before every batch, which for three of them
    takes as long as a small batch.
    """

    def __init__(self, spark: SparkSession, feed: Feed, folder: Path) -> None:
        self.feed = feed
        self._spark = spark
        self._folder = folder
        folder.mkdir(parents=True)
        last = feed.first + feed.batches - 1
        streams = feed.workload.batch(spark, feed.first, last)
        tables = [
            rows.sort("v").select(F.lit(name).alias("stream"), "*").toArrow()
            for name, rows in streams.items()
        ]
        for batch in range(feed.batches):
            path = folder / f"{batch:03d}.parquet"
            pq.write_table(pa.concat_tables(_part(t, batch, feed.batches) for t in tables), path)
            os.utime(path, (_FIRST_FILE_AT_S + batch,) * 2)

    def streams(self, files: int = 1) -> dict[str, DataFrame]:
        """The streams, with this many of their batches at a time."""
        reader = self._spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files)
        whole = reader.parquet(str(self._folder))
        return {
            name: whole.where(F.col("stream") == name).drop("stream")
            for name in self.feed.workload.names
        }

    def rows_expected(self) -> int:
        """The number of rows of the join without joining: products of the counts of each key."""
        names = self.feed.workload.names
        rows = self._spark.read.schema(_SCHEMA).parquet(str(self._folder))
        counts = rows.groupBy("k").pivot("stream", [*names]).count().na.fill(0)
        product = F.lit(1)
        for name in names:
            product = product * F.col(name)
        found = counts.agg(F.sum(product).alias("rows")).first()
        return int(found["rows"] or 0) if found is not None else 0


def _part(table: pa.Table, batch: int, batches: int) -> pa.Table:
    size = table.num_rows // batches
    return table.slice(batch * size, size)


def state_bytes(source: Input, checkpoint: Path) -> int:
    """The size of the whole input as state, if nothing leaves memory: measured in a single batch."""
    entries = _run(source, {"slots": 1, "groups": GROUPS}, checkpoint, files=source.feed.batches)
    return Run.of(entries).memory[-1]


def run_variant(source: Input, variant: Variant, limit_bytes: int | None, checkpoint: Path) -> Run:
    """One query over the whole input, including cleanup."""
    batches = source.feed.batches
    adapt: dict[str, Hashable] = {"slots": 1, "groups": GROUPS, **variant.adapt}
    if limit_bytes is not None:
        adapt |= {"memory": limit_bytes, "calm_batches": batches + 1, "seed": _SEED}
    if limit_bytes is not None and variant.forced_limits is not None:
        adapt["max_forced_spill"] = int(variant.forced_limits * limit_bytes)
    run = Run.of(_run(source, adapt, checkpoint))
    if len(run.output) != batches:
        raise QueryError(
            f"the run {variant.name} reported {len(run.output)} batches, not {batches}",
            hint="run the figure again; if this repeats, please report it",
        )
    return run


def _run(
    source: Input, adapt: Mapping[str, Hashable], checkpoint: Path, files: int = 1
) -> list[dict[str, Any]]:
    """A query over the input to its end; returns the progress of its batches and rounds."""
    query = (
        join(**source.streams(files)).on("k").select("a.k", "a.v")
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .adapt(**adapt)
        .trigger(availableNow=True)
        .start()
    )  # fmt: skip
    try:
        return _told(query)
    finally:
        query.stop()


def _told(query: Query) -> list[dict[str, Any]]:
    """All entries of a query's progress; the query itself keeps only the last ones."""
    entries: dict[tuple[int, int], dict[str, Any]] = {}
    until = time.monotonic() + _PATIENCE_S
    ended: bool | None = False
    while not ended:
        if time.monotonic() > until:
            raise QueryError(
                f"a run did not end in {_PATIENCE_S} seconds", hint="run `spillway doctor`"
            )
        ended = query.awaitTermination(_LOOK_EVERY_S)
        recent = query.recentProgress
        entries |= {(entry["batchId"], entry["cleanupRound"]): entry for entry in recent}
    return [entries[at] for at in sorted(entries)]
