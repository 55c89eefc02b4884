"""The durable tier on a local filesystem, which keeps written data in memory until a sync.

`write` creates a file under its final name: nothing refers to it before `sync`. `publish` and `replace`
write and sync a partial file first, give it its name in one step (durable/exclusive.py), and sync the
directory. A partial file has a random name, because two processes in two containers can have the same
process id.

A failed sync is final: the kernel reports a lost write once, and a second attempt would seem to
succeed. So the object rejects every later sync, and the next start opens a new one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from spillway.errors import StateError
from spillway.state.runs.durable.exclusive import give_name
from spillway.state.runs.durable.full import naming_full_disk
from spillway.state.runs.durable.syncing import (
    make_folder,
    sync_files,
    sync_folder,
    sync_folders,
)
from spillway.state.runs.names import partial_name

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class LocalDurable:
    """A local directory. Without `fsync`, the operating system decides when data is on disk."""

    def __init__(self, location: str, root: str, *, fsync: bool = True) -> None:
        self.location = location
        self.root = root
        self._fsync = fsync
        #: Files and directories to sync.
        self._files: list[str] = []
        self._folders: set[str] = set()
        self._lock = threading.Lock()
        #: Held during a whole sync, so that each caller returns after its files are durable.
        self._syncing = threading.Lock()
        self._failed: OSError | None = None

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """Writes a new file; after `sync`, it is durable."""
        path = self._path(name)
        self._write(path, data)
        if self._fsync:
            with self._lock:
                self._files.append(path)
                self._folders.add(os.path.dirname(path))

    def sync(self) -> None:
        """Makes all writes of this object durable: files, then their directories."""
        if not self._fsync:
            return
        with self._syncing:
            with self._lock:
                files, self._files = self._files, []
                folders, self._folders = self._folders, set()
            with self._confirmed():
                sync_files(files)
                sync_folders(sorted(folders))

    def read(self, name: str) -> pa.Buffer | None:
        """Returns the bytes of a file, or None if it is missing."""
        try:
            return pa.py_buffer(Path(self._path(name)).read_bytes())
        except FileNotFoundError:
            return None

    def publish(self, name: str, data: bytes) -> bool:
        """Writes a whole, durable file; returns False if the name is taken."""
        target = self._path(name)
        if os.path.exists(target):
            return False
        partial = self._partial(target, data)
        with naming_full_disk("durable", self.location):
            try:
                published = give_name(partial, target)
            except FileNotFoundError:
                # A start that has published the name has deleted the partial file.
                if not os.path.exists(target):
                    raise
                published = False
        self._sync_folder_of(target)
        return published

    def replace(self, name: str, data: bytes) -> None:
        """Writes a whole, durable file; replaces an older one atomically."""
        target = self._path(name)
        os.replace(self._partial(target, data), target)
        self._sync_folder_of(target)

    def delete(self, names: Sequence[str]) -> None:
        """Removes files; a missing file is not an error."""
        for name in names:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(self._path(name))

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, sorted."""
        try:
            with os.scandir(self._path(folder)) as found:
                return sorted(one.name for one in found if one.is_file())
        except FileNotFoundError:
            return []

    def local_path(self) -> Path | None:
        """Returns the directory."""
        return Path(self.root)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _partial(self, target: str, data: bytes) -> str:
        """Writes and syncs a file that has no name yet."""
        partial = partial_name(target)
        try:
            self._write(partial, data)
            if self._fsync:
                with self._confirmed():
                    sync_files([partial])
        except BaseException:
            with suppress(OSError):
                os.unlink(partial)
            raise
        return partial

    def _write(self, path: str, data: pa.Buffer | bytes) -> None:
        with naming_full_disk("durable", self.location):
            try:
                _write_file(path, data)
            except FileNotFoundError:
                make_folder(os.path.dirname(path), fsync=self._fsync)
                _write_file(path, data)

    def _sync_folder_of(self, path: str) -> None:
        if self._fsync:
            with self._confirmed():
                sync_folder(os.path.dirname(path))

    @contextmanager
    def _confirmed(self) -> Iterator[None]:
        """Turns a failed sync into a `StateError`: a caller must not take it for a lost answer."""
        if self._failed is not None:
            raise _not_synced(self.location, self._failed)
        try:
            yield
        except OSError as problem:
            self._failed = problem
            raise _not_synced(self.location, problem) from problem


def _write_file(path: str, data: pa.Buffer | bytes) -> None:
    with open(os.open(path, _CREATE, 0o666), "wb", buffering=0) as out:
        left = memoryview(data).cast("B")
        while left:
            left = left[out.write(left) :]


def _not_synced(location: str, problem: OSError) -> StateError:
    return StateError(
        f"the durable location {location!r} did not confirm that written data is on disk",
        detail=f"{problem.strerror or problem}; the query stopped without data loss and restarts "
        "from the last committed batch",
        hint="check the disk and the system log, then start the query again",
    )
