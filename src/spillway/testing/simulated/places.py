"""The local tiers of simulated hosts: files in memory, which a test can lose or damage."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from spillway.state.runs.store import OpenRuns
from spillway.state.runs.tiers import MEMORY, LocalTier


class MemoryTier(LocalTier):
    """A local tier without a directory."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, Path(tempfile.gettempdir()))
        self.files: dict[str, pa.Buffer] = {}
        self._stamped: set[str] = set()
        #: How often each name was written.
        self._versions: dict[str, int] = {}
        #: The last batch of each slot that ran here.
        self._slots: dict[int, int] = {}

    def write(self, name: str, data: pa.Buffer, checksum: int) -> None:
        """Stores a file that is known to be intact."""
        self.files[name] = data
        self._versions[name] = self._versions.get(name, 0) + 1
        self.stamp(name, checksum)

    def map(self, name: str) -> pa.Buffer | None:
        """Returns a file; None if the tier does not have it."""
        return self.files.get(name)

    def stamp(self, name: str, checksum: int) -> None:
        """Marks a file of the memory tier as intact."""
        if self.kind == MEMORY:
            self._stamped.add(name)

    def stamped(self, name: str, checksum: int) -> bool:
        """Whether a file is known to be intact."""
        return name in self._stamped

    def identity(self, name: str) -> tuple[int, int, int] | None:
        """Changes with every write, but not when the disk damages the file."""
        data = self.files.get(name)
        return None if data is None else (self._versions[name], 0, data.size)

    def delete(self, name: str) -> None:
        """Removes a file if it exists."""
        self.files.pop(name, None)
        self._stamped.discard(name)

    def names(self) -> list[str]:
        """Returns the names of all files."""
        return sorted(self.files)

    def mark_slot(self, slot: int, batch: int) -> None:
        """Notes that a slot runs on this host."""
        self._slots[slot] = batch

    def slots_since(self, batch: int) -> list[int]:
        """Returns the slots that have run on this host since a batch."""
        return [slot for slot, last in self._slots.items() if last >= batch]

    def lose(self) -> None:
        """Loses everything."""
        self.files.clear()
        self._stamped.clear()
        self._slots.clear()

    def damage(self, name: str, *, tear: bool) -> None:
        """Changes a byte of a file, or cuts its end; removes its stamp."""
        data = bytearray(self.files[name].to_pybytes())
        if tear:
            data = data[: len(data) // 2]
        elif data:
            data[len(data) // 2] ^= 0x5A
        self.files[name] = pa.py_buffer(bytes(data))
        self._stamped.discard(name)


class GatedTier(LocalTier):
    """The tier of one driver and its tasks: each write passes their gate first."""

    def __init__(self, tier: LocalTier, gate: Callable[[str], None]) -> None:
        super().__init__(tier.kind, tier.root)
        self._tier = tier
        self._gate = gate
        self.map, self.names, self.delete = tier.map, tier.names, tier.delete  # type: ignore[method-assign]
        self.stamp, self.stamped = tier.stamp, tier.stamped  # type: ignore[method-assign]
        self.identity = tier.identity  # type: ignore[method-assign]
        self.mark_slot, self.slots_since = tier.mark_slot, tier.slots_since  # type: ignore[method-assign]

    def write(self, name: str, data: pa.Buffer, checksum: int) -> None:
        """Writes a file if the gate permits; a process that dies leaves a part of it."""
        try:
            self._gate(self.kind)
        except Exception:
            raise
        except BaseException:
            self._tier.write(f".{name}.{checksum:016x}", data.slice(0, data.size // 2), 0)
            raise
        self._tier.write(name, data, checksum)


@dataclass
class Machine:
    """One machine: its tiers, and the runs that its worker process has open."""

    memory: MemoryTier = field(default_factory=lambda: MemoryTier("memory"))
    disk: MemoryTier = field(default_factory=lambda: MemoryTier("disk"))
    opened: OpenRuns = field(default_factory=OpenRuns)
    #: The batch of the last sweep, and the files that it kept.
    kept: tuple[int, frozenset[str]] = (-1, frozenset())
    #: The executors with tiers of their own.
    executors: dict[int, Machine] = field(default_factory=dict)

    def executor(self, number: int) -> Machine:
        """The tiers and the process of one executor."""
        return self.executors.setdefault(number, Machine())

    def places(self) -> list[Machine]:
        """The machine and its executors."""
        return [self, *self.executors.values()]

    def restart_worker(self) -> None:
        """Starts new worker processes, without open runs."""
        for place in self.places():
            place.opened = OpenRuns()

    def lose(self) -> None:
        """Replaces the machine: tiers and open runs are empty."""
        for place in self.places():
            place.memory.lose()
            place.disk.lose()
        self.restart_worker()
