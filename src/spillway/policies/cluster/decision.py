"""What a strategy may decide: that state moves between slots, or that a slot spills.

A decision says how much and why; which groups go is for the controller of the slot.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.settings import MSLB
from spillway.slot.orders import Pick


@dataclass(frozen=True)
class Move:
    """State is to move from one slot to another."""

    sender: int
    receiver: int
    bytes: int
    reason: str
    #: At least so many groups, whatever they have.
    groups: int = 0
    #: Not an amount, but all groups of the sender.
    everything: bool = False
    #: Not an amount, but one group.
    pick: Pick | None = None
    #: How: see `policies.protocols`.
    protocol: str = MSLB


@dataclass(frozen=True)
class ForceSpill:
    """A slot is to spill, though it is below its limit."""

    slot: int
    bytes: int
    reason: str
    #: Only groups up to this class of productivity; None: of any.
    below: int | None = None


Decision = Move | ForceSpill


def megabytes(amount: float) -> str:
    """Bytes, in words for people."""
    return f"{round(amount / 1e6, 1):g} MB"
