"""Probe orders of each stream's rows, from the measured selectivity and cost of predicates.

A step from a set of streams to the next one meets rows_j rows for each partial combination. All
predicates between the set and the stream apply, lowest rank first, where rank is (selectivity - 1)
/ cost. The work of a step depends only on the set, so dynamic programming over sets finds the
cheapest order. If steps are independent, it is the order by rank, (found - 1) / work.

A stream that no predicate connects with the set is a cross product, and comes last. Equal costs keep
the given order, so equal measurements give equal orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spillway.operators.predicates.predicate import Predicate
from spillway.operators.predicates.probing import PAIRED_US, Measured
from spillway.policies.ring.model import ProbeStep, Source

#: Streams up to which all orders are compared; beyond it, each step takes the best next stream.
#: Every batch computes orders again: a star of 8 takes 20 ms, 12 would take 1.5 s.
MOST_STREAMS = 8
#: Even without a comparison, making a pair has a cost.
_CROSS_S = PAIRED_US * 1e-6


@dataclass(frozen=True)
class MeasuredStream:
    """Measurements of a stream."""

    name: str
    rate: float
    #: Rows in its window.
    rows: float

    @classmethod
    def sampled(cls, name: str, rows: int, span_us: int, window_us: int) -> MeasuredStream:
        """Returns a stream from sampled rows, and the time between the first and the last.

        Rows of a single time tell no rate; they count as the rows of one window.

        Example:
            >>> MeasuredStream.sampled("a", rows=11, span_us=5_000_000, window_us=60_000_000)
            MeasuredStream(name='a', rate=2.0, rows=120.0)
        """
        window_s = window_us / 1e6
        rate = (rows - 1) / (span_us / 1e6) if span_us else rows / window_s
        return cls(name, rate, rate * window_s)


@dataclass(frozen=True)
class MeasuredPredicate:
    """Measurements of a predicate between two or more streams."""

    left: str
    right: str
    selectivity: float
    pair_s: float
    others: tuple[str, ...] = ()

    @property
    def rank(self) -> float:
        """The rank; low ranks go first: they drop many pairs at little cost."""
        return (self.selectivity - 1.0) / max(self.pair_s, 1e-12)

    def joins(self, streams: frozenset[str], other: str) -> bool:
        """Whether it is between some of the streams and another one, which completes it."""
        members = {self.left, self.right, *self.others}
        return other in members and members - {other} <= streams


def next_step(
    streams: Sequence[MeasuredStream],
    predicates: Sequence[MeasuredPredicate],
    there: frozenset[str],
    name: str,
) -> ProbeStep:
    """Returns the step from some streams to the next one.

    Example:
        >>> a, b = MeasuredStream("a", 1, 10), MeasuredStream("b", 1, 10)
        >>> cheap, dear = MeasuredPredicate("a", "b", 0.5, 1.0), MeasuredPredicate("a", "b", 0.5, 3.0)
        >>> found = next_step([a, b], [dear, cheap], frozenset("a"), "b")
        >>> found.selectivity, found.pair_s
        (0.25, 2.5)
    """
    [stream] = [one for one in streams if one.name == name]
    passed, pair_s = 1.0, 0.0
    between = [one for one in predicates if one.joins(there, name)]
    for one in sorted(between, key=lambda one: one.rank):
        pair_s += passed * one.pair_s
        passed *= one.selectivity
    return ProbeStep(name, stream.rows, passed, pair_s if between else _CROSS_S)


def probe_orders(
    streams: Sequence[MeasuredStream], predicates: Sequence[MeasuredPredicate]
) -> tuple[Source, ...]:
    """Returns the cheapest order for each stream's rows, as sources of the cost model."""
    find = _cheapest if len(streams) <= MOST_STREAMS else _by_rank
    return tuple(Source(one.name, one.rate, find(streams, predicates, one.name)) for one in streams)


def sources_of(
    streams: Sequence[MeasuredStream], asked: Sequence[Predicate], measured: Measured
) -> tuple[Source, ...]:
    """Returns the cheapest orders of a running join, from its predicate measurements."""
    known = [
        MeasuredPredicate(
            one.streams[0],
            one.streams[1],
            measured.selectivity(one),
            measured.cost_us(one) * 1e-6,
            one.streams[2:],
        )
        for one in asked
    ]
    return probe_orders(streams, known)


def orders_of(sources: Sequence[Source]) -> tuple[tuple[int, ...], ...]:
    """Returns only the orders, with streams as numbers.

    Example:
        >>> a, b, c = (MeasuredStream(name, 1.0, 10.0) for name in "abc")
        >>> orders_of(probe_orders([a, b, c], [MeasuredPredicate("a", "c", 0.1, 1e-6)]))
        ((2, 1), (0, 2), (0, 1))
    """
    number = {source.name: at for at, source in enumerate(sources)}
    return tuple(tuple(number[step.stream] for step in source.steps) for source in sources)


def _nexts(
    streams: Sequence[MeasuredStream],
    predicates: Sequence[MeasuredPredicate],
    there: frozenset[str],
) -> list[str]:
    """Returns the streams that may come next: connected ones, or any if there are none."""
    others = [one.name for one in streams if one.name not in there]
    joined = [name for name in others if any(one.joins(there, name) for one in predicates)]
    return joined or others


def _cheapest(
    streams: Sequence[MeasuredStream], predicates: Sequence[MeasuredPredicate], source: str
) -> tuple[ProbeStep, ...]:
    """Runs dynamic programming over the sets that contain the source, by size."""
    #: Per set: the least work to reach it, the combinations there, and the steps taken.
    best: dict[frozenset[str], tuple[float, float, tuple[ProbeStep, ...]]] = {
        frozenset([source]): (0.0, 1.0, ())
    }
    for _ in range(len(streams) - 1):
        longer: dict[frozenset[str], tuple[float, float, tuple[ProbeStep, ...]]] = {}
        for there, (work_s, coming, steps) in best.items():
            for name in _nexts(streams, predicates, there):
                taken = next_step(streams, predicates, there, name)
                total, grown = work_s + coming * taken.work_s, there | {name}
                if total < longer.get(grown, (math.inf, 0.0, ()))[0]:
                    longer[grown] = total, coming * taken.found, (*steps, taken)
        best = longer
    return next(iter(best.values()))[2]


def _by_rank(
    streams: Sequence[MeasuredStream], predicates: Sequence[MeasuredPredicate], source: str
) -> tuple[ProbeStep, ...]:
    """Takes the step with the lowest rank, repeatedly."""
    there, steps = frozenset([source]), []
    while len(there) < len(streams):
        ready = [
            next_step(streams, predicates, there, name)
            for name in _nexts(streams, predicates, there)
        ]
        steps.append(min(ready, key=lambda one: (one.found - 1.0) / max(one.work_s, 1e-12)))
        there |= {steps[-1].stream}
    return tuple(steps)
