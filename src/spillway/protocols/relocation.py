"""State relocation in the eight steps of DCAPE-TR 5.1, as a pure state machine.

    phase          waits for            says, and says again after a crash
    computing      PartitionsToMove     ComputePartitionsToMove
    deactivating   Deactivated          DeactivatePartitions
    sending        ReceivePartitions    SendPartitions
    receiving      Received             SendPartitions
    reactivating   Reactivated          ReactivatePartitions, to the receiver
    rolling-back   Reactivated          ReactivatePartitions, to the sender
    ended

This is also MSLB of PLANS 4.2 (Algorithms 3, 4), which has the same eight messages. MSLB adds what
the receiver does with states of another plan: it keeps those that match by name, drops others, and
fills gaps while it serves the groups (`arranged` in state/manifest/matching.py,
state/layout/gaps.py).

Sending only writes files that no manifest names, so it can be repeated. After `MOST_FAILURES` the
coordinator gives the move up, and the sender takes its groups back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
from spillway.protocols.move import GroupMove, Phase, Transitions

#: Failed attempts to send after which the coordinator gives a move up.
MOST_FAILURES = 3

TRANSITIONS: Transitions = {
    (Phase.COMPUTING, PartitionsToMove): frozenset({Phase.DEACTIVATING, Phase.ENDED}),
    (Phase.DEACTIVATING, Deactivated): frozenset({Phase.SENDING}),
    (Phase.SENDING, ReceivePartitions): frozenset({Phase.RECEIVING}),
    (Phase.SENDING, SendFailed): frozenset({Phase.SENDING, Phase.ROLLING_BACK}),
    # A start after a crash sends again what was being received.
    (Phase.RECEIVING, ReceivePartitions): frozenset({Phase.RECEIVING}),
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
class Relocation(GroupMove):
    """Moves groups by sending their state."""

    protocol = "mslb"
    begins = Phase.DEACTIVATING
    transitions = TRANSITIONS
    sayings = SAYS

    def _after(self, message: Message) -> Relocation:
        match message:
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
                return super()._after(message)
