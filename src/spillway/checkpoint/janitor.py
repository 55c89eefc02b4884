"""Deletes unused files while batches run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.errors import SpillwayError

#: Names that wait at most. A batch leaves a few for each slot, so this is an hour of a stuck store.
MOST_WAITING = 100_000
#: Names in one call; the store deletes them together or in parallel.
_AT_ONCE = 1_000


class Janitor:
    """Deletes from the durable tier in its own thread, so that a slow store delays no batch.

    What finds no room, or fails, stays: a sweep deletes it, at the next start at the latest. A leftover
    file costs space, not correctness.
    """

    def __init__(self, checkpoint: Checkpoint, most_waiting: int = MOST_WAITING) -> None:
        self._checkpoint = checkpoint
        self._most = most_waiting
        self._names: deque[str] = deque()
        self._left = 0
        self._closing = False
        self._orphans: Callable[[], Sequence[str]] | None = None
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="spillway-janitor", daemon=True)
        self._thread.start()

    def discard(self, names: Sequence[str]) -> None:
        """Queues files for deletion; returns at once."""
        with self._change:
            room = max(0, self._most - len(self._names))
            self._names.extend(names[:room])
            self._left += len(names[room:])
            self._change.notify()

    def sweep(self, orphans: Callable[[], Sequence[str]]) -> None:
        """Finds files to delete, after those that wait; replaces a sweep that has not begun."""
        with self._change:
            self._orphans = orphans
            self._change.notify()

    @property
    def left(self) -> int:
        """The number of files that a sweep has to find."""
        return self._left

    def close(self) -> None:
        """Finishes the queue and stops."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        while (names := self._next()) or self._orphans:
            try:
                self._checkpoint.discard(names or self._sweep())
            except (OSError, SpillwayError):
                # A manifest that a later commit has deleted ends a sweep; the next one finds more.
                with self._change:
                    self._left += len(names)

    def _sweep(self) -> Sequence[str]:
        with self._change:
            orphans, self._orphans = self._orphans, None
        return [] if orphans is None or self._closing else orphans()

    def _next(self) -> list[str]:
        """Waits for names or a sweep; none: the janitor sweeps, or closes."""
        with self._change:
            self._change.wait_for(lambda: self._names or self._orphans or self._closing)
            return [self._names.popleft() for _ in range(min(_AT_ONCE, len(self._names)))]
