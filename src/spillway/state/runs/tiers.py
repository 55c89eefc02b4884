"""The local tiers of a run: memory and disk.

*memory* is a directory in shared memory, *disk* a local scratch directory; both are caches that a
host may lose. The durable tier (state/runs/durable) has every run that a committed manifest names.
Names are unique to the attempt that wrote them, so a named file is complete and needs no rename.

A file of the memory tier that was written here, or found intact, is *stamped*: its modification time
becomes a number made from its checksum and the machine's boot id. A later write changes that time, and a
machine crash changes the boot id. Nobody else can write to the directory (state/runs/private.py). So a
stamped file is intact, and a process that opens a gigabyte of state saves seconds of checksums. A disk
can change what it holds: a process compares the checksum of its files when it first opens them
(state/runs/store.py). That includes the files of a memory tier that is on a disk because shared memory
is small, or because the user said so (state/runs/volatile.py).
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa

from spillway.state.runs.durable.full import naming_full_disk
from spillway.state.runs.private import check_private, make_private
from spillway.state.runs.volatile import is_volatile

MEMORY = "memory"
#: By default, smaller shared memory is not used: containers often give 64 MB.
LEAST_SHARED_MEMORY_BYTES = 1 << 30
#: Stamps are before 2001, when Spillway wrote no files.
_STAMPS_NS = 10**18
#: The name of the mark of a slot, before its number.
_SLOT = "slot-"


class LocalTier:
    """A local directory of run files: the memory or the disk tier."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind = kind
        self.root = root
        #: Whether the directory was found private.
        self._private = False
        #: Whether it is only in memory; None: nobody has asked.
        self._volatile: bool | None = None
        #: Files that `map` copied into the heap, because the process could not map them.
        self.copies = 0

    def write(self, name: str, data: pa.Buffer, checksum: int) -> None:
        """Writes a file to the tier, stamped; readers see all of it or nothing."""
        target = self.root / name
        partial = self.root / f".{name}.{uuid4().hex[:12]}"
        with naming_full_disk(self.kind, str(self.root)):
            try:
                # Another process may remove the directory when a query ends.
                make_private(self.root)
                _write(partial, data)
                self.stamp(partial.name, checksum)
                partial.replace(target)
            except OSError:
                partial.unlink(missing_ok=True)
                raise

    def map(self, name: str) -> pa.Buffer | None:
        """Maps the file into memory; returns None if the tier does not have it."""
        if not self._is_private():
            return None
        try:
            with pa.memory_map(str(self.root / name)) as source:
                return source.read_buffer()
        except FileNotFoundError:
            return None
        except OSError:
            # The process may have no map left (vm.max_map_count). A copy gives the same rows, but no
            # other process shares its memory; so it is counted.
            return self._copied(name)

    def _copied(self, name: str) -> pa.Buffer | None:
        try:
            found = pa.py_buffer((self.root / name).read_bytes())
        except OSError:
            return None
        self.copies += 1
        return found

    def stamp(self, name: str, checksum: int) -> None:
        """Marks a file that is only in memory as intact."""
        if self._is_volatile():
            with suppress(OSError):
                _stamp(self.root / name, checksum)

    def stamped(self, name: str, checksum: int) -> bool:
        """Whether a file is known to be intact without reading it."""
        if not self._is_volatile():
            return False
        stamp_ns = _stamp_ns(checksum)
        try:
            return stamp_ns is not None and (self.root / name).stat().st_mtime_ns == stamp_ns
        except OSError:
            return False

    def identity(self, name: str) -> tuple[int, int, int] | None:
        """Returns what changes with any ordinary change of a file; None if it is missing."""
        try:
            found = (self.root / name).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def delete(self, name: str) -> None:
        """Removes a file. A missing file is not an error, since deletions repeat after a crash."""
        (self.root / name).unlink(missing_ok=True)

    def _is_private(self) -> bool:
        """Whether the directory is there and private; rejects one that is not private."""
        if not self._private and os.path.lexists(self.root):
            check_private(self.root)
            self._private = True
        return self._private

    def mark_slot(self, slot: int, batch: int) -> None:
        """Notes that a slot runs on this host."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        # Without the mark, files may be deleted that the slot then restores.
        with suppress(OSError):
            make_private(self.root)
            with open(os.open(self.root / f"{_SLOT}{slot}", flags, 0o600), "wb") as mark:
                mark.write(b"%d" % batch)

    def slots_since(self, batch: int) -> list[int]:
        """Returns the slots that have run on this host since a batch."""
        found = []
        for name in self.names():
            slot = name.removeprefix(_SLOT)
            with suppress(OSError, ValueError):
                if slot.isdigit() and slot != name and self._marked(name) >= batch:
                    found.append(int(slot))
        return found

    def _marked(self, name: str) -> int:
        return int((self.root / name).read_text())

    def _is_volatile(self) -> bool:
        if self.kind != MEMORY:
            return False
        if self._volatile is None:
            self._volatile = is_volatile(self.root)
        return self._volatile

    def names(self) -> list[str]:
        """Returns the names of all files in the tier."""
        return sorted(os.listdir(self.root)) if self.root.is_dir() else []


def _write(path: Path, data: pa.Buffer) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb", buffering=0) as out:
        left = memoryview(data).cast("B")
        while left:
            left = left[out.write(left) :]


def _stamp(path: Path, checksum: int) -> None:
    stamp_ns = _stamp_ns(checksum)
    if stamp_ns is not None:
        os.utime(path, ns=(stamp_ns, stamp_ns))


def _stamp_ns(checksum: int) -> int | None:
    """Returns a time within about 30 years after 1970; None if the boot id is unknown."""
    boot = _boot()
    return None if boot is None else (checksum ^ boot) % _STAMPS_NS


@lru_cache(maxsize=1)
def _boot() -> int | None:
    try:
        return UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).int
    except (OSError, ValueError):
        return None


def default_memory_root() -> Path:
    """Returns shared memory if it is large enough, otherwise a scratch directory."""
    shared = Path("/dev/shm")
    try:
        stats = os.statvfs(shared)
    except OSError:
        return Path(tempfile.gettempdir())
    large_enough = stats.f_blocks * stats.f_frsize >= LEAST_SHARED_MEMORY_BYTES
    return shared if large_enough and os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
