"""A simulated cluster as the host of the one coordinator (spillway/coordinator/host.py).

The host keeps only the last record and note, since nothing outlives a simulation. A carrier moves state
in virtual time and sends messages to the coordinator.

Known limitation: no batch waits for state in transit (`finish_sending`), and the number of slots is
fixed (`reroute`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import BatchPlan, Note
from spillway.coordinator.batch.references import References
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.decisions.adaptation import Rules
from spillway.coordinator.effects import DiscardFiles, SendGroups, StepReached
from spillway.coordinator.terms import Terms
from spillway.coordinator.took import Took
from spillway.metrics.events import Event
from spillway.metrics.groups import Ints
from spillway.metrics.record import SlotRecord
from spillway.protocols.messages import Message
from spillway.protocols.move import GroupMove
from spillway.routing.routing import Routing

#: The name of every manifest; no file is written.
MANIFEST = "simulated"


@dataclass
class Transfer:
    """A move that is being sent."""

    move: GroupMove
    groups: Ints
    #: The time of its last message.
    since_s: float


class Carrier(ABC):
    """Carries the state of moves from slot to slot, and reports on them."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._messages: list[tuple[Message, float]] = []

    @abstractmethod
    def begin(self, move: GroupMove) -> None:
        """Starts a move whose groups have left their sender."""

    def tick(self, now_s: float) -> None:
        """One tick of virtual time, which ends now."""
        self._now_s = now_s

    def messages(self) -> list[tuple[Message, float]]:
        """The messages since the last call, each with the seconds that it took."""
        found, self._messages = self._messages, []
        return found

    def _say(self, message: Message, one: Transfer) -> None:
        self._messages.append((message, self._now_s - one.since_s))
        one.since_s = self._now_s


class VirtualHost:
    """Carries out in virtual time what the coordinator decides."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        #: The last record; None before the first commit.
        self.record: Committed | None = None
        self._notes: dict[Mark, Note] = {}

    def note(self, mark: Mark) -> Note | None:
        """The note of a batch or round, if it is the last one written."""
        return self._notes.get(mark)

    def write_note(self, mark: Mark, note: Note) -> None:
        """Replaces the note."""
        self._notes = {mark: note}

    def append(self, state: Committed) -> None:
        """Replaces the record."""
        self.record = state

    def reroute(self, state: Committed, routing: Routing) -> tuple[Committed, References]:
        """Never called: a simulated coordinator gets its slots at the start."""
        raise NotImplementedError("a simulated cluster cannot change its slot count")

    def discard(self, files: DiscardFiles) -> None:
        """There are no files."""

    def send(self, groups: SendGroups) -> None:
        """Gives the move to the carrier."""
        self._carrier.begin(groups.move)

    def messages(self) -> Sequence[tuple[Message, float]]:
        """The carrier's messages since the last call."""
        return self._carrier.messages()

    def finish_sending(self) -> None:
        """Does nothing: virtual time advances by itself."""

    def prepare_moves(self) -> None:
        """A carrier is always ready."""

    def reach(self, step: StepReached) -> None:
        """Does nothing: simulations have no faults."""


def conducted(terms: Terms, state: Committed, host: VirtualHost) -> Conductor:
    """The coordinator of a query that starts with `state`, in a simulated host.

    Unlike a real query's, it has nothing that the simulators do not model: budgets of slow slots,
    turns paced by the coordinator, and slots that share a memory tier.
    """
    rules = replace(Rules.of(terms.adapt, terms.life_us), always_sends=True)
    return Conductor(Coordinator(terms, state, rules), host)


def next_batch(
    conductor: Conductor, plan: BatchPlan, records: Mapping[int, SlotRecord], took: Took
) -> tuple[BatchPlan, tuple[Event, ...]]:
    """Commits a batch and begins the next; returns its plan, and the events since the last call.

    Events between two batches are reported at once; the record of the second batch repeats them.
    """
    told = len(conductor.coordinator.told)
    conductor.commit(plan, records, took)
    events = conductor.state.events[told:]
    following = conductor.begin_batch(plan.batch + 1)
    return following, (*events, *conductor.coordinator.told)
