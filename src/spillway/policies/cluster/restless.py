"""A strategy for tests: it moves state all the time, whatever the slots hold.

`Faults(always_move=True)` replaces the configured strategy with it, so that faults at steps of
moves have moves to hit.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.metrics.view import NORMAL, ClusterView
from spillway.policies.cluster.decision import Move
from spillway.policies.cluster.strategy import Strategy


@dataclass(frozen=True)
class Restless(Strategy):
    """Moves a third of the fullest slot's state to the emptiest slot, when all slots are free.

    Example:
        >>> from spillway.metrics.view import SlotView
        >>> full, empty = SlotView(0, 90, 0, None, 8, 0), SlotView(1, 0, 0, None, 8, 0)
        >>> [move] = Restless().decide(ClusterView((full, empty)))
        >>> move.sender, move.receiver, move.bytes
        (0, 1, 30)
    """

    name: str = "relocate-only"

    def decide(self, view: ClusterView) -> tuple[Move, ...]:
        """Decides on a move from the fullest slot to the emptiest, of at least one group."""
        if any(slot.mode != NORMAL for slot in view.slots):
            return ()
        ordered = sorted(view.slots, key=lambda slot: (slot.memory_bytes, slot.slot))
        least, most = ordered[0], ordered[-1]
        return (Move(most.slot, least.slot, most.memory_bytes // 3, "always_move", groups=1),)
