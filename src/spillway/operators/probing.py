"""What is measured of predicates: how many pairs each was given, how many passed, how long it took.

By that predicates are looked at in an order here, and streams are visited in one (policies/probing.py).
Measured time decides nothing but orders, and no order changes a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spillway.operators.base import MATCHED, SPENT
from spillway.operators.predicates import Predicate

#: What is taken for true of a predicate that was not measured yet.
GUESSED_SELECTIVITY = 0.1
GUESSED_COST_US = 0.05


@dataclass(frozen=True)
class Measured:
    """What was counted of predicates, as manifests have it (operators/base.py)."""

    counts: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def selectivity(self, predicate: Predicate) -> float:
        """The part of the pairs that pass."""
        pairs, passed = self.counts.get(MATCHED + predicate.label, (0.0, 0.0))
        return passed / pairs if pairs else GUESSED_SELECTIVITY

    def cost_us(self, predicate: Predicate) -> float:
        """Microseconds of a pair."""
        pairs, seconds = self.counts.get(SPENT + predicate.label, (0.0, 0.0))
        if pairs:
            return 1e6 * seconds / pairs
        return GUESSED_COST_US if predicate.cost_us is None else predicate.cost_us


def together(counts: Sequence[Mapping[str, tuple[float, float]]]) -> Measured:
    """What several slots or rounds have counted, as one."""
    found: dict[str, tuple[float, float]] = {}
    for key, (pairs, more) in (item for one in counts for item in one.items()):
        if key.startswith((MATCHED, SPENT)):
            before = found.get(key, (0.0, 0.0))
            found[key] = before[0] + pairs, before[1] + more
    return Measured(found)


def in_order(predicates: Sequence[Predicate], measured: Measured) -> list[Predicate]:
    """Predicates, those first that discard the most pairs for their cost."""

    def rank(predicate: Predicate) -> float:
        return measured.cost_us(predicate) / max(1.0 - measured.selectivity(predicate), 1e-9)

    return sorted(predicates, key=rank)
