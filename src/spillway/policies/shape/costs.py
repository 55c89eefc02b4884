"""Which shape the join of a slot should have: local plan re-optimisation (PLANS section 1.2).

Costs are worked out from what a slot measures. A stream i brings r_i rows per second and has s_i rows of
state: those of its window, r_i W_i, or all there have been. The part of the pairs of rows of two streams
that match is their selectivity. Of a set S of streams, with P(S) the product of their s_i, and sel(S)
the part of all combinations that match,

    stored combinations     N(S) = sel(S) P(S)
    new ones per second     R(S) = sel(S) * sum over i in S of r_i P(S - i)

both exact for windows: a combination is new when its last row comes, whose partners are anywhere in
their windows. sel(S) follows from the pairs in S: all streams have the same keys, so |S| - 1 equalities
hold between them, and sel(S) is the geometric mean of the pairs' selectivities to that power. How far
that is wrong, because the same keys match in all pairs, or others do, is known of the whole join, by the
results that it has given: sel(S) is corrected by as much as its size is near to that of the whole.

Both depend on the set alone, not on how its combinations are made. So the cheapest shape of a set is
made of the cheapest shapes of its halves, and dynamic programming over sets finds it among all binary
trees, bushy ones included. Every set may also be joined at once, as the n-way join does it, each
stream's rows probing the others in the order that gives the fewest partial combinations first. `Costs`
says what probing, making and storing a row take.

When a slot gets another shape is said in policies/shape/proposal.py. All is pure: the same measurements
give the same answer.

Known limitation: of three and more streams, but not all, combinations are estimated so. Where some
streams match in other keys than the rest, the estimates are wrong by some factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from spillway.errors import QueryError
from spillway.metrics.counts import Counts, Sampled
from spillway.metrics.record import SlotRecord
from spillway.plan.shape import Shape, flat, streams_of

#: Streams up to which all shapes are compared.
MOST_STREAMS = 8
#: Bytes that a stored combination has besides those of its rows: a hash, and the time it expires by.
_COMBINATION_BYTES = 12
#: Combinations that are held, over those that live: they expire one by one, but go by layers.
_HELD = 2.0
#: Times that the price of memory is doubled, at most, until a shape fits.
_RAISES = 64
#: Prices that are tried at most to find the least of these: none, the highest, and halves of what is
#: between them.
_TRIES = 2 + (_RAISES - 1).bit_length()
#: What a step of the search takes at another price, over what it takes at the first: it has the work of
#: all joins from there. Measured with six to eight streams: 0.15 to 0.25.
_KNOWN_STEP = 0.2


@dataclass(frozen=True)
class StreamRates:
    """What a slot measures of one stream."""

    name: str
    #: Rows that come in a second of the stream, however long a slot works on them.
    rate: float
    #: Rows of state that a row of another stream meets.
    rows: float
    #: Bytes of a row.
    row_bytes: float = 32.0


@dataclass(frozen=True)
class JoinRates:
    """What a slot measures of a join."""

    streams: tuple[StreamRates, ...]
    #: For each two streams, in the order of their names, the part of their pairs of rows that match.
    selectivity: Mapping[tuple[str, str], float]
    #: Results per second that there are; None: not known.
    results: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(stream.name for stream in self.streams)


def pair_selectivities(names: Sequence[str], sampled: Counts) -> dict[tuple[str, str], float]:
    """The selectivity of all pairs of streams, from samples of (pairs of rows, matches).

    Half a match is added to what was found, so that a pair in which nothing matched yet is not free.

    Example:
        >>> pair_selectivities("AB", {Sampled("0", "1"): (1000.0, 19.5)})
        {('A', 'B'): 0.02}
    """
    found = {}
    for i, j in combinations(range(len(names)), 2):
        looked, matched = 0.0, 0.5
        for source, target in ((i, j), (j, i)):
            pairs, met = sampled.get(Sampled(str(source), str(target)), (0.0, 0.0))
            looked += pairs
            matched += met
        one, other = sorted((names[i], names[j]))
        found[one, other] = min(1.0, matched / looked) if looked else 1.0
    return found


def join_rates(names: Sequence[str], record: SlotRecord, seconds: float) -> JoinRates:
    """What a slot has measured, from its record of a batch whose rows came in so many seconds."""
    rows = [float(count) for count in record.state_rows[: len(names)]]
    streams = tuple(
        StreamRates(name, record.rows_in[at] / seconds, rows[at], record.state_bytes[at] / rows[at])
        if rows[at]
        else StreamRates(name, record.rows_in[at] / seconds, 0.0)
        for at, name in enumerate(names)
    )
    made = (record.rows_out - record.rows_cleaned) / seconds
    return JoinRates(streams, pair_selectivities(names, record.sampled), made)


@dataclass(frozen=True)
class Costs:
    """What work costs, in units of looking one row up in a stream.

    Fitted to the processor time of eleven plans: three mixtures of three streams with windows of four
    batches (spillway_lab/workloads/drift.py, and streams of one rate), most in all shapes. A lookup
    took 0.12 us, and the fit is within a quarter of each.
    """

    probe: float = 1.0
    #: For each pair that is found: its keys and times are compared.
    pair: float = 0.1
    #: For each combination that is stored: it is gathered, sorted, written, and merged a few times.
    store: float = 1.5
    #: For each result.
    result: float = 0.2
    #: For each byte of combinations that is held for a second.
    byte: float = 1e-5


COSTS = Costs()


@dataclass(frozen=True)
class ShapeCost:
    """What a shape costs."""

    #: Work per second, in units of `Costs`; memory included.
    work: float
    #: Bytes of intermediate states.
    memory_bytes: float


class Estimate:
    """Rates and sizes of sets of the streams of a join, which are numbers here, one bit each.

    What is asked of a set is worked out once; of many streams only a few of the sets are asked for.
    """

    def __init__(self, rates: JoinRates, costs: Costs = COSTS) -> None:
        self.names = rates.names
        self.costs = costs
        self.everything = (1 << len(self.names)) - 1
        self._streams = rates.streams
        self._selectivity = rates.selectivity
        self._bit = {name: 1 << at for at, name in enumerate(self.names)}
        self._known_rows: dict[int, float] = {0: 1.0}
        self._known_matching: dict[int, float] = {}
        self._known_joins: dict[tuple[int, ...], float] = {}
        #: What there are of results, over what was expected.
        self._factor = 1.0
        self._factor = self._found(rates.results)

    def _found(self, results: float | None) -> float:
        """What there are of results, which corrects the selectivities of more than two streams."""
        expected = self.flow(self.everything, self.everything)
        self._known_matching.clear()
        if results is None or len(self.names) < 3 or not expected:
            return 1.0
        # Half a result is added, so that those of a join that has had none are not free.
        return (results + 0.5) / expected

    def _rows(self, some: int) -> float:
        """The product of the rows of a set's streams."""
        if some not in self._known_rows:
            last = some.bit_length() - 1
            self._known_rows[some] = self._rows(some ^ (1 << last)) * self._streams[last].rows
        return self._known_rows[some]

    def _matching(self, some: int) -> float:
        """The part of all combinations of a set that match."""
        if some not in self._known_matching:
            members = [at for at in range(len(self.names)) if some >> at & 1]
            matching = 1.0
            for i, j in combinations(members, 2):
                one, other = sorted((self.names[i], self.names[j]))
                matching *= self._selectivity.get((one, other), 1.0)
            matching **= 2 / len(members)
            if len(members) > 2:
                matching *= self._factor ** ((len(members) - 2) / (len(self.names) - 2))
            self._known_matching[some] = matching
        return self._known_matching[some]

    def of(self, names: Sequence[str]) -> int:
        """The set of some streams."""
        return sum(self._bit[name] for name in names)

    def stored(self, some: int) -> float:
        """Combinations of a set that are there."""
        return self._matching(some) * self._rows(some)

    def flow(self, some: int, source: int) -> float:
        """Combinations of a set that rows of some of its streams complete, per second."""
        total = 0.0
        for at, stream in enumerate(self._streams):
            if source >> at & 1:
                total += stream.rate * self._rows(some & ~(1 << at))
        return self._matching(some) * total

    def join(self, children: Sequence[int]) -> float:
        """The work of joining what there is of some disjoint sets."""
        known = self._known_joins.get(tuple(children))
        if known is None:
            known = self._known_joins[tuple(children)] = self._joined(children)
        return known

    def _joined(self, children: Sequence[int]) -> float:
        work = 0.0
        for source in children:
            met, coming = source, self.flow(source, source)
            others = [child for child in children if child != source]
            # Fewest partners first, as the operator probes.
            others.sort(key=lambda other, source=source: self.flow(source | other, source))  # type: ignore[misc]
            for other in others:
                met |= other
                found = self.flow(met, source)
                work += coming * self.costs.probe + found * self.costs.pair
                coming = found
        return work

    def storing(self, some: int, raised: float = 1.0) -> float:
        """The work of keeping the combinations of a set, with memory so many times as dear."""
        held = self.bytes(some) * self.costs.byte * raised
        return self.flow(some, some) * self.costs.store + held

    def bytes(self, some: int) -> float:
        """Bytes of the combinations of a set."""
        width = sum(s.row_bytes for at, s in enumerate(self._streams) if some >> at & 1)
        return self.stored(some) * (width + _COMBINATION_BYTES) * _HELD

    def cost(self, shape: Shape) -> ShapeCost:
        """What a shape costs."""
        work = self.flow(self.everything, self.everything) * self.costs.result
        memory = 0.0
        for node in (*shape.inner(), shape):
            work += self.join([self.of(streams_of(child)) for child in node.children])
            if node is not shape:
                some = self.of(node.streams)
                work += self.storing(some)
                memory += self.bytes(some)
        return ShapeCost(work, memory)

    def making(self, shape: Shape, there: Shape) -> float:
        """The work of making the states that one shape has and another has not."""
        known = {node.name for node in there.inner()}
        new = [self.of(node.streams) for node in shape.inner() if node.name not in known]
        per_row = self.costs.pair + self.costs.store
        return sum(self.stored(some) * per_row for some in new)


