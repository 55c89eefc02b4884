"""The parallel track in the five steps of PLANS 3.2 (PTLB, Algorithms 1, 2), as a state machine.

    phase          waits for            says, and says again after a crash
    computing      PartitionsToMove     ComputePartitionsToMove
    duplicating    AllOldPurged         DuplicatePartitions
    deleting       EndOfPartitions      DeletePartitions, to the sender
    rolling-back   EndOfPartitions      DeletePartitions, to the receiver
    ended

No state travels. While rows are duplicated, both slots have every new row of the groups, and the
sender also the old ones. Until the old rows are gone, either side can be deleted, and the other
serves the groups alone. So the coordinator can give up a track without loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spillway.protocols.messages import (
    AllOldPurged,
    ComputePartitionsToMove,
    DeletePartitions,
    DuplicatePartitions,
    EndOfPartitions,
    GivenUp,
    Message,
    PartitionsToMove,
)
from spillway.protocols.move import GroupMove, Phase, Transitions

TRANSITIONS: Transitions = {
    (Phase.COMPUTING, PartitionsToMove): frozenset({Phase.DUPLICATING, Phase.ENDED}),
    (Phase.DUPLICATING, AllOldPurged): frozenset({Phase.DELETING}),
    (Phase.DUPLICATING, GivenUp): frozenset({Phase.ROLLING_BACK}),
    (Phase.DELETING, EndOfPartitions): frozenset({Phase.ENDED}),
    (Phase.ROLLING_BACK, EndOfPartitions): frozenset({Phase.ENDED}),
}

#: What the coordinator says in each phase.
SAYS: dict[Phase, type[Message]] = {
    Phase.COMPUTING: ComputePartitionsToMove,
    Phase.DUPLICATING: DuplicatePartitions,
    Phase.DELETING: DeletePartitions,
    Phase.ROLLING_BACK: DeletePartitions,
}


@dataclass(frozen=True)
class ParallelTrack(GroupMove):
    """Moves groups by waiting until the sender's old rows are gone."""

    protocol = "ptlb"
    begins = Phase.DUPLICATING
    transitions = TRANSITIONS
    sayings = SAYS

    def _after(self, message: Message) -> ParallelTrack:
        match message:
            case AllOldPurged():
                return replace(self, phase=Phase.DELETING)
            case GivenUp():
                return replace(self, phase=Phase.ROLLING_BACK)
            case _:
                return super()._after(message)
