"""When a slot gets another shape of its join.

A slot gets another shape if that is cheaper by a margin, has been so for several evaluations, and saves
more than what making its missing states costs. Where its states do not fit into the room that they have,
it gets one whose states do, whatever that costs: groups that go to disk for want of room cost more. Here
too it takes several evaluations, since what is measured goes up and down; and a shape that does not fit
with a margin is never taken. All is pure: the same measurements give the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spillway.plan.shape import Shape
from spillway.policies.cluster.decision import megabytes
from spillway.policies.shape.costs import COSTS, Costs, Estimate, JoinRates, cheapest


@dataclass(frozen=True)
class ShapeRules:
    """When a slot gets another shape."""

    #: Part of the cost that another shape must save.
    margin: float = 0.2
    #: Evaluations in a row in which it must.
    evaluations: int = 2
    #: Seconds in which it must save more than making its states costs.
    lasts_s: float = 60.0
    #: Bytes that intermediate states may take; None: any.
    room_bytes: float | None = None
    #: Whether only two things may be joined at a time.
    binary: bool = False
    costs: Costs = COSTS

    @property
    def enter_bytes(self) -> float | None:
        """Bytes that the states of a shape may take for a slot to get it; None: any."""
        return None if self.room_bytes is None else self.room_bytes * (1 - self.margin)


@dataclass(frozen=True)
class Wish:
    """What earlier evaluations of a slot have found: a shape that is cheaper, and how often."""

    shape: Shape | None = None
    times: int = 0


@dataclass(frozen=True)
class Reshape:
    """A slot is to have another shape."""

    slot: int
    shape: Shape
    reason: str


def propose(
    slot: int, rates: JoinRates, current: Shape, wish: Wish, rules: ShapeRules
) -> tuple[Reshape | None, Wish]:
    """Whether a slot should have another shape now, and what the next evaluation is to know."""
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
            # Room is the one thing that counts.
            return cost.memory_bytes <= enter
        gain = (now.work - cost.work) * rules.lasts_s
        return saves(shape, now.work) and gain > estimate.making(shape, current)

    wished = wish.shape
    if wished is not None and pays(wished) and not saves(best, estimate.cost(wished).work):
        wish = Wish(wished, wish.times + 1)
    else:
        wish = Wish(best, 1) if pays(best) else Wish()
    if wish.shape is None or wish.times < rules.evaluations:
        return None, wish
    found = estimate.cost(wish.shape)
    if crowded:
        reason = (
            f"states of {current} take {megabytes(now.memory_bytes)}, those of {wish.shape} "
            f"{megabytes(found.memory_bytes)} in {wish.times} evaluations, "
            f"room {megabytes(rules.room_bytes or 0.0)}"
        )
    else:
        reason = (
            f"{wish.shape} costs {found.work / now.work:.2f} of {current} "
            f"in {wish.times} evaluations, margin {rules.margin:g}"
        )
    return Reshape(slot, wish.shape, reason), Wish()


def _stays(least: float, rules: ShapeRules) -> float:
    """Bytes that the states of a shape may take to be kept, where the best has so many.

    Binary trees may all be too large. Then the smallest is what there is, and another that is larger by
    no more than the margin is as good.
    """
    if rules.room_bytes is None:
        return math.inf
    return rules.room_bytes if least <= rules.room_bytes else least * (1 + rules.margin)


def _enters(least: float, rules: ShapeRules) -> float:
    """The same, to be taken: less by the margin, as states grow and shrink while rows come and go."""
    if rules.enter_bytes is None or least > rules.enter_bytes:
        return _stays(least, rules)
    return rules.enter_bytes
