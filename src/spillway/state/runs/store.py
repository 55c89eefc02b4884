"""The store of a slot task: writes a run to its tiers, opens it from the nearest that has it whole.

A run is written to the durable tier and to one local tier; one that no manifest will name, and that only
the attempt itself reads again, to the local tier alone. Reading asks the local tiers first; a
file that is missing there, or whose checksum does not fit, is fetched from the durable tier and put
back. If the durable copy is damaged too, the state is refused: a wrong answer is never an option.

Opened runs are kept per process. A run that no task of the process has used for a few batches is let
go, so that deleted files give their memory back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from spillway.errors import StateError
from spillway.kernels.checksum import checksum
from spillway.state.runs.run import Run, RunData, decode_run, describe_run, encode_run
from spillway.state.runs.tiers import DurableTier, LocalTier

#: Uses of other runs after which an unused opened run is let go, counted in batches of the store.
_KEEP_OPEN_BATCHES = 4


@dataclass
class _Opened:
    data: RunData
    used_at: int


@dataclass
class OpenRuns:
    """The runs a process has open, with the batch that last used each."""

    entries: dict[str, _Opened] = field(default_factory=dict)

    def find(self, name: str, batch: int) -> RunData | None:
        """An opened run, marked as used."""
        entry = self.entries.get(name)
        if entry is None:
            return None
        entry.used_at = batch
        return entry.data

    def keep(self, name: str, data: RunData, batch: int) -> None:
        """Remembers an opened run."""
        self.entries[name] = _Opened(data, batch)

    def release(self, before: int) -> None:
        """Lets go of runs last used before a batch."""
        for name in [n for n, entry in self.entries.items() if entry.used_at < before]:
            del self.entries[name]


class Store:
    """Runs in their tiers, as one slot task sees them."""

    def __init__(
        self, memory: LocalTier, disk: LocalTier, durable: DurableTier, opened: OpenRuns, batch: int
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
        """Makes a run of sorted rows, local, durable if a manifest may name it; returns it opened."""
        buffer = encode_run(batch)
        data = RunData(batch, time_column)
        tier = self.memory if in_memory else self.disk
        run = describe_run(name, data, buffer, tier.kind)
        if durable:
            self.durable.write(f"runs/{name}", buffer)
        tier.write(name, buffer, run.checksum)
        return run, data

    def open(self, run: Run, time_column: int | None) -> RunData:
        """An opened run, from the nearest tier that has it whole."""
        data = self._opened.find(run.name, self.batch)
        if data is None:
            data = RunData(decode_run(self._fetch(run)), time_column)
            self._opened.keep(run.name, data, self.batch)
        return data

    def forget(self, name: str) -> None:
        """Removes the local copies of a run that no manifest names any more."""
        self._opened.entries.pop(name, None)
        self.memory.delete(name)
        self.disk.delete(name)

    def _fetch(self, run: Run) -> pa.Buffer:
        for tier in (self.memory, self.disk):
            buffer = tier.map(run.name)
            if buffer is None or buffer.size != run.size_bytes:
                continue
            if tier.stamped(run.name, run.checksum):
                return buffer
            if _intact(buffer, run):
                tier.stamp(run.name, run.checksum)
                return buffer
        buffer = self.durable.read(f"runs/{run.name}")
        if buffer is None or not _intact(buffer, run):
            raise StateError(
                f"run {run.name} is {'missing' if buffer is None else 'damaged'} in the durable tier",
                detail=f"looked in {self.durable.location}; expected {run.size_bytes} bytes with "
                f"checksum {run.checksum:016x}",
                hint="restore the checkpoint directory from a copy; the query cannot continue "
                "exactly without this file",
            )
        self.restored.append(run.name)
        home = self.disk if run.tier == self.disk.kind else self.memory
        home.write(run.name, buffer, run.checksum)
        return home.map(run.name) or buffer


def _intact(buffer: pa.Buffer, run: Run) -> bool:
    return buffer.size == run.size_bytes and checksum(buffer) == run.checksum
