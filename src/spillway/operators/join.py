"""The n-way equi-join, with no intermediate state.

One batch adds deltas to all streams at once. With S_j the state before the batch and D_j its new rows,
the new results are the disjoint union over the streams i of

    D_i  joined with  (S_j + D_j for every j < i)  and  (S_j for every j > i)

which is Equation 1 of DCAPE-TR for n streams: every new combination has exactly one last stream i
whose row is new, and is produced by that term alone.

A term is a depth-first expansion. A block of partial combinations probes the next stream; the pairs
found, at most `block_rows` of them, are the next block, and are expanded to the end before the next
pairs are made. So memory holds one block per stream, however many combinations a hot key has. Rows
are carried as positions and gathered once, when a combination is complete.

Windows (PSP section 2): a combination stands when T - t_i < W_i for all its rows, T being its largest
time; that is T < min(t_i + W_i). A block carries both sides, so each probe also discards partial
combinations that no further row can save.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.equality import equal_pairs
from spillway.kernels.probe import expand
from spillway.operators.base import OperatorStats, Results, StreamColumns
from spillway.operators.lookup import Positions, candidates
from spillway.state.merging import Segment
from spillway.state.run import RunData
from spillway.state.shelf import StreamLayout
from spillway.state.slot import SlotState

#: Rows of a generation that drive a term at a time.
_DRIVE_ROWS = 262_144


@dataclass(frozen=True)
class _Refs:
    """Rows of one stream: which segment, and which row of it."""

    segment: Positions
    row: Positions

    def take(self, at: Positions) -> _Refs:
        return _Refs(self.segment[at], self.row[at])


@dataclass(frozen=True)
class _Block:
    """Partial combinations, in the order of their source rows (so ascending by hash)."""

    source: Positions
    found: dict[int, _Refs]
    #: The largest time so far, and the least t_i + W_i; None without a window.
    latest: NDArray[np.int64] | None
    deadline: NDArray[np.int64] | None


@dataclass(frozen=True)
class _Pairs:
    left: Positions
    refs: _Refs
    latest: NDArray[np.int64] | None
    deadline: NDArray[np.int64] | None


class JoinOperator:
    """Joins any number of streams on equal keys, optionally within windows."""

    cumulative = False

    def __init__(self, streams: Sequence[StreamColumns], block_rows: int = 65_536) -> None:
        self.streams = tuple(streams)
        self.block_rows = block_rows
        #: Pairs made at a time: what is held and what is added are at most a block together.
        self.pair_rows = max(1, block_rows // 2)

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """Rows are stored as they come."""
        return tuple(StreamLayout(s.name, s.time, s.window_us) for s in self.streams)

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:  # noqa: ARG002
        """The rows as they are."""
        return tuple(deltas)

    def process(self, state: SlotState, deltas: Sequence[RunData], stats: OperatorStats) -> Results:
        """Yields the results that the deltas complete, in batches of at most `block_rows`."""
        old = [state.segments(stream) for stream in range(len(self.streams))]
        yield from self.terms(old, deltas, stats, state.manifest.selectivity)
        return tuple(deltas)

    def terms(
        self,
        old: Sequence[Sequence[Segment]],
        deltas: Sequence[RunData],
        stats: OperatorStats,
        selectivity: dict[str, tuple[float, float]],
    ) -> Iterator[pa.RecordBatch]:
        """The terms of Equation 1, one per stream with new rows."""
        for i, delta in enumerate(deltas):
            if delta.rows == 0:
                continue
            sides = [
                [*segments, Segment(deltas[j], 0, deltas[j].rows)] if j < i else list(segments)
                for j, segments in enumerate(old)
            ]
            yield from self._term(i, delta, sides, stats, selectivity)

    def missing(
        self,
        base: Sequence[Sequence[Segment]],
        delta: Sequence[Sequence[Segment]],
        stats: OperatorStats,
        selectivity: dict[str, tuple[float, float]],
    ) -> Results:
        """The combinations that have rows of both `base` and `delta`.

        The terms of Equation 1 for adding `delta` to `base`, without what `delta` gives alone. All
        rows of both stay as they are.
        """
        for i, segments in enumerate(delta):
            for sides in _mixed(base, delta, i):
                for segment in segments:
                    for begin in range(segment.begin, segment.end, _DRIVE_ROWS):
                        end = min(begin + _DRIVE_ROWS, segment.end)
                        driving = segment.data.part(begin, end)
                        yield from self._term(i, driving, sides, stats, selectivity)
        return ()

    def _term(
        self,
        source: int,
        driving: RunData,
        sides: Sequence[Sequence[Segment]],
        stats: OperatorStats,
        selectivity: dict[str, tuple[float, float]],
    ) -> Iterator[pa.RecordBatch]:
        if all(side for j, side in enumerate(sides) if j != source):
            order = probe_order(source, len(self.streams), selectivity)
            yield from _Term(self, source, driving, sides, stats).results(order)


def _mixed(
    base: Sequence[Sequence[Segment]], delta: Sequence[Sequence[Segment]], source: int
) -> Iterator[list[list[Segment]]]:
    """The sides that a row of `delta` in stream `source` is joined with, as disjoint cases.

    Before the last stream Equation 1 mixes by itself: the last one is of `base`. For the last, the
    cases are told apart by the first stream that is of `base`.
    """
    streams = range(len(base))
    both = [[*base[j], *delta[j]] for j in streams]
    if source < streams[-1]:
        yield [both[j] if j < source else list(base[j]) for j in streams]
        return
    for first in streams[:-1]:
        yield [
            list(delta[j]) if j < first else list(base[j]) if j == first else both[j]
            for j in streams
        ]


def probe_order(
    source: int, streams: int, selectivity: dict[str, tuple[float, float]]
) -> tuple[int, ...]:
    """The other streams, the one in which a row finds the fewest partners first.

    Example:
        >>> probe_order(0, 3, {"0>1": (10.0, 40.0), "0>2": (10.0, 5.0)})
        (2, 1)
    """

    def partners(target: int) -> float:
        probed, matched = selectivity.get(f"{source}>{target}", (0.0, 0.0))
        return matched / probed if probed else 0.0

    return tuple(sorted((j for j in range(streams) if j != source), key=lambda j: (partners(j), j)))


class _Term:
    """One term: the new rows of one stream against the given sides of the others."""

    def __init__(
        self,
        join: JoinOperator,
        source: int,
        delta: RunData,
        sides: Sequence[Sequence[Segment]],
        stats: OperatorStats,
    ) -> None:
        self._join = join
        self._source = source
        self._delta = delta
        self._sides = sides
        self._stats = stats
        self._keys = [delta.payload.column(at) for at in join.streams[source].keys]

    def results(self, order: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
        for block in self._expanded(self._first_block(), order):
            self._stats.produced(self._delta.h[block.source])
            yield self._gathered(block)

    def _first_block(self) -> _Block:
        times, window = self._delta.times, self._join.streams[self._source].window_us
        deadline = None if times is None or window is None else times + window
        return _Block(np.arange(self._delta.rows, dtype=np.int32), {}, times, deadline)

    def _expanded(self, block: _Block, order: tuple[int, ...]) -> Iterator[_Block]:
        if not order:
            yield block
            return
        target, rest = order[0], order[1:]
        matched = 0
        for pairs in self._blocks_of_pairs(block, target):
            matched += len(pairs.left)
            yield from self._expanded(_extended(block, target, pairs, sort=bool(rest)), rest)
        self._stats.probed(self._source, target, len(block.source), matched)

    def _blocks_of_pairs(self, block: _Block, target: int) -> Iterator[_Pairs]:
        """The pairs of a block with all segments of a stream, collected into full blocks."""
        held: list[_Pairs] = []
        size = 0
        probe = self._delta.h[block.source]
        for number, segment in enumerate(self._sides[target]):
            for pairs in self._pairs(block, probe, target, number, segment):
                held.append(pairs)
                size += len(pairs.left)
                if size >= self._join.pair_rows:
                    yield _together(held)
                    held, size = [], 0
        if held:
            yield _together(held)

    def _pairs(
        self,
        block: _Block,
        probe: NDArray[np.uint32],
        target: int,
        number: int,
        segment: Segment,
    ) -> Iterator[_Pairs]:
        """The pairs of a block with one segment, a bounded number at a time."""
        data = segment.data
        which, start, count = candidates(probe, segment)
        at, offset = 0, 0
        while at < len(which):
            left, right, at, offset = expand(which, start, count, at, offset, self._join.pair_rows)
            pairs = self._confirmed(block, target, number, data, left, right)
            if len(pairs.left):
                yield pairs

    def _confirmed(
        self,
        block: _Block,
        target: int,
        number: int,
        data: RunData,
        left: Positions,
        right: Positions,
    ) -> _Pairs:
        """The candidates whose keys are really equal and whose times fit together."""
        source = block.source[left]
        stream = self._join.streams[target]
        same = np.ones(len(left), np.bool_)
        for mine, theirs in zip(self._keys, stream.keys, strict=True):
            same &= equal_pairs(mine, source, data.payload.column(theirs), right)
        latest = deadline = None
        times = data.times
        if times is not None and block.latest is not None and block.deadline is not None:
            assert stream.window_us is not None
            latest = np.maximum(block.latest[left], times[right])
            deadline = np.minimum(block.deadline[left], times[right] + stream.window_us)
            same &= latest < deadline
        if not same.all():
            left, right = left[same], right[same]
            latest = None if latest is None else latest[same]
            deadline = None if deadline is None else deadline[same]
        return _Pairs(left, _Refs(np.full(len(left), number, np.int32), right), latest, deadline)

    def _gathered(self, block: _Block) -> pa.RecordBatch:
        """Complete combinations as rows: one struct column per stream."""
        columns = []
        for number, stream in enumerate(self._join.streams):
            visible = range(len(stream.visible))
            if number == self._source:
                rows = self._delta.payload.select(list(visible)).take(pa.array(block.source))
                arrays = rows.columns
            else:
                arrays = _gather(self._sides[number], block.found[number], len(visible))
            columns.append(pa.StructArray.from_arrays(arrays, names=list(stream.visible)))
        return pa.RecordBatch.from_arrays(columns, names=[s.name for s in self._join.streams])


def _together(held: Sequence[_Pairs]) -> _Pairs:
    if len(held) == 1:
        return held[0]
    timed = held[0].latest is not None
    return _Pairs(
        np.concatenate([p.left for p in held]),
        _Refs(
            np.concatenate([p.refs.segment for p in held]),
            np.concatenate([p.refs.row for p in held]),
        ),
        np.concatenate([p.latest for p in held if p.latest is not None]) if timed else None,
        np.concatenate([p.deadline for p in held if p.deadline is not None]) if timed else None,
    )


def _extended(block: _Block, target: int, pairs: _Pairs, *, sort: bool) -> _Block:
    """The block with one more stream found; sorted again where it will be probed with."""
    left, refs, latest, deadline = pairs.left, pairs.refs, pairs.latest, pairs.deadline
    if sort:
        order = np.argsort(left, kind="stable").astype(np.int32)
        left, refs = left[order], refs.take(order)
        latest = None if latest is None else latest[order]
        deadline = None if deadline is None else deadline[order]
    found = {number: there.take(left) for number, there in block.found.items()}
    return _Block(block.source[left], found | {target: refs}, latest, deadline)


def _gather(segments: Sequence[Segment], refs: _Refs, columns: int) -> list[pa.Array]:
    """The referenced rows in order, gathered segment by segment."""
    order = None
    where, row = refs.segment, refs.row
    if len(where) > 1 and np.any(np.diff(where) < 0):
        order = np.argsort(where, kind="stable")
        where, row = where[order], row[order]
    starts = np.flatnonzero(np.diff(where, prepend=-1))
    parts = []
    for start, end in zip(starts, [*starts[1:], len(where)], strict=True):
        payload = segments[where[start]].data.payload
        parts.append(payload.select(list(range(columns))).take(pa.array(row[start:end])))
    arrays = [pa.concat_arrays([p.column(c) for p in parts]) for c in range(columns)]
    if order is None:
        return arrays
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return [array.take(pa.array(back)) for array in arrays]
