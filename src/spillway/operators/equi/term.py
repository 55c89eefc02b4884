"""One term of a join: rows of one side against given rows of all other sides.

A term is a depth-first expansion. A block of partial combinations probes the next side. The pairs
found, at most one block, are the next block, expanded to the end before the next pairs. So memory
holds one block per side, however many combinations a hot key has. Rows travel as positions; the
term gathers them once, when a combination is complete.

A side is a stream, or stored combinations of several streams (operators/equi/tree.py).

Windows (PSP section 2): a combination is valid when T - t_i < W_i for all its rows, where T is its
    largest time; that is, T < min(t_i + W_i). A block carries both values, so each probe also
    discards partial combinations that no further row can complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.probe import expand
from spillway.metrics.counts import Counts, Probed
from spillway.operators.equi.refs import RefWidths
from spillway.operators.equi.residual import ColumnOfPairs, Residual
from spillway.operators.pool import Pool, Positions, Ranges, Refs
from spillway.operators.stats import OperatorStats
from spillway.rows.cutting import Taken, TakenRows, cut_taken
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData, as_numpy


@dataclass(frozen=True)
class Side:
    """What a term needs to know about the rows of one side."""

    #: Its name in match counts.
    label: str
    #: Positions of the keys among the stored columns.
    keys: tuple[int, ...]
    #: Positions of the event times of a row's source rows; empty without a window.
    times: tuple[int, ...] = ()
    #: How long a row finds partners, counted from its expiry time; None without a window.
    window_us: int | None = None

    #: Position of the time by which rows expire; None without a window.
    expiry: int | None = None

    def latest(self, times: Callable[[int], NDArray[np.int64]]) -> NDArray[np.int64] | None:
        """Returns the largest event time of each row; `times` reads a column of rows."""
        found = [times(column) for column in self.times]
        if not found:
            return None
        latest: NDArray[np.int64] = np.maximum.reduce(found)
        return latest

    def deadline(self, times: Callable[[int], NDArray[np.int64]]) -> NDArray[np.int64] | None:
        """Returns when rows stop finding partners: the least t_i + W_i of each."""
        if self.expiry is None or self.window_us is None:
            return None
        return times(self.expiry) + self.window_us


@dataclass(frozen=True)
class Block:
    """Partial combinations, in the order of their source rows (so ascending by hash)."""

    source: Positions
    found: dict[int, Refs]
    #: The largest time so far, and the least t_i + W_i; None without a window.
    latest: NDArray[np.int64] | None
    deadline: NDArray[np.int64] | None

    def take(self, at: Positions | slice) -> Block:
        """Selects some of the combinations."""
        found = {side: refs.take(at) for side, refs in self.found.items()}
        latest = None if self.latest is None else self.latest[at]
        deadline = None if self.deadline is None else self.deadline[at]
        return Block(self.source[at], found, latest, deadline)


@dataclass(frozen=True)
class Pairs:
    """Rows of a block, and the rows of a side that fit to them."""

    left: Positions
    refs: Refs
    latest: NDArray[np.int64] | None
    deadline: NDArray[np.int64] | None

    def take(self, at: Positions | slice) -> Pairs:
        """Selects some of the pairs."""
        latest = None if self.latest is None else self.latest[at]
        deadline = None if self.deadline is None else self.deadline[at]
        return Pairs(self.left[at], self.refs.take(at), latest, deadline)


class Term:
    """Rows of one side, the source, against given rows of the others."""

    def __init__(
        self,
        sides: Sequence[Side],
        source: int,
        driving: RunData,
        rows: Sequence[Sequence[Segment]],
        stats: OperatorStats,
        pair_rows: int,
        residual: Residual | None = None,
    ) -> None:
        self.driving = driving
        self.sides = sides
        self.source = source
        self._rows = rows
        self._stats = stats
        #: Pairs made at a time: held and added pairs together are at most twice as many.
        self._pair_rows = pair_rows
        #: Filters pairs further; sides are then streams.
        self._residual = residual
        self._measured: Counts = {}
        self._pools: dict[int, Pool] = {}
        self._keys = [driving.payload.column(at) for at in sides[source].keys]

    def blocks(self, selectivity: Counts) -> Iterator[Block]:
        """Yields all combinations; probes the sides in the order of their measured selectivity."""
        self._measured = selectivity
        if all(rows for side, rows in enumerate(self._rows) if side != self.source):
            labels = [side.label for side in self.sides]
            known = partners(self.source, labels, selectivity)
            order = (
                probe_order(self.source, len(labels), known)
                if self._residual is None
                else self._residual.order(self.source, known, selectivity)
            )
            yield from self._expanded(self.first_block(), order)

    def gatherable(self, block: Block, wanted: Mapping[int, Sequence[int]]) -> Iterator[Block]:
        """Cuts complete combinations into blocks of bounded bytes (rows/cutting.py).

        `wanted` has the columns of each side that are about to be gathered.
        """
        taken = [self._taken(block, side, columns) for side, columns in wanted.items()]
        for begin, end in cut_taken(taken, len(block.source)):
            whole = end - begin == len(block.source)
            yield block if whole else block.take(slice(begin, end))

    def columns(self, block: Block, side: int, wanted: Sequence[int]) -> list[pa.Array]:
        """Returns columns of one side, for complete combinations."""
        if side == self.source:
            rows = self.driving.payload.select(list(wanted)).take(pa.array(block.source))
            return list(rows.columns)
        return self._pool(side).gather(block.found[side], wanted)

    def _taken(self, block: Block, side: int, wanted: Sequence[int]) -> Taken:
        if side == self.source:
            return TakenRows(self.driving.widths(wanted), block.source)
        return RefWidths(self._rows[side], block.found[side], wanted)

    def first_block(self) -> Block:
        """Returns the driving rows, without other sides."""

        def times(column: int) -> NDArray[np.int64]:
            return as_numpy(self.driving.payload.column(column), np.int64)

        side, rows = self.sides[self.source], np.arange(self.driving.rows, dtype=np.int32)
        return Block(rows, {}, side.latest(times), side.deadline(times))

    def _expanded(self, block: Block, order: tuple[int, ...]) -> Iterator[Block]:
        if not order:
            yield block
            return
        target, rest = order[0], order[1:]
        for pairs in self.blocks_of_pairs(block, target):
            yield from self._expanded(extended(block, target, pairs, sort=bool(rest)), rest)
        self._count(target, len(block.source), 0)

    def _count(self, target: int, rows: int, matched: int) -> None:
        """Counts partners by keys and times; what predicates leave is counted with the predicates."""
        self._stats.count_probed(
            self.sides[self.source].label, self.sides[target].label, rows, matched
        )

    def blocks_of_pairs(self, block: Block, target: int) -> Iterator[Pairs]:
        """Yields the pairs of a block with all rows of a side, collected into full blocks."""
        held: list[Pairs] = []
        size = 0
        for ranges in self._pool(target).ranges(self.driving.h[block.source]):
            for pairs in self._pairs(block, target, ranges):
                held.append(pairs)
                size += len(pairs.left)
                if size >= self._pair_rows:
                    yield _together(held)
                    held, size = [], 0
        if held:
            yield _together(held)

    def _pool(self, side: int) -> Pool:
        if side not in self._pools:
            self._pools[side] = Pool(self._rows[side])
        return self._pools[side]

    def _pairs(self, block: Block, target: int, ranges: Ranges) -> Iterator[Pairs]:
        """Yields the pairs of some ranges, a bounded number at a time."""
        which = np.arange(len(ranges.which), dtype=np.int32)
        at, offset = 0, 0
        while at < len(which):
            found, row, at, offset = expand(
                which, ranges.start, ranges.rows, at, offset, self._pair_rows
            )
            refs = Refs(ranges.segment[found], row)
            pairs = self._confirmed(block, target, ranges.which[found], refs)
            self._count(target, 0, len(pairs.left))
            if self._residual is None:
                passed = iter([pairs])
            else:
                passed = self._passed(self._residual, block, target, pairs)
            yield from (some for some in passed if len(some.left))

    def _confirmed(self, block: Block, target: int, left: Positions, refs: Refs) -> Pairs:
        """Keeps the candidates whose keys are really equal and whose times fit together."""
        pool, side = self._pool(target), self.sides[target]
        source = block.source[left]
        same = np.ones(len(left), np.bool_)
        for mine, theirs in zip(self._keys, side.keys, strict=True):
            same &= pool.equal(mine, source, theirs, refs)
        if not same.all():
            left, refs = left[same], refs.take(same)
        if block.latest is None or block.deadline is None:
            return Pairs(left, refs, None, None)
        times = partial(pool.times, refs=refs)
        latest, deadline = side.latest(times), side.deadline(times)
        if latest is None or deadline is None:
            return Pairs(left, refs, None, None)
        latest = np.maximum(block.latest[left], latest)
        deadline = np.minimum(block.deadline[left], deadline)
        pairs = Pairs(left, refs, latest, deadline)
        fit = latest < deadline
        return pairs if fit.all() else pairs.take(fit)

    def _passed(
        self, residual: Residual, block: Block, target: int, pairs: Pairs
    ) -> Iterator[Pairs]:
        """Yields the pairs that satisfy the predicates which this side completes.

        A predicate gets a bounded number of bytes at a time.
        """
        taken: list[Taken] = []
        for side, read in residual.reads(target, (self.source, *block.found)).items():
            if side == target:
                taken.append(RefWidths(self._rows[side], pairs.refs, read))
            else:
                taken.append(_Through(self._taken(block, side, read), pairs.left))
        for begin, end in cut_taken(taken, len(pairs.left)):
            whole = end - begin == len(pairs.left)
            some = pairs if whole else pairs.take(slice(begin, end))
            columns = partial(self._columns_of, block, target, some)
            count = len(some.left)
            keep = residual.passed(target, columns, count, self._stats, self._measured)
            yield some if keep is None else some.take(keep)

    def _columns_of(
        self, block: Block, target: int, pairs: Pairs, some: Positions
    ) -> Mapping[int, ColumnOfPairs]:
        """Returns the columns of the streams of some pairs."""
        left = pairs.left[some]
        met = {side: refs.take(left) for side, refs in block.found.items()}
        met[target] = pairs.refs.take(some)
        found: dict[int, ColumnOfPairs] = {
            side: (partial(self._column, side, refs), None) for side, refs in met.items()
        }
        found[self.source] = (self.driving.payload.column, block.source[left])
        return found

    def _column(self, side: int, refs: Refs, column: int) -> pa.Array:
        return self._pool(side).gather(refs, [column])[0]


@dataclass(frozen=True)
class _Through:
    """The bytes of rows of a block, for pairs that each have one of them."""

    rows: Taken
    left: Positions

    @property
    def widest(self) -> int:
        return self.rows.widest

    def sizes(self) -> NDArray[np.int64]:
        return self.rows.sizes()[self.left]


def partners(source: int, labels: Sequence[str], selectivity: Counts) -> dict[int, float]:
    """Returns the average partners of a row in each other side, where counted.

    Example:
        >>> partners(0, "012", {Probed("0", "1"): (10.0, 40.0)})
        {1: 4.0}
    """
    found = {}
    for side, label in enumerate(labels):
        probed, matched = selectivity.get(Probed(labels[source], label), (0.0, 0.0))
        if side != source and probed:
            found[side] = matched / probed
    return found


def probe_order(source: int, sides: int, known: Mapping[int, float]) -> tuple[int, ...]:
    """Orders the other sides: fewest partners first.

    Example:
        >>> probe_order(0, 3, {1: 4.0, 2: 0.5})
        (2, 1)
    """
    others = (side for side in range(sides) if side != source)
    return tuple(sorted(others, key=lambda side: (known.get(side, 0.0), side)))


def _together(held: Sequence[Pairs]) -> Pairs:
    if len(held) == 1:
        return held[0]
    timed = held[0].latest is not None
    return Pairs(
        np.concatenate([p.left for p in held]),
        Refs(
            np.concatenate([p.refs.segment for p in held]),
            np.concatenate([p.refs.row for p in held]),
        ),
        np.concatenate([p.latest for p in held if p.latest is not None]) if timed else None,
        np.concatenate([p.deadline for p in held if p.deadline is not None]) if timed else None,
    )


def extended(block: Block, target: int, pairs: Pairs, *, sort: bool) -> Block:
    """Returns the block with one more side; sorted again if it probes further."""
    if sort:
        pairs = pairs.take(np.argsort(pairs.left, kind="stable").astype(np.int32))
    left = pairs.left
    found = {number: there.take(left) for number, there in block.found.items()}
    return Block(block.source[left], found | {target: pairs.refs}, pairs.latest, pairs.deadline)
