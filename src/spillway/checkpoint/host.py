"""The part of a coordinator's host that a checkpoint directory provides."""

from __future__ import annotations

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import Note
from spillway.coordinator.batch.references import References
from spillway.coordinator.effects import DiscardFiles
from spillway.routing.routing import Routing


class CheckpointHost:
    """Notes, records and files in a checkpoint; a subclass sends groups."""

    def __init__(self, checkpoint: Checkpoint, streams: int) -> None:
        self.checkpoint = checkpoint
        self._streams = streams

    def note(self, mark: Mark) -> Note | None:
        """Returns the note of a batch or round, if there is one."""
        return self.checkpoint.log.read_note(mark)

    def write_note(self, mark: Mark, note: Note) -> None:
        """Saves a note for a later start."""
        self.checkpoint.log.begin(mark, note)

    def append(self, state: Committed) -> None:
        """Commits; fails if another query has committed the same batch."""
        self.checkpoint.log.append(state)

    def reroute(self, state: Committed, routing: Routing) -> tuple[Committed, References]:
        """Returns the same state under another routing, and the files that it names."""
        return self.checkpoint.reroute(state, self._streams, routing)

    def discard(self, files: DiscardFiles) -> None:
        """Deletes files and records at once."""
        self.checkpoint.discard(files.names)
        for mark in files.marks:
            self.checkpoint.log.forget(mark)
