"""A stream on three real executors, one of which can be disturbed, and the times of its batches.

The executors of a local cluster are pinned: two share a core; the third has one of its own, and twice
the groups. Busy processes on the third one's core leave that executor about a third of it; nothing
else changes.

The query is FLUX's operator: for every row a statistic over the last rows of its key, by a function slow
enough that batches wait for slots.

Known limitation: it needs Linux, which can pin processes, and two cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from spillway.errors import EnvironmentMissing
from spillway.metrics.events import GroupsReactivated
from spillway.spark.api.aggregations import function
from spillway.spark.api.query import Query
from spillway.spark.api.session import local_session
from spillway.spark.api.stream import stream
from spillway_lab.quiet import java_errors_to

EXECUTORS = 3
#: The groups of each slot at first, as weights: the third has a core of its own.
SHARES = (1, 1, 2)
GROUPS = 24
#: Processes that disturb the third executor.
BUSY = 2
KEYS = 6_000
ROWS = 40_000
#: Rows of a window, and how often the function goes over them.
LAST, TIMES = 8, 1600
_LOOK_EVERY_S = 0.05
_PATIENCE_S = 300.0


def heavy(columns: Mapping[str, pa.Array], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """A statistic that takes about as long for each row as FLUX's: 45 microseconds."""
    values = columns["value"].to_numpy(zero_copy_only=False).astype(np.float64)
    for _ in range(TIMES):
        values = np.sqrt(values * values + 1.0)
    return np.asarray(np.add.reduceat(values, offsets[:-1]), np.float64)


@dataclass(frozen=True)
class Measured:
    """One batch."""

    batch: int
    #: Seconds from its trigger to its end, and from the start of the run to its end.
    seconds: float
    second: float
    rows: int
    disturbed: bool
    #: By slot: rows taken, seconds at work, and rows that wait.
    slot_rows: tuple[int, ...]
    slot_s: tuple[float, ...]
    waiting: tuple[int, ...] = ()


@dataclass
class Recorded:
    """The batches of one query."""

    batches: list[Measured] = field(default_factory=list)
    #: Batches in which other slots took groups over.
    moved: list[int] = field(default_factory=list)
    #: Time between two triggers; 0: batches follow each other at once.
    trigger_s: float = 0.0
    exact: bool = False

    def part(self, first: int, last: int) -> list[Measured]:
        """The batches from one to another, both included."""
        return [one for one in self.batches if first <= one.batch <= last]


@contextmanager
def cluster(folder: Path) -> Iterator[SparkSession]:
    """A Spark session with three executors."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        raise EnvironmentMissing(
            "executors cannot be pinned to cores on this machine",
            hint="use Linux, and a machine with at least two cores",
        )
    with java_errors_to(folder / "spark.log"):
        spark = local_session(
            "spillway-disturbed",
            f"local-cluster[{EXECUTORS},1,1024]",
            {
                "spark.sql.shuffle.partitions": str(EXECUTORS),
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.local.dir": str(folder / "scratch"),
            },
        )
    try:
        yield spark
    finally:
        spark.stop()


class Disturbed:
    """One query on the cluster."""

    def __init__(
        self, spark: SparkSession, checkpoint: Path, trigger: str, adapt: Mapping[str, Any]
    ) -> None:
        rows = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", ROWS)
            .option("numPartitions", EXECUTORS)
            .load()
            .selectExpr(f"value % {KEYS} AS key", "value")
        )
        result = (
            stream(rows)
            .group_by("key")
            .last(LAST, by="value")
            .agg(statistic=function(heavy, "value", returns="double"))
        )
        self.query: Query = (
            result.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .adapt(slots=EXECUTORS, groups=GROUPS, shares=SHARES, **adapt)
            .trigger(processingTime=trigger)
            .start()
        )
        self._begun = time.monotonic()
        self._recorded = Recorded()
        self._disturbed = False
        self._core = -1

    def __enter__(self) -> Disturbed:
        return self

    def __exit__(self, *_: object) -> None:
        self.query.stop()

    def pin(self) -> None:
        """Gives each executor its core, after the first batches have started their processes."""
        self.until(2)
        first, second = sorted(os.sched_getaffinity(0))[:2]
        workers = [slot["worker"] for slot in self.query.recentProgress[-1]["slots"]]
        heaviest = int(np.argmax(SHARES))
        for slot, worker in enumerate(workers):
            executor = int(worker.split("/")[1])
            _pin(executor, second if slot == heaviest else first)
        self._core = second

    @contextmanager
    def disturbance(self) -> Iterator[None]:
        """Busy processes on the core of the third executor."""
        endless = f"import os\nos.sched_setaffinity(0, {{{self._core}}})\nwhile True: pass"
        busy = [subprocess.Popen([sys.executable, "-c", endless]) for _ in range(BUSY)]
        self._disturbed = True
        try:
            yield
        finally:
            self._take()
            self._disturbed = False
            for one in busy:
                one.kill()
                one.wait()

    @property
    def last(self) -> int:
        """The last batch that has ended."""
        return self._recorded.batches[-1].batch if self._recorded.batches else -1

    def until(self, batch: int) -> None:
        """Waits for a batch to end."""
        self.wait(lambda: self.last >= batch)

    def wait(self, true: Callable[[], bool]) -> None:
        """Waits until the query fulfils a condition."""
        ends = time.monotonic() + _PATIENCE_S
        while not true():
            if (problem := self.query.exception()) is not None:
                raise problem
            if time.monotonic() > ends:
                raise TimeoutError(f"after {_PATIENCE_S:g} seconds the query is at {self.last}")
            time.sleep(_LOOK_EVERY_S)
            self._take()

    def end(self) -> Recorded:
        """Ends the query after all rows that it has taken; returns the batches."""
        self.query.stop()
        self._take()
        state = self.query._loop.state
        self._recorded.exact = state.rows_in == (state.rows_out + state.spooled_rows,)
        moved = (e for e in self.query.events if isinstance(e, GroupsReactivated))
        self._recorded.moved = [event.batch for event in moved]
        return self._recorded

    def _take(self) -> None:
        took = {
            one["batchId"]: one["durationMs"]["triggerExecution"] / 1e3
            for one in self.query.sparkProgress
        }
        for entry in self.query.recentProgress:
            at = entry["batchId"]
            if at <= self.last or at not in took or entry["cleanupRound"]:
                continue
            slots: Sequence[dict[str, Any]] = entry["slots"]
            self._recorded.batches.append(
                Measured(
                    at,
                    took[at],
                    round(time.monotonic() - self._begun, 3),
                    sum(entry["rowsIn"].values()),
                    self._disturbed,
                    tuple(slot["rowsIn"] for slot in slots),
                    tuple(slot["busyMs"] / 1e3 for slot in slots),
                    tuple(slot["spooledRows"] for slot in slots),
                )
            )


def _pin(process: int, core: int) -> None:
    """Keeps a process, its threads and its children on a core."""
    for task in Path(f"/proc/{process}/task").iterdir():
        # A thread may have ended since.
        with suppress(OSError):
            os.sched_setaffinity(int(task.name), {core})
            for child in (task / "children").read_text().split():
                _pin(int(child), core)
