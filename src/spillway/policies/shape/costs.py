"""The cost model of join shapes: local plan re-optimisation (PLANS section 1.2).

A slot measures for each stream i the rate r_i, in rows per second, and the rows of state s_i: those
of its window, r_i W_i, or all so far. It also measures the selectivity of each two streams: the
fraction of row pairs that match. For a set S of streams, with P(S) the product of their s_i, and
sel(S) the fraction of all combinations that match,

    stored combinations     N(S) = sel(S) P(S)
    new ones per second     R(S) = sel(S) * sum over i in S of r_i P(S - i)

Both are exact for windows. All streams have the same keys, so |S| - 1 equalities hold, and sel(S)
is the geometric mean of the pairs' selectivities to that power. This is wrong if the same keys
match in all pairs, or others do. The results of the whole join show by how much, and correct sel(S)
in proportion to its size.

Both depend only on the set, so dynamic programming over sets finds the cheapest shape among all
binary trees. Every set may also be joined at once, as in the n-way join, fewest partial
combinations first. `Costs` holds the costs of probing, making and storing a row.

policies/shape/proposal.py decides when a slot changes its shape. All functions are pure.

Known limitation: for three or more streams, but not all, the sizes are estimates: wrong by some
factor if some streams match in other keys than the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from spillway.errors import QueryError
from spillway.metrics.counts import Counts, Sampled
from spillway.metrics.record import SlotRecord
from spillway.plan.shape import Shape, flat, streams_of

#: Streams up to which all shapes are compared.
MOST_STREAMS = 8
#: Extra bytes of a stored combination: a hash, and its time of expiry.
_COMBINATION_BYTES = 12
#: Combinations held, relative to live ones: they expire one by one, but leave by layers.
_HELD = 2.0
#: How often the price of memory doubles, at most, until a shape fits.
_RAISES = 64
#: Prices tried, at most, to find the least of these: zero, the highest, and a bisection in between.
_TRIES = 2 + (_RAISES - 1).bit_length()
#: Cost of a search step at another price, relative to the first: the work of all joins is known by
#: then. Measured with six to eight streams: 0.15 to 0.25.
_KNOWN_STEP = 0.2


@dataclass(frozen=True)
class StreamRates:
    """Measurements of one stream in a slot."""

    name: str
    #: Rows per second of stream time, however long a slot works on them.
    rate: float
    #: Rows of state that a row of another stream meets.
    rows: float
    row_bytes: float = 32.0


@dataclass(frozen=True)
class JoinRates:
    """Measurements of a join in a slot."""

    streams: tuple[StreamRates, ...]
    #: For each pair of streams, in the order of their names, the fraction of row pairs that match.
    selectivity: Mapping[tuple[str, str], float]
    #: Measured results per second; None: not known.
    results: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(stream.name for stream in self.streams)


def pair_selectivities(names: Sequence[str], sampled: Counts) -> dict[tuple[str, str], float]:
    """Returns the selectivity of all stream pairs, from samples of (row pairs, matches).

    It adds half a match, so that a pair without any match yet is not free.

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
    """Returns a slot's measurements, from the record of a batch whose rows came in `seconds`."""
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
    """Costs of work, in units of one row lookup in a stream.

    Fitted to the CPU time of eleven plans: three mixtures of three streams with windows of four
    batches (spillway_lab/workloads/drift.py, and streams of one rate), most in all shapes. A lookup
    took 0.12 us, and the fit is within a quarter of each.
    """

    probe: float = 1.0
    #: Per pair found: compares its keys and times.
    pair: float = 0.1
    #: Per stored combination: gathers, sorts and writes it, and merges it a few times.
    store: float = 1.5
    #: Per result.
    result: float = 0.2
    #: Per byte of combinations held for a second.
    byte: float = 1e-5


COSTS = Costs()


@dataclass(frozen=True)
class ShapeCost:
    """The cost of a shape."""

    #: Work per second, in units of `Costs`, including memory.
    work: float
    #: Bytes of intermediate states.
    memory_bytes: float


