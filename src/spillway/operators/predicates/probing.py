"""Measurements of predicates: how many pairs each tested, how many passed, and how long it took.

They decide the order of predicates, and the order in which rows visit streams. This module orders
streams if rows have equal keys, or if one slot has all streams of an interval; otherwise the driver
does (policies/ring/probing.py). Measured time decides only orders, and no order changes a result.

Nor does an order make a query fail. A predicate that can fail (`Predicate.can_fail`) never comes before
one that the user wrote earlier: in `match("a.x != b.x").match("1 / (a.x - b.x) > 2")` the first guards
the second, as it does in one condition with `and`. Others may come before it, which only spares it
pairs. So a condition fails at most where it would from left to right, as Spark evaluates `and`. This
holds for guards over other streams too (`guarded` in operators/predicates/predicate.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from spillway.metrics.counts import Counts, Judged, Spent, added, of_predicates
from spillway.operators.predicates.predicate import Predicate, due

#: Assumptions about a predicate that has not been measured yet.
GUESSED_SELECTIVITY = 0.1
GUESSED_COST_US = 0.05
#: Rows of a stream that a row finds by its key, until they are counted.
GUESSED_PARTNERS = 10.0
#: Microseconds of a pair without any predicate: a vectorised copy.
PAIRED_US = 0.02


@dataclass(frozen=True)
class Measured:
    """Counts of predicates, as manifests store them (metrics/counts.py)."""

    counts: Counts = field(default_factory=dict)

    def selectivity(self, predicate: Predicate) -> float:
        """The fraction of pairs that pass."""
        pairs, passed = self.counts.get(Judged(predicate.label), (0.0, 0.0))
        return passed / pairs if pairs else GUESSED_SELECTIVITY

    def cost_us(self, predicate: Predicate) -> float:
        """Microseconds of a pair."""
        pairs, seconds = self.counts.get(Spent(predicate.label), (0.0, 0.0))
        if pairs:
            return 1e6 * seconds / pairs
        return GUESSED_COST_US if predicate.cost_us is None else predicate.cost_us


def together(counts: Sequence[Counts]) -> Measured:
    """The counts of several slots or visits, added up."""
    return Measured(of_predicates(added(counts)))


def in_order(predicates: Sequence[Predicate], measured: Measured) -> list[Predicate]:
    """Predicates, sorted so that those that discard the most pairs for their cost come first.

    They are given in the user's order, and one that can fail waits for all before it.
    """

    def rank(predicate: Predicate) -> float:
        return measured.cost_us(predicate) / max(1.0 - measured.selectivity(predicate), 1e-9)

    found, rest = [], list(predicates)
    while rest:
        ready = [at for at, one in enumerate(rest) if at == 0 or not one.can_fail]
        found.append(rest.pop(min(ready, key=lambda at: rank(rest[at]))))
    return found


def probe_order(
    source: str,
    streams: Sequence[str],
    predicates: Sequence[Predicate],
    partners: Mapping[str, float],
    measured: Measured,
) -> tuple[str, ...]:
    """The other streams, in the order in which a row of one stream looks for partners.

    The lowest rank comes next, (found - 1) / work: few combinations for little work. `partners` is the
    number of rows that a row finds by its key. A stream in which it finds several, and which no
    predicate connects with those before, would multiply combinations: it waits until it is connected.

    Example:
        >>> ab, bc = (Predicate(on, tuple(on), min) for on in ("ab", "bc"))
        >>> probe_order("a", "abc", [ab, bc], {"b": 9.0, "c": 3.0}, Measured())
        ('b', 'c')
        >>> probe_order("a", "abc", [ab, bc], {"b": 9.0, "c": 0.1}, Measured())
        ('c', 'b')
    """
    there, rest = [source], [name for name in streams if name != source]
    while rest:
        asked = {name: due(predicates, there, name) for name in rest}
        some = any(asked.values())
        ready = [name for name in rest if not some or asked[name] or partners.get(name, inf) <= 1]
        there.append(min(ready, key=lambda name: _rank(partners.get(name), asked[name], measured)))
        rest.remove(there[-1])
    return tuple(there[1:])


def _rank(partners: float | None, asked: Sequence[Predicate], measured: Measured) -> float:
    """The growth of combinations in a step, for its work."""
    pairs = GUESSED_PARTNERS if partners is None else partners
    passed, pair_us = 1.0, PAIRED_US
    for predicate in in_order(asked, measured):
        pair_us += passed * measured.cost_us(predicate)
        passed *= measured.selectivity(predicate)
    return (pairs * passed - 1.0) / max(pairs * pair_us, 1e-9)
