"""A strategy for tests: state moves all the time, whatever the slots hold.

`Faults(always_move=True)` puts it in the place of the strategy of the settings, so that faults at steps
of moves have moves to happen in.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.metrics.view import NORMAL, ClusterView
from spillway.policies.cluster.decision import Move
from spillway.policies.cluster.strategy import Strategy


@dataclass(frozen=True)
class Restless(Strategy):
    """Moves a third of the fullest slot's state to the emptiest slot, whenever all slots are free.

    Example:
        >>> from spillway.metrics.view import SlotView
        >>> full, empty = SlotView(0, 90, 0, None, 8, 0), SlotView(1, 90, 0, None, 8, 0)
        >>> [move] = Restless().decide(ClusterView((full, empty)))
        >>> move.sender, move.receiver, move.bytes
        (1, 0, 30)
    """

    name: str = "relocate-only"

    def decide(self, view: ClusterView) -> tuple[Move, ...]:
        """From the fullest slot to the emptiest, one group at least."""
        if any(slot.mode != NORMAL for slot in view.slots):
            return ()
        ordered = sorted(view.slots, key=lambda slot: (slot.memory_bytes, slot.slot))
        least, most = ordered[0], ordered[-1]
        return (Move(most.slot, least.slot, most.memory_bytes // 3, "always_move", groups=1),)
