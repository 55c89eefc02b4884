"""The store of a slot task: writes runs to tiers, and opens them from the nearest intact copy.

The store writes a run to one local tier, and to the durable tier if a manifest may name it. Reads
try the local tiers first. A process compares the checksum of a file on disk when it first opens it; of
one that is only in memory a stamp is enough (state/runs/tiers.py). If the file is missing there or
damaged, the store restores it from the durable copy. If that is damaged too, it raises an error: a
wrong result is never an option.

Each process keeps its opened runs, and releases those unused for a few batches, so that deleted
files free their memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from spillway.errors import StateError
from spillway.kernels.checksum import checksum
from spillway.rows.joining import is_wide
from spillway.state.runs.durable import DurableStore
from spillway.state.runs.run import Run, RunData, decode_run, describe_run, encode_run
from spillway.state.runs.tiers import LocalTier

#: Batches after which an unused opened run is released.
_KEEP_OPEN_BATCHES = 4
#: Compared files that a process remembers; more are compared again.
_KEEP_COMPARED = 65_536


@dataclass
class _Opened:
    data: RunData
    used_at: int


@dataclass
class OpenRuns:
    """The open runs of a process, with the batch that last used each."""

    entries: dict[str, _Opened] = field(default_factory=dict)
    #: Files on disk whose checksums this process has compared, as they were then.
    _compared: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def find(self, name: str, batch: int) -> RunData | None:
        """Returns an opened run, and marks it as used."""
        entry = self.entries.get(name)
        if entry is None:
            return None
        entry.used_at = batch
        return entry.data

    def keep(self, name: str, data: RunData, batch: int) -> None:
        """Caches an opened run."""
        self.entries[name] = _Opened(data, batch)

    def compared(self, name: str, identity: tuple[int, int, int] | None) -> bool:
        """Whether this process has found the file intact before, and nothing has changed it since."""
        return identity is not None and self._compared.get(name) == identity

    def remember(self, name: str, identity: tuple[int, int, int] | None) -> None:
        """Remembers a file that is intact."""
        if identity is not None:
            self._compared[name] = identity
        while len(self._compared) > _KEEP_COMPARED:
            del self._compared[next(iter(self._compared))]

    def forget(self, name: str) -> None:
        """Forgets a run whose files go."""
        self.entries.pop(name, None)
        self._compared.pop(name, None)

    def release(self, before: int) -> None:
        """Releases runs last used before a batch."""
        for name in [n for n, entry in self.entries.items() if entry.used_at < before]:
            del self.entries[name]


class Store:
    """Runs in their tiers, as one slot task sees them."""

    def __init__(
        self,
        memory: LocalTier,
        disk: LocalTier,
        durable: DurableStore,
        opened: OpenRuns,
        batch: int,
    ) -> None:
        self.memory = memory
        self.disk = disk
        self.durable = durable
        self.batch = batch
        self._opened = opened
        self._opened.release(batch - _KEEP_OPEN_BATCHES)
        #: Runs that were damaged or missing locally and came from the durable tier.
        self.restored: list[str] = []

    def write(
        self,
        name: str,
        batch: pa.RecordBatch,
        time_column: int | None,
        *,
        in_memory: bool,
        durable: bool = True,
    ) -> tuple[Run, RunData]:
        """Writes sorted rows as a run, durable if a manifest may name it; returns it opened."""
        assert not is_wide(batch), "runs have 32-bit offsets (rows/joining.py)"
        buffer = encode_run(batch)
        data = RunData(batch, time_column)
        tier = self.memory if in_memory else self.disk
        run = describe_run(name, data, buffer, tier.kind)
        if durable:
            self.durable.write(f"runs/{name}", buffer)
        tier.write(name, buffer, run.checksum)
        return run, data

    def open(self, run: Run, time_column: int | None) -> RunData:
        """Opens a run from the nearest tier with an intact copy."""
        data = self._opened.find(run.name, self.batch)
        if data is None:
            data = RunData(decode_run(self._fetch(run)), time_column)
            self._opened.keep(run.name, data, self.batch)
        return data

    def forget(self, name: str) -> None:
        """Removes the local copies of a run that no manifest names any more."""
        self._opened.forget(name)
        self.memory.delete(name)
        self.disk.delete(name)

    def _fetch(self, run: Run) -> pa.Buffer:
        for tier in (self.memory, self.disk):
            buffer = tier.map(run.name)
            if buffer is None or buffer.size != run.size_bytes:
                continue
            identity = tier.identity(run.name)
            if tier.stamped(run.name, run.checksum) or self._opened.compared(run.name, identity):
                return buffer
            if _intact(buffer, run):
                tier.stamp(run.name, run.checksum)
                self._opened.remember(run.name, identity)
                return buffer
        buffer = self.durable.read(f"runs/{run.name}")
        if buffer is None or not _intact(buffer, run):
            raise StateError(
                f"run {run.name} is {'missing' if buffer is None else 'damaged'} in the durable tier",
                detail=f"looked in {self.durable.location}; expected {run.size_bytes} bytes with "
                f"checksum {run.checksum:016x}",
                hint=(
                    "restore the checkpoint directory from a backup; without this file the "
                    "query cannot give exact results"
                ),
            )
        self.restored.append(run.name)
        home = self.disk if run.tier == self.disk.kind else self.memory
        home.write(run.name, buffer, run.checksum)
        return home.map(run.name) or buffer


def _intact(buffer: pa.Buffer, run: Run) -> bool:
    return buffer.size == run.size_bytes and checksum(buffer) == run.checksum
