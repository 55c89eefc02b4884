"""The port between the coordinator and the outside world.

Three hosts implement it: the Spark runtime, the simulators, and the tests. A host carries out
effects and reports what has happened meanwhile; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import Note
from spillway.coordinator.batch.references import References
from spillway.coordinator.effects import DiscardFiles, SendGroups, StepReached
from spillway.protocols.messages import Message
from spillway.routing.routing import Routing


class Host(Protocol):
    """What a coordinator needs from its host."""

    def note(self, mark: Mark) -> Note | None:
        """Returns the note of a batch or round, if there is one."""
        ...

    def write_note(self, mark: Mark, note: Note) -> None:
        """Saves a note for a later start."""
        ...

    def append(self, state: Committed) -> None:
        """Commits; fails if another start has taken over."""
        ...

    def reroute(self, state: Committed, routing: Routing) -> tuple[Committed, References]:
        """Returns the same state under another routing, and the files that it names."""
        ...

    def discard(self, files: DiscardFiles) -> None:
        """Deletes files, now or later."""
        ...

    def send(self, groups: SendGroups) -> None:
        """Starts to send; `messages` reports the end, or what failed."""
        ...

    def messages(self) -> Sequence[tuple[Message, float]]:
        """Returns the messages about moves since the last call, with the seconds that each took."""
        ...

    def finish_sending(self) -> None:
        """Waits until everything is sent."""
        ...

    def prepare_moves(self) -> None:
        """Starts the sending and receiving services early."""
        ...

    def reach(self, step: StepReached) -> None:
        """The coordinator reports a step of a move."""
        ...