def cheapest(
    rates: JoinRates,
    costs: Costs = COSTS,
    room_bytes: float | None = None,
    *,
    binary: bool = False,
) -> Shape:
    """The cheapest shape; with `room_bytes`, the cheapest found whose states fit into them.

    Binary trees may all be too large; then it is one that stores little.

    Example:
        >>> from dataclasses import replace
        >>> few, many = (StreamRates(n, r, 10 * r) for n, r in (("A", 1.0), ("B", 100.0)))
        >>> streams = (few, many, replace(few, name="C"))
        >>> equal = {pair: 0.01 for pair in (("A", "B"), ("A", "C"), ("B", "C"))}
        >>> str(cheapest(JoinRates(streams, equal)))
        '((A C) B)'
    """
    if len(rates.streams) > MOST_STREAMS:
        raise QueryError(
            f"shapes are compared for up to {MOST_STREAMS} streams, not {len(rates.streams)}",
            hint='use plan("nway"), or join in two queries',
        )
    estimate = Estimate(rates, costs)

    def at_price(doubled: int) -> tuple[Shape, bool]:
        shape = _cheapest(estimate, 2.0**doubled, binary=binary)
        return shape, room_bytes is None or estimate.cost(shape).memory_bytes <= room_bytes

    found, fits = at_price(0)
    if fits:
        return found
    # What does not fit is made dearer until it is not worth it. The dearer memory is, the less of it has
    # the cheapest shape, so the least price at which one fits is found by halves.
    found, fits = at_price(_RAISES - 1)
    if not fits:
        return found if binary else flat(rates.names)
    low, high = 0, _RAISES - 1
    while high - low > 1:
        middle = (low + high) // 2
        shape, fits = at_price(middle)
        if fits:
            high, found = middle, shape
        else:
            low = middle
    return found


