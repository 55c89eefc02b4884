"""The three tiers of a run: memory, disk and durable.

*memory* is a directory in shared memory, *disk* a local scratch directory; both are caches that a
host may lose. *durable* is the checkpoint's filesystem and has every run that a committed manifest
names. Names are unique to the attempt that wrote them, so a named file is complete and needs no
rename.

A local file that was written here, or found intact, is *stamped*: its modification time becomes a
number made from its checksum and the machine's boot id. A later write changes that time, and a
machine crash changes the boot id. So a stamped file is intact without a read. Otherwise a process
that opens a gigabyte of state would spend seconds on checksums.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import pyarrow as pa
from pyarrow import fs

from spillway.errors import StateError

#: By default, smaller shared memory is not used: containers often give 64 MB.
LEAST_SHARED_MEMORY_BYTES = 1 << 30
#: Stamps are before 2001, when Spillway wrote no files.
_STAMPS_NS = 10**18


class LocalTier:
    """A local directory of run files: the memory or the disk tier."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind = kind
        self.root = root

    def write(self, name: str, data: pa.Buffer, checksum: int) -> None:
        """Writes a file to the tier, stamped; readers see all of it or nothing."""
        target = self.root / name
        partial = self.root / f".{name}.{os.getpid()}"
        with naming_full_disk(self.kind, str(self.root)):
            try:
                self.root.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(memoryview(data))
                _stamp(partial, checksum)
                partial.replace(target)
            except OSError:
                partial.unlink(missing_ok=True)
                raise

    def map(self, name: str) -> pa.Buffer | None:
        """Maps the file into memory; returns None if the tier does not have it."""
        try:
            with pa.memory_map(str(self.root / name)) as source:
                return source.read_buffer()
        except (FileNotFoundError, OSError):
            return None

    def stamp(self, name: str, checksum: int) -> None:
        """Marks a file as intact."""
        with suppress(OSError):
            _stamp(self.root / name, checksum)

    def stamped(self, name: str, checksum: int) -> bool:
        """Whether a file is known to be intact without reading it."""
        stamp_ns = _stamp_ns(checksum)
        try:
            return stamp_ns is not None and (self.root / name).stat().st_mtime_ns == stamp_ns
        except OSError:
            return False

    def delete(self, name: str) -> None:
        """Removes a file. A missing file is not an error, since deletions repeat after a crash."""
        (self.root / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Returns the names of all files in the tier."""
        return sorted(os.listdir(self.root)) if self.root.is_dir() else []


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


class DurableTier:
    """A directory on any filesystem that pyarrow supports."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._fs, self.root = open_filesystem(location)

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """Writes a file that no manifest names yet."""
        with naming_full_disk("durable", self.location):
            try:
                self._write(name, data)
            except FileNotFoundError:
                self._fs.create_dir(self._path(name).rpartition("/")[0], recursive=True)
                self._write(name, data)

    def read(self, name: str) -> pa.Buffer | None:
        """Returns the bytes of a file, or None if it is missing."""
        try:
            with self._fs.open_input_file(self._path(name)) as source:
                return source.read_buffer()
        except FileNotFoundError:
            return None

    def publish(self, name: str, data: bytes) -> bool:
        """Writes a file that must appear whole and only once; False if it already exists."""
        if self._fs.get_file_info(self._path(name)).type != fs.FileType.NotFound:
            return False
        partial = f"{name}.{os.getpid()}.partial"
        self.write(partial, data)
        if isinstance(self._fs, fs.LocalFileSystem):
            # A hard link, unlike a rename, does not replace a file that another process published.
            try:
                os.link(self._path(partial), self._path(name))
            except FileExistsError:
                return False
            finally:
                os.unlink(self._path(partial))
        else:
            self._fs.move(self._path(partial), self._path(name))
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Writes a file, atomically replacing an older one."""
        partial = f"{name}.{os.getpid()}.partial"
        self.write(partial, data)
        self._fs.move(self._path(partial), self._path(name))

    def delete(self, name: str) -> None:
        """Removes a file; a missing file is not an error."""
        try:
            self._fs.delete_file(self._path(name))
        except FileNotFoundError:
            return

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, sorted."""
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        return sorted(
            info.base_name
            for info in self._fs.get_file_info(selector)
            if info.type == fs.FileType.File and not info.base_name.endswith(".partial")
        )

    def local_path(self) -> Path | None:
        """Returns the directory, if it is local."""
        return Path(self.root) if isinstance(self._fs, fs.LocalFileSystem) else None

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _write(self, name: str, data: pa.Buffer | bytes) -> None:
        with self._fs.open_output_stream(self._path(name)) as out:
            out.write(data)


def open_filesystem(location: str) -> tuple[fs.FileSystem, str]:
    """Returns the filesystem of a path or URI, and the path in it.

    Example:
        >>> open_filesystem("/tmp/ck")[1]
        '/tmp/ck'
    """
    if not urlsplit(location).scheme or re.match(r"^[A-Za-z]:[\\/]", location):
        return fs.LocalFileSystem(), os.path.abspath(location)
    # Hadoop's names for object stores, and its file:/ with one slash, mean the same location.
    uri = re.sub(r"^s3[an]://", "s3://", location)
    uri = re.sub(r"^file:/+", "file:///", uri)
    try:
        found, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as problem:
        raise not_opened(location, problem) from problem
    return found, path.rstrip("/")


def not_opened(location: str, problem: Exception) -> StateError:
    """Returns the error for a durable location that is missing or unreachable."""
    return StateError(
        f"the durable location {location!r} cannot be opened",
        detail=str(problem),
        hint="use a local path, file://, hdfs://, s3:// or gs:// that pyarrow can reach",
    )


def default_memory_root() -> Path:
    """Returns shared memory if it is large enough, otherwise a scratch directory."""
    shared = Path("/dev/shm")
    try:
        stats = os.statvfs(shared)
    except OSError:
        return Path(tempfile.gettempdir())
    large_enough = stats.f_blocks * stats.f_frsize >= LEAST_SHARED_MEMORY_BYTES
    return shared if large_enough and os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


@contextmanager
def naming_full_disk(kind: str, where: str) -> Iterator[None]:
    """Turns "no space left" into an error that says which tier is full and what to do."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise StateError(
            f"the {kind} tier at {where} is full",
            detail=(
                f"{problem.strerror or problem}; the query stopped without data loss and "
                "restarts from the last committed batch"
            ),
            hint="free space there, or choose a larger location with "
            + {
                "memory": ".adapt(memory=..., memory_dir=...)",
                "disk": ".adapt(disk_dir=...)",
            }.get(kind, "the checkpointLocation option or .adapt(durable=...)")
            + ", then start the query again",
        ) from problem
