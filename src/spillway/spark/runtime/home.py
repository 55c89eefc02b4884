"""Where the tasks of a query find its state: directories of the host, and runs that are already open.

A Python worker keeps runs open from batch to batch, but only for one start of a query. The local
files of a query go when it ends, so a run still open from an earlier start would exist only in the
memory of that worker.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from spillway.faults import executor_pid
from spillway.redaction import learn_location
from spillway.settings import Adapt
from spillway.state.runs.durable import open_durable
from spillway.state.runs.names import new_attempt
from spillway.state.runs.private import is_usable, make_private
from spillway.state.runs.reaping import ABANDONED_AFTER_S, abandoned, dead_executors, hold, reap
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier, default_memory_root

#: For each query, the epoch of its start and the runs opened since.
_OPENED: dict[str, tuple[int, OpenRuns]] = {}
#: Number of queries whose open runs a worker keeps; the least recently used goes first.
_KEEP_QUERIES = 8


@dataclass(frozen=True)
class LocalFolders:
    """The local directories of one query on one host."""

    memory: Path
    disk: Path

    @classmethod
    def of(cls, query_id: str, adapt: Adapt) -> LocalFolders:
        """The directories that follow from the settings and the machine."""
        memory, disk = cls.roots(query_id, adapt)
        part = "" if adapt.share == "host" else f"executor-{executor_pid()}"
        return cls(memory / part / "memory", disk / part / "disk")

    @classmethod
    def roots(cls, query_id: str, adapt: Adapt) -> tuple[Path, Path]:
        """The directories with everything of the query on this host, from live and dead executors."""
        memory, disk = default_memory_root(), Path(tempfile.gettempdir())
        return (
            (Path(adapt.memory_dir) if adapt.memory_dir else _own(memory, query_id)) / query_id,
            (Path(adapt.disk_dir) if adapt.disk_dir else _own(disk, query_id)) / query_id,
        )


def default_parents() -> list[Path]:
    """Where local directories of this user's queries are, unless their settings say otherwise."""
    bases = {default_memory_root(), Path(tempfile.gettempdir())}
    own = f"spillway-{os.getuid()}"
    return sorted(path for base in bases for path in (base / own, *base.glob(f"{own}-*")))


def _own(base: Path, query_id: str) -> Path:
    """The directory of this user in a place where others write too.

    Another user can make one of that name first. Then the random id of the query gives a name that
    nobody can guess.
    """
    shared = base / f"spillway-{os.getuid()}"
    return shared if is_usable(shared) else base / f"spillway-{os.getuid()}-{query_id}"


@dataclass(frozen=True)
class Home:
    """What a task needs to open the state of one start of a query."""

    query_id: str
    #: Identifies the start.
    epoch: int
    durable: str = field(repr=False)
    adapt: Adapt

    def store(self, batch: int, slot: int) -> Store:
        """The tiers, as a task of a slot on this host sees them."""
        learn_location(self.durable)
        places = LocalFolders.of(self.query_id, self.adapt)
        for root in LocalFolders.roots(self.query_id, self.adapt):
            make_private(root)
            part = root if self.adapt.share == "host" else root / f"executor-{executor_pid()}"
            make_private(part)
            hold(part)
        memory, disk = LocalTier("memory", places.memory), LocalTier("disk", places.disk)
        durable = open_durable(self.durable, fsync=self.adapt.fsync)
        return Store(memory, disk, durable, self._open_runs(), batch, slot)

    def reap(self) -> None:
        """Removes the directories of queries and executors on this host that have ended."""
        roots, now_s = LocalFolders.roots(self.query_id, self.adapt), time.time()
        for gone in abandoned([root.parent for root in roots], now_s, ABANDONED_AFTER_S):
            reap(gone)
        for root in roots:
            for gone in dead_executors(root, now_s):
                reap(gone)

    def new_attempt(self) -> str:
        """A name for the files of one attempt."""
        return new_attempt(self.epoch)

    def _open_runs(self) -> OpenRuns:
        epoch, opened = _OPENED.pop(self.query_id, (0, OpenRuns()))
        if epoch != self.epoch:
            opened = OpenRuns()
        _OPENED[self.query_id] = (self.epoch, opened)
        while len(_OPENED) > _KEEP_QUERIES:
            del _OPENED[next(iter(_OPENED))]
        return opened