def search_steps(streams: int, *, limited: bool) -> int:
    """Steps of a search for the cheapest shape at most; `limited` if it is to fit into memory.

    Example:
        >>> search_steps(8, limited=False), search_steps(8, limited=True)
        (6561, 15746)
    """
    first: int = 3**streams
    return first + round(first * _KNOWN_STEP * (_TRIES - 1)) if limited else first


def _cheapest(estimate: Estimate, raised: float, *, binary: bool) -> Shape:
    """Dynamic programming over the sets of streams, by size: 3**n steps."""
    best: dict[int, tuple[float, Shape | str]] = {
        1 << at: (0.0, name) for at, name in enumerate(estimate.names)
    }
    for some in sorted(range(1, estimate.everything + 1), key=int.bit_count):
        if some in best:
            continue
        streams = [1 << at for at in range(len(estimate.names)) if some >> at & 1]
        at_once = flat(estimate.names[one.bit_length() - 1] for one in streams)
        least, shape = math.inf if binary else estimate.join(streams), at_once
        for left in _halves(some):
            right = some ^ left
            work = best[left][0] + best[right][0] + estimate.join([left, right])
            if work < least:
                least, shape = work, Shape((best[left][1], best[right][1]))
        stored = 0.0 if some == estimate.everything else estimate.storing(some, raised)
        best[some] = (least + stored, shape)
    found = best[estimate.everything][1]
    assert isinstance(found, Shape)
    return found


def _halves(some: int) -> Iterator[int]:
    """The proper parts of a set that have its first member: each way to cut it in two, once."""
    first = some & -some
    rest = some ^ first
    part = rest
    while part:
        part = (part - 1) & rest
        yield first | part
