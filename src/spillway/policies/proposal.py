"""When a slot gets another shape of its join.

A slot gets another shape if that is cheaper by a margin, has been so for several evaluations, and saves
more than what making its missing states costs. All is pure: the same measurements give the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.plan.shape import Shape
from spillway.policies.plans import COSTS, Costs, Estimate, JoinRates, cheapest


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
    now = estimate.cost(current).work
    best = cheapest(rates, rules.costs, rules.room_bytes, binary=rules.binary)

    def saves(shape: Shape, than: float) -> bool:
        return estimate.cost(shape).work < than * (1 - rules.margin)

    def pays(shape: Shape) -> bool:
        gain = (now - estimate.cost(shape).work) * rules.lasts_s
        return saves(shape, now) and gain > estimate.making(shape, current)

    wished = wish.shape
    if wished is not None and pays(wished) and not saves(best, estimate.cost(wished).work):
        wish = Wish(wished, wish.times + 1)
    else:
        wish = Wish(best, 1) if pays(best) else Wish()
    if wish.shape is None or wish.times < rules.evaluations:
        return None, wish
    found = estimate.cost(wish.shape).work
    reason = (
        f"{wish.shape} costs {found / now:.2f} of {current} "
        f"in {wish.times} evaluations, margin {rules.margin:g}"
    )
    return Reshape(slot, wish.shape, reason), Wish()
