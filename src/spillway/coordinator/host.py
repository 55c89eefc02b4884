"""The port between the coordinator and the world.

Three hosts implement it: the Spark runtime, the simulators, and the laws of the tests. A host carries
effects out and says what has happened meanwhile; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spillway.coordinator.committed import Committed, Mark
from spillway.coordinator.effects import DiscardFiles, SendGroups, StepReached
from spillway.coordinator.plan import Note
from spillway.coordinator.references import References
from spillway.protocols.messages import Message
from spillway.routing.routing import Routing


class Host(Protocol):
    """What a coordinator needs of the place it runs in."""

    def note(self, mark: Mark) -> Note | None:
        """The note of a batch or round, if one was written."""
        ...

    def write_note(self, mark: Mark, note: Note) -> None:
        """Keeps a note so that another start finds it."""
        ...

    def append(self, state: Committed) -> None:
        """Commits; refuses if somebody else has committed the same batch."""
        ...

    def reroute(self, state: Committed, routing: Routing) -> tuple[Committed, References]:
        """The same state under another routing, and the files that it names."""
        ...

    def discard(self, files: DiscardFiles) -> None:
        """Deletes files and records, now or later."""
        ...

    def send(self, groups: SendGroups) -> None:
        """Begins to send; `messages` says when that has ended."""
        ...

    def messages(self) -> Sequence[tuple[Message, float]]:
        """What was said of moves since the last call, each with the seconds that it took."""
        ...

    def finish_sending(self) -> None:
        """Waits for everything that is being sent."""
        ...

    def prepare_moves(self) -> None:
        """Starts what sends and receives, before it is needed."""
        ...

    def reach(self, step: StepReached) -> None:
        """Knows that a step of a move is being taken."""
        ...
