"""The local tiers of simulated hosts: files in memory, which a test can lose or damage."""

from __future__ import annotations

import tempfile
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

    def lose(self) -> None:
        """Loses everything."""
        self.files.clear()
        self._stamped.clear()

    def damage(self, name: str, *, tear: bool) -> None:
        """Changes a byte of a file, or cuts its end; removes its stamp."""
        data = bytearray(self.files[name].to_pybytes())
        if tear:
            data = data[: len(data) // 2]
        elif data:
            data[len(data) // 2] ^= 0x5A
        self.files[name] = pa.py_buffer(bytes(data))
        self._stamped.discard(name)


@dataclass
class Machine:
    """One machine: its tiers, and the runs that its worker process has open."""

    memory: MemoryTier = field(default_factory=lambda: MemoryTier("memory"))
    disk: MemoryTier = field(default_factory=lambda: MemoryTier("disk"))
    opened: OpenRuns = field(default_factory=OpenRuns)

    def restart_worker(self) -> None:
        """Starts a new worker process, without open runs."""
        self.opened = OpenRuns()

    def lose(self) -> None:
        """Replaces the machine: tiers and open runs are empty."""
        self.memory.lose()
        self.disk.lose()
        self.restart_worker()
