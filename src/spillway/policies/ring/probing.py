"""In which order a row of each stream probes the others, by measured selectivity and cost of predicates.

A step from a set of streams to the next one meets rows_j rows for each partial combination. Predicates
between the set and the stream apply together; they are evaluated from the lowest rank on, rank being
(selectivity - 1) / cost, so that each further one sees the pairs that those before it let pass. The work
of a step so depends on the set alone, not on the order in it, and dynamic programming over sets finds
the cheapest order. Where steps are independent it is the order by rank, (found - 1) / work.

A stream that no predicate connects with the set is a cross product: it comes only where no other is
left. Equal costs keep the streams in the order given, so the same measurements give the same orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spillway.operators.predicates.predicate import Predicate as Asked
from spillway.operators.predicates.probing import PAIRED_US, Measured
from spillway.policies.ring.model import ProbeStep, Source

#: Streams up to which all orders are compared; beyond it the best next step is taken. Orders are made
#: anew in every batch: those of a star of 8 take 20 ms, of 12 it were 1.5 s.
MOST_STREAMS = 8
#: A pair that nothing compares is still made.
_CROSS_S = PAIRED_US * 1e-6


@dataclass(frozen=True)
class Stream:
    """What is measured of a stream."""

    name: str
    rate: float
    #: Rows in its window.
    rows: float

    @classmethod
    def sampled(cls, name: str, rows: int, span_us: int, window_us: int) -> Stream:
        """A stream of which some rows are known, and how far the times of the first and last are apart.

        Rows of one time say nothing of how many come a second; they are taken for those of a window.

        Example:
            >>> Stream.sampled("a", rows=11, span_us=5_000_000, window_us=60_000_000)
            Stream(name='a', rate=2.0, rows=120.0)
        """
        window_s = window_us / 1e6
        rate = (rows - 1) / (span_us / 1e6) if span_us else rows / window_s
        return cls(name, rate, rate * window_s)


@dataclass(frozen=True)
class Predicate:
    """What is measured of a predicate between two streams, or more."""

    left: str
    right: str
    selectivity: float
    pair_s: float
    others: tuple[str, ...] = ()

    @property
    def rank(self) -> float:
        """Those with a low one go first: they drop many pairs at little cost."""
        return (self.selectivity - 1.0) / max(self.pair_s, 1e-12)

    def joins(self, streams: frozenset[str], other: str) -> bool:
        """Whether it is between some of the streams and another one, which completes it."""
        members = {self.left, self.right, *self.others}
        return other in members and members - {other} <= streams


def next_step(
    streams: Sequence[Stream], predicates: Sequence[Predicate], there: frozenset[str], name: str
) -> ProbeStep:
    """The step from some streams to the next one.

    Example:
        >>> a, b = Stream("a", 1, 10), Stream("b", 1, 10)
        >>> cheap, dear = Predicate("a", "b", 0.5, 1.0), Predicate("a", "b", 0.5, 3.0)
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


def probe_orders(streams: Sequence[Stream], predicates: Sequence[Predicate]) -> tuple[Source, ...]:
    """The cheapest order for each stream's rows, as the sources of the cost model."""
    find = _cheapest if len(streams) <= MOST_STREAMS else _by_rank
    return tuple(Source(one.name, one.rate, find(streams, predicates, one.name)) for one in streams)


def sources_of(
    streams: Sequence[Stream], asked: Sequence[Asked], measured: Measured
) -> tuple[Source, ...]:
    """The cheapest orders of a running join, by what was measured of its predicates."""
    known = [
        Predicate(
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
    """The orders alone, streams by their numbers.

    Example:
        >>> a, b, c = (Stream(name, 1.0, 10.0) for name in "abc")
        >>> orders_of(probe_orders([a, b, c], [Predicate("a", "c", 0.1, 1e-6)]))
        ((2, 1), (0, 2), (0, 1))
    """
    number = {source.name: at for at, source in enumerate(sources)}
    return tuple(tuple(number[step.stream] for step in source.steps) for source in sources)


def _nexts(
    streams: Sequence[Stream], predicates: Sequence[Predicate], there: frozenset[str]
) -> list[str]:
    """The streams that may come next: connected ones, or any where none is."""
    others = [one.name for one in streams if one.name not in there]
    joined = [name for name in others if any(one.joins(there, name) for one in predicates)]
    return joined or others


def _cheapest(
    streams: Sequence[Stream], predicates: Sequence[Predicate], source: str
) -> tuple[ProbeStep, ...]:
    """Dynamic programming over the sets that contain the source, by size."""
    #: Of a set: the least work to come to it, the combinations there, and the steps taken.
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
    streams: Sequence[Stream], predicates: Sequence[Predicate], source: str
) -> tuple[ProbeStep, ...]:
    """The step with the lowest rank, again and again."""
    there, steps = frozenset([source]), []
    while len(there) < len(streams):
        ready = [
            next_step(streams, predicates, there, name)
            for name in _nexts(streams, predicates, there)
        ]
        steps.append(min(ready, key=lambda one: (one.found - 1.0) / max(one.work_s, 1e-12)))
        there |= {steps[-1].stream}
    return tuple(steps)
