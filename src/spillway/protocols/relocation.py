"""State relocation in the eight steps of DCAPE-TR 5.1, as a pure state machine.

    phase          waits for            says, and says again after a crash
    computing      PartitionsToMove     ComputePartitionsToMove
    deactivating   Deactivated          DeactivatePartitions
    sending        ReceivePartitions    SendPartitions
    receiving      Received             SendPartitions
    reactivating   Reactivated          ReactivatePartitions, to the receiver
    rolling-back   Reactivated          ReactivatePartitions, to the sender
    ended

What is said follows from the phase alone, so a coordinator that comes back with a logged phase goes on
where it was. Sending changes nothing but files that nobody names, so it may be repeated; after
`MOST_FAILURES` the move is given up and the sender takes its groups back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from spillway.errors import QueryError
from spillway.operators.orders import Pick
from spillway.protocols.messages import (
    ComputePartitionsToMove,
    Deactivated,
    DeactivatePartitions,
    Message,
    PartitionsToMove,
    Reactivated,
    ReactivatePartitions,
    Received,
    ReceivePartitions,
    SendFailed,
    SendPartitions,
)

#: Failed attempts to send after which a move is given up.
MOST_FAILURES = 3


class Phase(str, Enum):
    """Where a move stands."""

    COMPUTING = "computing"
    DEACTIVATING = "deactivating"
    SENDING = "sending"
    RECEIVING = "receiving"
    REACTIVATING = "reactivating"
    ROLLING_BACK = "rolling-back"
    ENDED = "ended"


#: The phases that a message may lead to; anything else is refused.
TRANSITIONS: dict[tuple[Phase, type[Message]], frozenset[Phase]] = {
    (Phase.COMPUTING, PartitionsToMove): frozenset({Phase.DEACTIVATING, Phase.ENDED}),
    (Phase.DEACTIVATING, Deactivated): frozenset({Phase.SENDING}),
    (Phase.SENDING, ReceivePartitions): frozenset({Phase.RECEIVING}),
    (Phase.SENDING, SendFailed): frozenset({Phase.SENDING, Phase.ROLLING_BACK}),
    (Phase.RECEIVING, SendFailed): frozenset({Phase.SENDING, Phase.ROLLING_BACK}),
    (Phase.RECEIVING, Received): frozenset({Phase.REACTIVATING}),
    (Phase.REACTIVATING, Reactivated): frozenset({Phase.ENDED}),
    (Phase.ROLLING_BACK, Reactivated): frozenset({Phase.ENDED}),
}

#: What the coordinator says in each phase.
SAYS: dict[Phase, type[Message]] = {
    Phase.COMPUTING: ComputePartitionsToMove,
    Phase.DEACTIVATING: DeactivatePartitions,
    Phase.SENDING: SendPartitions,
    Phase.RECEIVING: SendPartitions,
    Phase.REACTIVATING: ReactivatePartitions,
    Phase.ROLLING_BACK: ReactivatePartitions,
}


@dataclass(frozen=True)
class Relocation:
    """One move of groups from one slot to another."""

    move: int
    sender: int
    receiver: int
    #: What the sender was asked for; see `operators.orders.Choose`.
    wanted_bytes: int
    wanted_groups: int
    everything: bool
    #: Why, in words for people.
    reason: str
    phase: Phase = Phase.COMPUTING
    #: What the sender chose.
    groups: tuple[int, ...] = ()
    bytes: int = 0
    #: What was received, once it was.
    part: str = ""
    failures: int = 0
    #: The query's clock at the last step.
    since_s: float = 0.0
    #: Bytes that are to follow in moves of their own, once this one has ended.
    left_bytes: int = 0
    #: The one group that the sender was asked for, where it was one.
    pick: Pick | None = None

    @property
    def slots(self) -> tuple[int, int]:
        """Both ends."""
        return self.sender, self.receiver

    def follower(self, move: int, now_s: float) -> Relocation | None:
        """The next part of what was decided, when this one has ended; None after the last."""
        part = min(self.left_bytes, self.wanted_bytes)
        if not part:
            return None
        left = self.left_bytes - part
        start = Relocation(move, *self.slots, part, 0, everything=False, reason=self.reason)
        return replace(start, since_s=now_s, left_bytes=left)

    @property
    def says(self) -> Message | None:
        """What is to be said now; None once it has ended."""
        kind = SAYS.get(self.phase)
        return None if kind is None else kind(self.move)

    def step(self, message: Message, now_s: float = 0.0) -> Relocation:
        """The move after a message; refused, and nothing changed, if it is out of place."""
        allowed = TRANSITIONS.get((self.phase, type(message)))
        if allowed is None or message.move != self.move:
            raise QueryError(
                f"move {self.move} is {self.phase.value} and cannot take {message}",
                detail=f"from slot {self.sender} to slot {self.receiver}, {len(self.groups)} groups",
            )
        after = replace(self._after(message), since_s=now_s)
        assert after.phase in allowed
        return after

    def _after(self, message: Message) -> Relocation:
        match message:
            case PartitionsToMove(groups=groups, bytes=size):
                phase = Phase.DEACTIVATING if groups else Phase.ENDED
                return replace(self, phase=phase, groups=groups, bytes=size)
            case Deactivated():
                return replace(self, phase=Phase.SENDING)
            case ReceivePartitions():
                return replace(self, phase=Phase.RECEIVING)
            case Received(part=part, bytes=size):
                return replace(self, phase=Phase.REACTIVATING, part=part, bytes=size)
            case SendFailed():
                failures = self.failures + 1
                phase = Phase.ROLLING_BACK if failures >= MOST_FAILURES else Phase.SENDING
                return replace(self, phase=phase, failures=failures)
            case _:
                return replace(self, phase=Phase.ENDED)

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the log."""
        pick = None if self.pick is None else vars(self.pick)
        return {**vars(self), "phase": self.phase.value, "groups": list(self.groups), "pick": pick}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Relocation:
        """The inverse of `to_json`."""
        groups, pick = tuple(found["groups"]), found.get("pick")
        values = {**found, "phase": Phase(found["phase"]), "groups": groups}
        return cls(**{**values, "pick": Pick(**pick) if pick else None})
