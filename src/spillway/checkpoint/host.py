"""The part of a coordinator's host that a checkpoint directory provides."""

from __future__ import annotations

from collections.abc import Sequence

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import SWEEP_BATCHES, Note
from spillway.coordinator.batch.references import References
from spillway.coordinator.effects import DiscardFiles
from spillway.routing.routing import Routing


class CheckpointHost:
    """Notes, records and files in a checkpoint; a subclass sends groups."""

    #: Batches between two sweeps.
    sweep_batches = SWEEP_BATCHES

    def __init__(self, checkpoint: Checkpoint, streams: int) -> None:
        self.checkpoint = checkpoint
        self._streams = streams
        #: Files that the last commit stopped naming; the next one deletes them.
        self._leaving: list[str] = []
        self._committed: Committed | None = None

    def note(self, mark: Mark) -> Note | None:
        """Returns the note of a batch or round, if there is one."""
        return self.checkpoint.log.read_note(mark)

    def write_note(self, mark: Mark, note: Note) -> None:
        """Saves a note for a later start."""
        self.checkpoint.log.begin(mark, note)

    def append(self, state: Committed) -> None:
        """Commits, then deletes what the commit before stopped naming.

        Fails if another start has taken over.
        """
        outdated = self.checkpoint.log.append(state)
        before, self._committed = self._committed, state
        if before is not None and state.batch % self.sweep_batches == 0:
            self.sweep(state, before)
        leaving, self._leaving = self._leaving, []
        self.delete([*leaving, *outdated])

    def reroute(self, state: Committed, routing: Routing) -> tuple[Committed, References]:
        """Returns the same state under another routing, and the files that it names."""
        return self.checkpoint.reroute(state, self._streams, routing)

    def discard(self, files: DiscardFiles) -> None:
        """Deletes files after the next commit: until then, a reader may hold the last but one."""
        self._leaving += files.names

    def sweep(self, state: Committed, before: Committed) -> None:
        """Deletes files of attempts that died unreported."""
        self.delete(self.checkpoint.orphans(state, before))

    def delete(self, names: Sequence[str]) -> None:
        """Deletes files at once."""
        self.checkpoint.discard(names)
