"""Deletes files beside the batches."""

from __future__ import annotations

import queue
import threading

from spillway.coordinator.checkpoint import Checkpoint
from spillway.coordinator.log import Mark
from spillway.errors import SpillwayError


class Janitor:
    """Deletes from the durable tier beside the batches, so that a slow store delays none."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        # Bounded: when deletions cannot keep up, batches wait rather than the list growing.
        self._work: queue.Queue[tuple[list[str], list[Mark]] | None] = queue.Queue(maxsize=64)
        self._thread = threading.Thread(target=self._run, name="spillway-janitor", daemon=True)
        self._thread.start()

    def discard(self, names: list[str], records: list[Mark]) -> None:
        """Queues files, and log records, to be deleted."""
        self._work.put((names, records))

    def close(self) -> None:
        """Finishes what is queued and ends."""
        self._work.put(None)
        self._thread.join(timeout=60)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            names, records = work
            try:
                self._checkpoint.discard(names)
                for mark in records:
                    self._checkpoint.log.forget(mark)
            except (OSError, SpillwayError):
                # A file that stays behind costs room, not correctness; the next start sweeps it.
                continue
