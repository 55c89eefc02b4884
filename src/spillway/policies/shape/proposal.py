"""Decides when a slot changes the shape of its join.

A slot changes to a shape that is cheaper by a margin in several evaluations in a row, and saves more
than making its missing states costs. If the states of its shape do not fit into memory, it gets one
whose states fit with a margin, whatever the cost: spilling groups costs more. This too takes several
evaluations, since measurements fluctuate. All functions are pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spillway.plan.shape import Shape
from spillway.policies.cluster.decision import megabytes
from spillway.policies.shape.costs import COSTS, Costs, Estimate, JoinRates, cheapest


@dataclass(frozen=True)
class ShapeRules:
    """When a slot changes its shape."""

    #: Fraction of the cost that another shape must save.
    margin: float = 0.2
    #: Evaluations in a row in which it must.
    evaluations: int = 2
    #: Seconds in which it must save more than making its states costs.
    lasts_s: float = 60.0
    #: Bytes that intermediate states may take; None: no limit.
    room_bytes: float | None = None
    #: Whether joins may have only two inputs.
    binary: bool = False
    costs: Costs = COSTS

    @property
    def enter_bytes(self) -> float | None:
        """The bytes that the states of a new shape may take; None: no limit."""
        return None if self.room_bytes is None else self.room_bytes * (1 - self.margin)


@dataclass(frozen=True)
class Proposal:
    """A better shape that the last evaluations of a slot found, and how many of them; None: no shape."""

    shape: Shape | None = None
    times: int = 0


@dataclass(frozen=True)
class Reshape:
    """A change of a slot's shape."""

    slot: int
    shape: Shape
    reason: str


def propose(
    slot: int, rates: JoinRates, current: Shape, proposal: Proposal, rules: ShapeRules
) -> tuple[Reshape | None, Proposal]:
    """Decides whether a slot changes its shape now; also returns the state for the next evaluation."""
    estimate = Estimate(rates, rules.costs)
    now = estimate.cost(current)
    best = cheapest(rates, rules.costs, rules.enter_bytes, binary=rules.binary)
    least = estimate.cost(best).memory_bytes
    enter, crowded = _enters(least, rules), now.memory_bytes > _stays(least, rules)

    def saves(shape: Shape, than: float) -> bool:
        return estimate.cost(shape).work < than * (1 - rules.margin)

    def pays(shape: Shape) -> bool:
        cost = estimate.cost(shape)
        if crowded or cost.memory_bytes > enter:
            # Only memory counts.
            return cost.memory_bytes <= enter
        gain = (now.work - cost.work) * rules.lasts_s
        return saves(shape, now.work) and gain > estimate.making(shape, current)

    known = proposal.shape
    if known is not None and pays(known) and not saves(best, estimate.cost(known).work):
        proposal = Proposal(known, proposal.times + 1)
    else:
        proposal = Proposal(best, 1) if pays(best) else Proposal()
    if proposal.shape is None or proposal.times < rules.evaluations:
        return None, proposal
    found = estimate.cost(proposal.shape)
    if crowded:
        reason = (
            f"states of {current} take {megabytes(now.memory_bytes)}, those of {proposal.shape} "
            f"{megabytes(found.memory_bytes)} in {proposal.times} evaluations, limit "
            f"{megabytes(rules.room_bytes or 0.0)}"
        )
    else:
        reason = (
            f"{proposal.shape} costs {found.work / now.work:.2f} x {current} in {proposal.times} "
            f"evaluations, margin {rules.margin:g}"
        )
    return Reshape(slot, proposal.shape, reason), Proposal()


def _stays(least: float, rules: ShapeRules) -> float:
    """Returns the bytes at which a shape may stay, if the smallest has `least`.

    All binary trees may be too large. Then the smallest is the best available, and another one
    within the margin is as good.
    """
    if rules.room_bytes is None:
        return math.inf
    return rules.room_bytes if least <= rules.room_bytes else least * (1 + rules.margin)


def _enters(least: float, rules: ShapeRules) -> float:
    """Returns the bytes at which a shape may be chosen: less by the margin, as states fluctuate."""
    if rules.enter_bytes is None or least > rules.enter_bytes:
        return _stays(least, rules)
    return rules.enter_bytes
