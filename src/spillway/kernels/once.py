"""`Once`: of several processes that need the same thing, one makes it, and the others wait for it.

A lock on a file says that a process is making the thing. The lock ends with the process, and waiting is
bounded. So a process that dies, hangs or cannot lock costs time, or work done twice, and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

Thing = TypeVar("Thing")

#: The slowest kernel takes three seconds to compile; on a busy machine, several times that.
PATIENCE_S = 20.0
_LOOK_EVERY_S = 0.02
#: The locks that this process holds: it must not wait for itself.
_HELD: dict[Path, int] = {}


class Once:
    """One thing that a process makes for all."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock

    def found(self, find: Callable[[], Thing | None]) -> Thing | None:
        """The thing, perhaps after another process has made it; None: this process must make it."""
        found = find()
        if found is not None or self._lock in _HELD:
            return found
        ends = time.monotonic() + PATIENCE_S
        while not self._begins() and time.monotonic() < ends:
            time.sleep(_LOOK_EVERY_S)
        # Whoever had the lock may have made it.
        found = find()
        if found is not None:
            self._ends()
        return found

    @contextmanager
    def made(self) -> Iterator[None]:
        """Around the end of making it: after this, others find it."""
        try:
            yield
        finally:
            self._ends()

    def _begins(self) -> bool:
        """Takes the lock; false if another process has it, true if nothing can be locked here."""
        try:
            file = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except OSError:
            os.close(file)
            return True
        _HELD[self._lock] = file
        return True

    def _ends(self) -> None:
        if (file := _HELD.pop(self._lock, None)) is not None:
            with suppress(OSError):
                os.close(file)
