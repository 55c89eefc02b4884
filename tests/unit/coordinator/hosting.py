"""A host in memory that outlives conductors, and refuses what it is told to refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import Note
from spillway.coordinator.batch.references import References
from spillway.coordinator.effects import DiscardFiles, SendGroups, StepReached
from spillway.errors import QueryError
from spillway.protocols.messages import Message
from spillway.routing.routing import Routing


class MemoryHost:
    """Keeps notes and records, and the names of all that it was asked for."""

    def __init__(self) -> None:
        self.notes: dict[Mark, Note] = {}
        self.log: list[Committed] = []
        self.calls: list[str] = []
        self.said: list[tuple[Message, float]] = []
        #: The name of what the next call is refused for.
        self.refuses = ""
        #: Called while a record is appended.
        self.meanwhile: Callable[[], None] = lambda: None

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.refuses == name:
            self.refuses = ""
            raise QueryError(f"{name} is refused")

    def note(self, mark: Mark) -> Note | None:
        return self.notes.get(mark)

    def write_note(self, mark: Mark, note: Note) -> None:
        self._called("write_note")
        self.notes[mark] = note

    def append(self, state: Committed) -> None:
        self._called("append")
        self.meanwhile()
        self.log.append(state)

    def reroute(self, state: Committed, routing: Routing) -> tuple[Committed, References]:
        self._called("reroute")
        manifests = tuple(f"rerouted-{slot}" for slot in range(routing.slots))
        return replace(state, routing=routing, manifests=manifests), References({"run": 1})

    def discard(self, files: DiscardFiles) -> None:
        self._called("discard")

    def send(self, groups: SendGroups) -> None:
        self._called("send")

    def messages(self) -> Sequence[tuple[Message, float]]:
        self._called("messages")
        found, self.said = self.said, []
        return found

    def finish_sending(self) -> None:
        self._called("finish_sending")

    def prepare_moves(self) -> None:
        self._called("prepare_moves")

    def reach(self, step: StepReached) -> None:
        self._called(f"reach {step.step}")

    def called(self) -> list[str]:
        """What it was asked for since the last call."""
        found, self.calls = self.calls, []
        return found
