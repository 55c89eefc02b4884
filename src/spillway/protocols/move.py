"""What all move protocols share: one move, its table, and its steps.

A protocol is a subclass with three parts: the table of phases that a message may lead to, what the
coordinator says in each phase, and what a message changes. All share the first and the last step.
The phase alone decides what the coordinator says, so it continues after a restart from the logged
phase.

    mslb   moving state: DCAPE's relocation, and MSLB of PLANS (protocols/relocation.py)
    ptlb   parallel track: PTLB of PLANS (protocols/parallel_track.py)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, TypeVar

from spillway.codec import tagged
from spillway.errors import BUG, QueryError
from spillway.protocols.messages import Message, PartitionsToMove
from spillway.slot.orders import Pick


class Phase(str, Enum):
    """The phase of a move."""

    COMPUTING = "computing"
    DEACTIVATING = "deactivating"
    SENDING = "sending"
    RECEIVING = "receiving"
    REACTIVATING = "reactivating"
    DUPLICATING = "duplicating"
    DELETING = "deleting"
    ROLLING_BACK = "rolling-back"
    ENDED = "ended"


#: The phases that a message may lead to; anything else is an error.
Transitions = Mapping[tuple[Phase, type[Message]], frozenset[Phase]]

_Move = TypeVar("_Move", bound="GroupMove")


@tagged("protocol", by="protocol")
@dataclass(frozen=True)
class GroupMove:
    """One move of groups from one slot to another."""

    protocol: ClassVar[str] = ""
    #: The phase after groups were chosen.
    begins: ClassVar[Phase] = Phase.ENDED
    transitions: ClassVar[Transitions] = {}
    #: What the coordinator says in each phase.
    sayings: ClassVar[Mapping[Phase, type[Message]]] = {}

    move: int
    sender: int
    receiver: int
    #: The request to the sender; see `slot.orders.Choose`.
    wanted_bytes: int
    wanted_groups: int
    everything: bool
    #: The reason, for people.
    reason: str
    phase: Phase = Phase.COMPUTING
    #: The groups that the sender chose.
    groups: tuple[int, ...] = ()
    bytes: int = 0
    #: The received part, once it has arrived.
    part: str = ""
    failures: int = 0
    #: The query's clock at the last step.
    since_s: float = 0.0
    #: Bytes for follow-up moves, after this one has ended.
    left_bytes: int = 0
    #: The request for one group, if it was one.
    pick: Pick | None = None

    @property
    def slots(self) -> tuple[int, int]:
        """Both slots."""
        return self.sender, self.receiver

    def follower(self: _Move, move: int, now_s: float) -> _Move | None:
        """Returns the next part of a decision, after this one has ended; None after the last."""
        part = min(self.left_bytes, self.wanted_bytes)
        if not part:
            return None
        left = self.left_bytes - part
        start = type(self)(move, *self.slots, part, 0, everything=False, reason=self.reason)
        return replace(start, since_s=now_s, left_bytes=left)

    @property
    def says(self) -> Message | None:
        """What the coordinator must say now; None after the end."""
        kind = self.sayings.get(self.phase)
        return None if kind is None else kind(self.move)

    def step(self: _Move, message: Message, now_s: float = 0.0) -> _Move:
        """Returns the move after a message; rejects one that is out of place, without a change."""
        allowed = self.transitions.get((self.phase, type(message)))
        if allowed is None or message.move != self.move:
            raise QueryError(
                f"move {self.move} is {self.phase.value} and cannot accept {message}",
                detail=(
                    f"from slot {self.sender} to slot {self.receiver}, {len(self.groups)} groups"
                ),
                hint=BUG,
            )
        after = replace(self._after(message), since_s=now_s)
        assert after.phase in allowed
        return after

    def _after(self: _Move, message: Message) -> _Move:
        """Does what every protocol does: begins with the chosen groups, and ends."""
        if isinstance(message, PartitionsToMove):
            phase = self.begins if message.groups else Phase.ENDED
            return replace(self, phase=phase, groups=message.groups, bytes=message.bytes)
        return replace(self, phase=Phase.ENDED)
