"""Where the tasks of a query find its state: directories of the host, and runs that are already open.

A Python worker keeps runs open from batch to batch, but only for one start of a query. When a query
ends, its local files go. A run that a worker of an earlier start still had open would be in no
directory, only in the memory of that worker.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from spillway.faults import executor_pid
from spillway.settings import Adapt
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import DurableTier, LocalTier, default_memory_root

#: For each query, its start and the runs opened since.
_OPENED: dict[str, tuple[str, OpenRuns]] = {}
#: Number of queries whose open runs a worker keeps; the least recently used goes first.
_KEEP_QUERIES = 8


@dataclass(frozen=True)
class Places:
    """The local directories of one query on one host."""

    memory: Path
    disk: Path

    @classmethod
    def of(cls, query_id: str, adapt: Adapt) -> Places:
        """The directories that follow from the settings and the machine."""
        memory, disk = cls.roots(query_id, adapt)
        part = "" if adapt.share == "host" else f"executor-{executor_pid()}"
        return cls(memory / part / "memory", disk / part / "disk")

    @classmethod
    def roots(cls, query_id: str, adapt: Adapt) -> tuple[Path, Path]:
        """The directories with everything of the query on this host, from live and dead executors."""
        owner = f"spillway-{os.getuid()}"
        memory = Path(adapt.memory_dir) if adapt.memory_dir else default_memory_root() / owner
        disk = Path(adapt.disk_dir) if adapt.disk_dir else Path(tempfile.gettempdir()) / owner
        return memory / query_id, disk / query_id


@dataclass(frozen=True)
class Home:
    """What a task needs to open the state of one start of a query."""

    query_id: str
    #: Identifies the start.
    start: str
    durable: str
    adapt: Adapt

    def store(self, batch: int) -> Store:
        """The tiers, as a task on this host sees them."""
        places = Places.of(self.query_id, self.adapt)
        memory, disk = LocalTier("memory", places.memory), LocalTier("disk", places.disk)
        return Store(memory, disk, DurableTier(self.durable), self._opened(), batch)

    def _opened(self) -> OpenRuns:
        start, opened = _OPENED.pop(self.query_id, ("", OpenRuns()))
        if start != self.start:
            opened = OpenRuns()
        _OPENED[self.query_id] = (self.start, opened)
        while len(_OPENED) > _KEEP_QUERIES:
            del _OPENED[next(iter(_OPENED))]
        return opened