class Estimate:
    """Rates and sizes of sets of streams; a set is a number, with one bit per stream.

    It computes each value once; with many streams it needs only a few of the sets.
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
        #: Measured results relative to expected results.
        self._factor = 1.0
        self._factor = self._found(rates.results)

    def _found(self, results: float | None) -> float:
        """Compares measured with expected results, to correct larger sets of streams."""
        expected = self.flow(self.everything, self.everything)
        self._known_matching.clear()
        if results is None or len(self.names) < 3 or not expected:
            return 1.0
        # Add half a result, so that a join without results is not free.
        return (results + 0.5) / expected

    def _rows(self, some: int) -> float:
        """Returns the product of the rows of a set's streams."""
        if some not in self._known_rows:
            last = some.bit_length() - 1
            self._known_rows[some] = self._rows(some ^ (1 << last)) * self._streams[last].rows
        return self._known_rows[some]

    def _matching(self, some: int) -> float:
        """Returns the fraction of all combinations of a set that match."""
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
        """Returns the set of some streams."""
        return sum(self._bit[name] for name in names)

    def stored(self, some: int) -> float:
        """Returns the number of stored combinations of a set."""
        return self._matching(some) * self._rows(some)

    def flow(self, some: int, source: int) -> float:
        """Returns the combinations of a set that rows of `source` complete, per second."""
        total = 0.0
        for at, stream in enumerate(self._streams):
            if source >> at & 1:
                total += stream.rate * self._rows(some & ~(1 << at))
        return self._matching(some) * total

    def join(self, children: Sequence[int]) -> float:
        """Returns the work of joining some disjoint sets."""
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
            others.sort(key=partial(self._partners, source))
            for other in others:
                met |= other
                found = self.flow(met, source)
                work += coming * self.costs.probe + found * self.costs.pair
                coming = found
        return work

    def _partners(self, source: int, other: int) -> float:
        return self.flow(source | other, source)

    def storing(self, some: int, raised: float = 1.0) -> float:
        """Returns the work of keeping a set's combinations, with memory `raised` times as dear."""
        held = self.bytes(some) * self.costs.byte * raised
        return self.flow(some, some) * self.costs.store + held

    def bytes(self, some: int) -> float:
        """Returns the bytes of the combinations of a set."""
        width = sum(s.row_bytes for at, s in enumerate(self._streams) if some >> at & 1)
        return self.stored(some) * (width + _COMBINATION_BYTES) * _HELD

    def cost(self, shape: Shape) -> ShapeCost:
        """Returns the cost of a shape."""
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
        """Returns the work of making the states that one shape has and another lacks."""
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
    """Returns the cheapest shape; with `room_bytes`, the cheapest found whose states fit.

    All binary trees may be too large; then it returns one that stores little.

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
            (
                f"the optimizer compares shapes of up to {MOST_STREAMS} streams, not "
                f"{len(rates.streams)}"
            ),
            hint='use plan("nway"), or split the join into two queries',
        )
    estimate = Estimate(rates, costs)

    def at_price(doubled: int) -> tuple[Shape, bool]:
        shape = _cheapest(estimate, 2.0**doubled, binary=binary)
        return shape, room_bytes is None or estimate.cost(shape).memory_bytes <= room_bytes

    found, fits = at_price(0)
    if fits:
        return found
    # Raise the price of memory until a shape fits. The higher the price, the less memory the
    # cheapest shape takes, so bisection finds the least price at which one fits.
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
    """Returns the most steps of a search for the cheapest shape; `limited`: it must fit memory.

    Example:
        >>> search_steps(8, limited=False), search_steps(8, limited=True)
        (6561, 15746)
    """
    first: int = 3**streams
    return first + round(first * _KNOWN_STEP * (_TRIES - 1)) if limited else first


def _cheapest(estimate: Estimate, raised: float, *, binary: bool) -> Shape:
    """Runs dynamic programming over the sets of streams, by size: 3**n steps."""
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
    """Yields the proper subsets with the set's first member: each split in two, once."""
    first = some & -some
    rest = some ^ first
    part = rest
    while part:
        part = (part - 1) & rest
        yield first | part
