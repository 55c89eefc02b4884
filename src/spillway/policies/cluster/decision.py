"""Decisions of a strategy: move state between slots, or make a slot spill.

A decision says how much and why; the slot's controller chooses the groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.settings import MSLB
from spillway.slot.orders import Pick


@dataclass(frozen=True)
class Move:
    """Moves state from one slot to another."""

    sender: int
    receiver: int
    bytes: int
    reason: str
    #: The least number of groups, whatever their size.
    groups: int = 0
    #: All groups of the sender instead of an amount.
    everything: bool = False
    #: One group instead of an amount.
    pick: Pick | None = None
    #: The protocol: see `policies.cluster.protocols`.
    protocol: str = MSLB


@dataclass(frozen=True)
class ForceSpill:
    """Makes a slot spill although it is below its limit."""

    slot: int
    bytes: int
    reason: str
    #: Only groups up to this productivity class; None: any.
    below: int | None = None


Decision = Move | ForceSpill


def megabytes(amount: float) -> str:
    """Formats bytes for people."""
    return f"{round(amount / 1e6, 1):g} MB"
