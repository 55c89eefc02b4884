"""Finds and removes local directories of queries whose processes are gone.

A process that uses a directory of a query holds a shared lock on its file `in-use`, and touches the file
with every batch. The kernel drops the lock when the process ends, even after a kill. So a directory
without a lock, and without a touch for a while, is abandoned. The lock belongs to the file, not to a
process id: equal ids in containers that share a directory do no harm.

Local tiers are caches. A query that rests for long may lose its directory. That costs a read of the
durable tier, and no row.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

IN_USE = "in-use"
#: The name of the directory of an executor, before its process id.
_EXECUTOR = "executor-"
#: Spark ends idle Python workers after a minute; a query may rest a while longer.
ABANDONED_AFTER_S = 3600.0
#: Directories whose locks this process holds, with the handles. The process that made a handle counts: a
#: fork shares it.
_HELD: dict[tuple[int, Path], int] = {}


@dataclass(frozen=True)
class Abandoned:
    """A directory that no process uses."""

    path: Path
    bytes: int
    files: int
    #: Since its last use.
    idle_s: float


def hold(directory: Path) -> None:
    """Marks a directory as used by this process, until it ends or the directory goes."""
    key, mark = (os.getpid(), directory), directory / IN_USE
    _release_unused()
    with suppress(OSError):
        if key in _HELD and os.fstat(_HELD[key]).st_nlink:
            os.utime(_HELD[key])
            return
    if (old := _HELD.pop(key, None)) is not None:
        os.close(old)
    # Without the lock the directory may be reaped early, which is safe.
    with suppress(OSError):
        handle = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _HELD[key] = handle
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.utime(handle)


def _release_unused() -> None:
    """Releases directories that are gone, or that this process has not touched for long."""
    for key, handle in list(_HELD.items()):
        with suppress(OSError):
            facts = os.fstat(handle)
            if facts.st_nlink and time.time() - facts.st_mtime < ABANDONED_AFTER_S:
                continue
        os.close(_HELD.pop(key))


def release(directory: Path) -> None:
    """Ends the use of a directory by this process."""
    if (handle := _HELD.pop((os.getpid(), directory), None)) is not None:
        os.close(handle)


def abandoned(parents: Iterable[Path], now_s: float, after_s: float) -> list[Abandoned]:
    """The abandoned directories of queries, and of executors in them, directly below `parents`."""
    found = []
    for parent in parents:
        for path in _directories(parent):
            found += _looked_at(path, now_s, after_s)
    return found


def dead_executors(root: Path, now_s: float) -> list[Abandoned]:
    """The directories of executors, below that of one query, whose processes have ended.

    Nobody will use such a directory again, so it need not be idle for long. An executor of another
    container that shares the directory may seem dead while none of its workers runs; then it loses a
    cache.
    """
    found = []
    for path in _directories(root):
        pid = path.name.removeprefix(_EXECUTOR)
        if pid.isdigit() and pid != path.name and not _runs(int(pid)):
            found += _looked_at(path, now_s, 0.0)
    return found


def reap(gone: Abandoned) -> bool:
    """Removes an abandoned directory; False if it is used again, or cannot be removed."""
    with suppress(OSError):
        handle = os.open(gone.path / IN_USE, os.O_RDWR | os.O_CLOEXEC)
        try:
            # Held until the directory is gone: a process that comes meanwhile does not wait, and creates
            # the directory again.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(gone.path)
            return True
        finally:
            os.close(handle)
    return False


def _looked_at(path: Path, now_s: float, after_s: float) -> list[Abandoned]:
    if (idle_s := _idle_s(path, now_s)) is not None:
        if idle_s < after_s:
            return []
        sizes = [size for one in path.rglob("*") if (size := _size(one)) is not None]
        return [Abandoned(path, sum(sizes), len(sizes), idle_s)]
    # With share="executor" the marks are one level below.
    parts = [one for one in _directories(path) if one.name.startswith(_EXECUTOR)]
    return [one for part in parts for one in _looked_at(part, now_s, after_s)]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _size(path: Path) -> int | None:
    """The size of a file; None for a directory or a file that is gone."""
    with suppress(OSError):
        facts = path.lstat()
        return facts.st_size if stat.S_ISREG(facts.st_mode) else None
    return None


def _idle_s(path: Path, now_s: float) -> float | None:
    """Seconds since the last use; 0 while a process holds it, None if it has no mark."""
    try:
        handle = os.open(path / IN_USE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return now_s - os.fstat(handle).st_mtime
    except OSError:
        return 0.0
    finally:
        os.close(handle)


def _directories(parent: Path) -> list[Path]:
    try:
        found = [Path(one.path) for one in os.scandir(parent) if one.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(path for path in found if path.lstat().st_uid == os.getuid())
