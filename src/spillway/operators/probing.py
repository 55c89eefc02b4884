"""Probe orders: in which order new rows of a stream visit the others, and predicates are looked at.

What is measured of a predicate is how many pairs it was given, how many passed, and how long it took.
The cheapest order makes the fewest pairs, weighed by what they cost: a stream that no predicate connects
with what is there already multiplies combinations, and comes late by itself. Measured time decides
nothing but orders, and no order changes a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from spillway.operators.base import MATCHED, SPENT
from spillway.operators.predicates import Predicate

#: What is taken for true of a predicate that was not measured yet.
GUESSED_SELECTIVITY = 0.1
GUESSED_COST_US = 0.05
#: What a candidate pair costs before any predicate sees it.
PAIR_COST_US = 0.01
#: Streams up to which all orders are compared; with more, the next best stream follows.
_ALL_ORDERS = 6


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


def probe_orders(
    names: Sequence[str],
    rows: Sequence[float],
    predicates: Sequence[Predicate],
    measured: Measured | None = None,
) -> tuple[tuple[int, ...], ...]:
    """For each stream that begins, the cheapest order of the others.

    `rows` are how many of each stream are in the state.
    """
    graph = _Graph(tuple(names), tuple(rows), tuple(predicates), measured or Measured())
    return tuple(graph.cheapest(source) for source in range(len(names)))


@dataclass(frozen=True)
class _Graph:
    names: tuple[str, ...]
    rows: tuple[float, ...]
    predicates: tuple[Predicate, ...]
    measured: Measured

    def cheapest(self, source: int) -> tuple[int, ...]:
        others = [at for at in range(len(self.names)) if at != source]
        if len(self.names) <= _ALL_ORDERS:
            return min(permutations(others), key=lambda order: (self._cost(source, order), order))
        order: list[int] = []
        while others:
            best = min(others, key=lambda one: self._step([source, *order], one))
            others.remove(best)
            order.append(best)
        return tuple(order)

    def _cost(self, source: int, order: Sequence[int]) -> float:
        total, combinations, done = 0.0, 1.0, [source]
        for target in order:
            left, cost = self._step(done, target)
            total += combinations * cost
            combinations *= left
            done.append(target)
        return total

    def _step(self, done: Sequence[int], target: int) -> tuple[float, float]:
        """Of one combination that visits a stream: the partners it finds, and what that costs."""
        known = {self.names[at] for at in (*done, target)}
        due = [
            one
            for one in self.predicates
            if self.names[target] in one.streams and known >= set(one.streams)
        ]
        pairs = max(self.rows[target], 1.0)
        cost = pairs * PAIR_COST_US
        for one in in_order(due, self.measured):
            cost += pairs * self.measured.cost_us(one)
            pairs *= self.measured.selectivity(one)
        return pairs, cost
