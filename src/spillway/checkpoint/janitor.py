"""Lets go of files that nothing names any more, beside the batches."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from spillway.checkpoint.checkpoint import KEEP_LOG, Checkpoint
from spillway.checkpoint.log import Mark
from spillway.coordinator.coordinator import BatchPlan, Committed, References
from spillway.errors import SpillwayError
from spillway.metrics.record import SlotRecord
from spillway.protocols.move import Phase


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


class Upkeep:
    """Knows which files are named, and lets go of those that a commit has stopped naming."""

    def __init__(self, checkpoint: Checkpoint, references: References) -> None:
        self.references = references
        #: Runs whose local copies go with the next plan, to whatever host its slots run on.
        self.garbage: tuple[str, ...] = ()
        self._marks = deque(checkpoint.log.marks())
        self._janitor = Janitor(checkpoint)

    def after(
        self,
        plan: BatchPlan,
        records: Mapping[int, SlotRecord],
        attempts: Sequence[SlotRecord],
        state: Committed,
    ) -> None:
        """Lets go of what a committed batch does not name, and of what its other attempts wrote."""
        self.references, gone = self.references.updated(list(records.values()))
        kept = {record.manifest for record in records.values()}
        repeated = [record for record in attempts if record.manifest not in kept]
        unnamed = {name for record in repeated for name in record.added}
        gone = (*gone, *sorted(unnamed - set(self.references.counts)))
        # A slot that is not there any more was drained, so what is left of it names no run.
        over = [record for record in records.values() if record.slot >= state.routing.slots]
        arrived = [move.part for move in plan.moves if move.phase is Phase.REACTIVATING]
        manifests = [*plan.manifests, *arrived, *(record.manifest for record in (*repeated, *over))]
        self._marks.append(Mark(state.batch, state.round))
        forgotten = [self._marks.popleft() for _ in range(len(self._marks) - KEEP_LOG)]
        self._janitor.discard(
            [*(f"runs/{name}" for name in gone), *(name for name in manifests if name)], forgotten
        )
        self.garbage = gone

    def close(self) -> None:
        """Finishes what is under way."""
        self._janitor.close()
