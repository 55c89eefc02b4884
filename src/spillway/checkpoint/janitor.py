"""Deletes unused files while batches run."""

from __future__ import annotations

import queue
import threading

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.effects import DiscardFiles
from spillway.errors import SpillwayError


class Janitor:
    """Deletes from the durable tier in its own thread, so that a slow store delays no batch."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        # Bounded: if deletions cannot keep up, batches wait; the queue does not grow.
        self._work: queue.Queue[DiscardFiles | None] = queue.Queue(maxsize=64)
        self._thread = threading.Thread(target=self._run, name="spillway-janitor", daemon=True)
        self._thread.start()

    def discard(self, files: DiscardFiles) -> None:
        """Queues files and log records for deletion."""
        self._work.put(files)

    def close(self) -> None:
        """Finishes the queue and stops."""
        self._work.put(None)
        self._thread.join(timeout=60)

    def _run(self) -> None:
        while (files := self._work.get()) is not None:
            try:
                self._checkpoint.discard(files.names)
                for mark in files.marks:
                    self._checkpoint.log.forget(mark)
            except (OSError, SpillwayError):
                # A leftover file costs space, not correctness; the next start deletes it.
                continue
