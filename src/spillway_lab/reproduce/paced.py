"""A finite input offered by the clock, and what a query makes of it meanwhile.

The input is files, each with the rows of one interval of event time of all streams. A file appears
when its interval is over by the clock, which starts when the query is ready. A batch takes one file,
so the backlog of a slow query waits in the source. After the last file the query runs until nothing
is on its way. Then Spark compares its results with those of a batch query: their number and the sum
of their hashes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.metrics.events import Event
from spillway.spark.api.query import Query
from spillway_lab.workloads.ebb import NAMES, SCHEMA, Ebb

#: Modification time of the first file; each later one is a second younger.
_FIRST_FILE_AT_S = 1_577_836_800
_LOOK_EVERY_S = 0.2
_PATIENCE_S = 300.0
#: Hashes are summed as numbers below this.
_HASHES = 1 << 32


@dataclass(frozen=True)
class Rows:
    """A multiset of rows: how many, and the sum of their hashes."""

    count: int
    checksum: int


def rows_of(results: DataFrame) -> Rows:
    """The multiset of results, which have a column for each stream."""
    hashed = F.pmod(F.xxhash64(*NAMES), F.lit(_HASHES))
    found = results.agg(F.count("*").alias("count"), F.sum(hashed).alias("checksum")).first()
    assert found is not None
    return Rows(int(found["count"]), int(found["checksum"] or 0))


@dataclass(frozen=True)
class Batch:
    """One batch, or a round after one."""

    #: Seconds of the clock at its end, and how long it took.
    second: float
    seconds: float
    batch: int
    rows_in: int
    rows_out: int
    #: Rows in the states of all slots after it, combinations included.
    state_rows: int
    #: Seconds that each slot was at work.
    slot_s: tuple[float, ...]

    @classmethod
    def of(cls, entry: Mapping[str, Any], begun_s: float) -> Batch:
        """From an entry of a query's progress."""
        started_s = datetime.fromisoformat(entry["timestamp"].replace("Z", "+00:00")).timestamp()
        took_s = entry["batchMs"] / 1e3
        return cls(
            round(started_s + took_s - begun_s, 3),
            took_s,
            entry["batchId"],
            sum(entry["rowsIn"].values()),
            entry["rowsOut"],
            entry["stateRows"],
            tuple(slot["busyMs"] / 1e3 for slot in entry["slots"]),
        )


@dataclass(frozen=True)
class Paced:
    """What a query made of an input offered by the clock."""

    batches: tuple[Batch, ...]
    events: tuple[Event, ...]
    rows: Rows

    def second_of(self, event: Event) -> float:
        """When an event was reported: at the end of its batch, or of the round after it."""
        return next(one.second for one in self.batches if one.batch >= event.batch)


class Offer:
    """An input as files, which can be offered any number of times."""

    def __init__(self, ebb: Ebb, step_s: float, folder: Path, *, at_once: bool = False) -> None:
        self.ebb = ebb
        #: Seconds of event time in a file.
        self.step_s = step_s
        self.at_once = at_once
        self._folder = folder
        folder.mkdir(parents=True)
        self._files = [self._write(number) for number in range(round(ebb.seconds / step_s))]

    def _write(self, number: int) -> Path:
        path = self._folder / f"{number:04d}.parquet"
        stretch = number * self.step_s, (number + 1) * self.step_s
        rows = pa.concat_tables(self.ebb.table(name, *stretch) for name in NAMES)
        pq.write_table(rows, path, coerce_timestamps="us")
        os.utime(path, (_FIRST_FILE_AT_S + number,) * 2)
        return path

    def batch(self, spark: SparkSession) -> dict[str, DataFrame]:
        """All rows, as batch DataFrames."""
        return _by_stream(spark.read.schema(SCHEMA).parquet(str(self._folder)))

    def stream(self, spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
        """The files that appear in a folder, one for each batch."""
        folder.mkdir(parents=True)
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return _by_stream(reader.parquet(str(folder)))

    def offered(self, second: float) -> int:
        """Rows offered up to a second of the clock."""
        return self.ebb.rows(min(len(self._files), int(second / self.step_s + 1e-9)) * self.step_s)

    @contextmanager
    def offering(self, folder: Path) -> Iterator[float]:
        """Makes the files appear in a folder by the clock, which starts now; returns the start.

        Without a clock all of them appear at once.
        """
        ended, begun_s = threading.Event(), time.time()

        def offer() -> None:
            for number, path in enumerate(self._files):
                due_s = begun_s + (0.0 if self.at_once else (number + 1) * self.step_s)
                if ended.wait(max(0.0, due_s - time.time())):
                    return
                # A link appears whole, with the time that the file has.
                os.link(path, folder / path.name)

        offering = threading.Thread(target=offer, name="offering", daemon=True)
        offering.start()
        try:
            yield begun_s
        finally:
            ended.set()
            offering.join()


def _by_stream(whole: DataFrame) -> dict[str, DataFrame]:
    # One source for all, because Spark polls each source before every batch.
    return {name: whole.where(F.col("stream") == name).drop("stream") for name in NAMES}


def joined(offer: Offer, spark: SparkSession, window_s: float) -> DataFrame:
    """The join of the whole input as a batch query: the ids of the rows, a column for each stream."""
    frames = [
        frame.select("k", F.col("id").alias(name), F.unix_micros("ts").alias(f"{name}_us"))
        for name, frame in offer.batch(spark).items()
    ]
    first, *others = frames
    for frame in others:
        first = first.join(frame, "k")
    times = [F.col(f"{name}_us") for name in NAMES]
    inside = F.greatest(*times) - F.least(*times) < F.lit(round(window_s * 1e6))
    return first.where(inside).select(*NAMES)


def watch(query: Query, offer: Offer, folder: Path) -> list[Batch]:
    """Offers the input to a query that reads the folder; returns its batches once all is processed."""
    entries: dict[tuple[int, int], dict[str, Any]] = {}

    def look() -> None:
        if (problem := query.exception()) is not None:
            raise problem
        recent = query.recentProgress
        entries.update({(one["batchId"], one["cleanupRound"]): one for one in recent})

    def taken() -> int:
        return sum(sum(one["rowsIn"].values()) for one in entries.values())

    _wait(lambda: "Waiting" in str(query.status["message"]), look)
    with offer.offering(folder) as begun_s:
        _wait(lambda: taken() >= offer.ebb.rows(offer.ebb.seconds), look)
    # State on its way between slots arrives, and rows that wait for it are processed.
    query.cleanup()
    look()
    return [Batch.of(entries[at], begun_s) for at in sorted(entries)]


def _wait(true: Callable[[], bool], look: Callable[[], None]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not true():
        if time.monotonic() > until:
            raise TimeoutError(f"a query did not finish in {_PATIENCE_S:g} seconds")
        time.sleep(_LOOK_EVERY_S)
        look()


def so_far(batches: Sequence[Batch], second: float) -> list[Batch]:
    """The batches that had ended by a second of the clock."""
    return [one for one in batches if one.second <= second]
