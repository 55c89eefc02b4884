"""One step of a time-sliced join: partial combinations look for partners in the slices of one stream.

Partners of a combination are rows whose time is in a range (PSP section 2): with T the largest time so
far and E the least t_i + W_i, a row at t of a stream with window W fits when T - W < t < E. Runs are
sorted by place in time (routing/slices.py), so candidates are ranges of rows, found by binary search.
Where a predicate has a band (plan/bands.py) and fewer rows are in it, candidates are ranges in the
order of its column instead, which is made once for each run.

Candidates become pairs, a bounded number at a time; then come the times, if their ranges were wide,
and the predicates that the stream completes, the cheapest first. Rows are carried as positions and
gathered when they have passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.probe import expand
from spillway.operators.banded import in_band
from spillway.operators.base import OperatorStats, StreamColumns
from spillway.operators.columns import Rows
from spillway.operators.combinations import Combinations
from spillway.operators.predicates import Predicate, judged
from spillway.operators.refs import Refs, gather
from spillway.plan.bands import Band
from spillway.routing.groups import group_of
from spillway.routing.slices import PlaceRanges, Slicing
from spillway.state.merging import Segment
from spillway.state.run import RunData, as_numpy

#: Numpy takes rows fastest by 64 bit positions.
Positions = NDArray[np.int64]
#: Bytes of candidate pairs, as the rows they are of, that are looked at at a time.
PAIR_BYTES = 32 << 20
#: Candidates of a segment up to which no better way to find fewer is looked for.
FEW_PAIRS = 256


@dataclass(frozen=True)
class Found:
    """Combinations that found a partner: which of them, and which row."""

    left: Positions
    refs: Refs


@dataclass(frozen=True)
class _Candidates:
    """Ranges of rows, or of an order of rows: which combination, first, how many."""

    which: Positions
    start: Positions
    count: Positions
    order: NDArray[np.int32] | None = None

    @property
    def pairs(self) -> int:
        return int(self.count.sum(dtype=np.int64))


class Visit:
    """Combinations against some segments of one stream."""

    def __init__(
        self,
        streams: Sequence[StreamColumns],
        slicing: Slicing,
        predicates: Sequence[Predicate],
        left: Combinations,
        target: int,
        segments: Sequence[Segment],
        stats: OperatorStats,
        pair_rows: int,
        before: int | None = None,
    ) -> None:
        """`before` leaves out rows that came in that batch; predicates are in the order of their use."""
        self._streams = streams
        self._slicing = slicing
        self._predicates = predicates
        self._left = left
        self._target = target
        self._segments = segments
        self._stats = stats
        self._pair_rows = pair_rows
        self._before = before
        window = streams[target].window_us
        assert window is not None
        #: The times between which partners are, both included.
        self._first, self._last = left.latest - window + 1, left.deadline - 1

    def blocks(self) -> Iterator[dict[int, list[pa.Array]]]:
        """The columns of the combinations that found partners, a bounded number at a time."""
        if not self._left.count or not self._segments:
            return
        matched = 0
        held: list[Found] = []
        size = 0
        for number, segment in enumerate(self._segments):
            most = self._most(segment)
            for found in self._found(number, segment, most):
                held.append(found)
                size += len(found.left)
                matched += len(found.left)
                if size >= most:
                    yield self._gathered(held)
                    held, size = [], 0
        if held:
            yield self._gathered(held)
        source, target = str(self._left.source), str(self._target)
        self._stats.probed(source, target, self._left.count, matched)

    def _most(self, segment: Segment) -> int:
        """Pairs that are made at a time."""
        width = self._left.row_bytes + segment.bytes // max(segment.rows, 1)
        return max(1, min(self._pair_rows, PAIR_BYTES // max(width, 1)))

    def _found(self, number: int, segment: Segment, most: int) -> Iterator[Found]:
        data = segment.data
        unsure = self._unsure(data)
        if unsure is None:
            return
        by_time, wide = self._by_time(segment)
        some = self._by_band(segment, by_time) if by_time.pairs > FEW_PAIRS else by_time
        # Where all rows are in all ranges of time, those in a band are, too.
        whole = by_time.pairs == self._left.count * segment.rows
        sure = not wide and (some.order is None or whole)
        considered, total = by_time.pairs, max(some.pairs, 1)
        at, offset = 0, 0
        while at < len(some.which):
            left, right, at, offset = expand(some.which, some.start, some.count, at, offset, most)
            pairs = considered * len(left) // total
            if some.order is not None:
                right = some.order.take(right).astype(np.int64)
            keep = None if sure else self._in_time(data, left, right)
            if some.order is not None and segment.rows < data.rows:
                keep = _both(keep, (right >= segment.begin) & (right < segment.end))
            if unsure:
                keep = _both(keep, _marks(data, self._streams[self._target])[right] < self._before)
            if keep is not None:
                there = np.flatnonzero(keep)
                left, right = left.take(there), right.take(there)
            left, right = self._passed(data, left, right, pairs)
            if len(left):
                self._stats.produced(data.h[right])
                yield Found(left, Refs(np.full(len(left), number, np.int32), right))

    def _unsure(self, data: RunData) -> bool | None:
        """Whether some rows are to be left out; None: all are."""
        if self._before is None:
            return False
        marks = _marks(data, self._streams[self._target])
        least, most = data.derived("marks", lambda: (int(marks.min()), int(marks.max())))
        return None if least >= self._before else most >= self._before

    def _in_time(self, data: RunData, left: Positions, right: Positions) -> NDArray[np.bool_]:
        assert data.times is not None
        times = data.times.take(right)
        return (times >= self._first.take(left)) & (times <= self._last.take(left))

    # Where candidates are

    def _by_time(self, segment: Segment) -> tuple[_Candidates, bool]:
        """Candidates by their place, and whether some may be out of their times."""
        slices, slicing = self._slicing.slices, self._slicing
        data = segment.data
        plane = (
            int(group_of(data.h[segment.begin : segment.begin + 1], slicing.groups)[0]) // slices
        )
        # Of times that no row has, nothing needs to be looked for.
        least, most = data.time_span
        first, last = np.maximum(self._first, least), np.minimum(self._last, most)
        ranges = slicing.ranges(self._target, first, last, plane)
        found = _ranges(segment, ranges, first <= last)
        return found, not slicing.unaliased(self._target, most - least)

    def _by_band(self, segment: Segment, others: _Candidates) -> _Candidates:
        """The fewest candidates that a band leaves, or those that are known."""
        best = others
        for band in self._bands():
            found = self._in_band(segment.data, band)
            if found is not None and found.pairs < best.pairs:
                best = found
        return best

    def _bands(self) -> Iterator[Band]:
        target = self._streams[self._target].name
        for predicate in self._predicates:
            for band in predicate.bands:
                for at in self._left.columns:
                    if (fitting := band.between(target, self._streams[at].name)) is not None:
                        yield fitting

    def _in_band(self, data: RunData, band: Band) -> _Candidates | None:
        stream = next(at for at, s in enumerate(self._streams) if s.name == band.left.stream)
        column = self._left.columns[stream][self._column(band.left)]
        found = in_band(data, self._column(band.right), column, band)
        return None if found is None else _some(np.arange(len(column)), *found)

    def _column(self, column: Any) -> int:
        stream = next(one for one in self._streams if one.name == column.stream)
        return stream.visible.index(column.name)

    # What passes

    def _passed(
        self, data: RunData, left: Positions, right: Positions, considered: int
    ) -> tuple[Positions, Positions]:
        for predicate in self._predicates:
            if not len(left):
                break
            keep = judged(
                predicate, self._rows(data, left, right), len(left), considered, self._stats
            )
            if keep is not None:
                left, right = left.take(keep), right.take(keep)
            considered = len(left)
        return left, right

    def _rows(
        self, data: RunData, left: Positions, right: Positions
    ) -> Callable[[Positions | None], tuple[Mapping[str, Rows], int]]:
        def some(keep: Positions | None) -> tuple[Mapping[str, Rows], int]:
            mine = left if keep is None else left.take(keep)
            theirs = right if keep is None else right.take(keep)
            found = {}
            for at, columns in self._left.columns.items():
                stream = self._streams[at]
                found[stream.name] = Rows(
                    stream.name, stream.visible, columns.__getitem__, mine, len(mine)
                )
            stream = self._streams[self._target]
            found[stream.name] = Rows(
                stream.name, stream.visible, data.payload.column, theirs, len(theirs)
            )
            return found, len(mine)

        return some

    def _gathered(self, held: Sequence[Found]) -> dict[int, list[pa.Array]]:
        left = pa.array(np.concatenate([one.left for one in held]))
        segment = np.concatenate([one.refs.segment for one in held])
        refs = Refs(segment, np.concatenate([one.refs.row for one in held]))
        found = {
            at: [column.take(left) for column in columns]
            for at, columns in self._left.columns.items()
        }
        wanted = range(len(self._streams[self._target].visible))
        return found | {self._target: gather(self._segments, refs, wanted)}


def _ranges(segment: Segment, ranges: PlaceRanges, some: NDArray[np.bool_]) -> _Candidates:
    """The rows of a segment in ranges of places, where these are not empty."""
    h = segment.data.h[segment.begin : segment.end]
    start = np.searchsorted(h, ranges.first.astype(np.uint32), side="left")
    end = np.searchsorted(h, ranges.last.astype(np.uint32), side="right")
    start[ranges.everywhere], end[ranges.everywhere] = 0, len(h)
    # Round the end: from the beginning to `end`, and from `start` on.
    split = np.flatnonzero((ranges.first > ranges.last) & ~ranges.everywhere)
    which = np.concatenate([np.arange(len(start)), split])
    start, end = np.concatenate([start, start[split]]), np.concatenate([end, end[split]])
    start[split] = 0
    end[len(end) - len(split) :] = len(h)
    return _some(which, start + segment.begin, np.where(some[which], end - start, 0))


def _some(
    which: NDArray[Any],
    start: NDArray[Any],
    count: NDArray[Any],
    order: NDArray[np.int32] | None = None,
) -> _Candidates:
    there = count > 0
    which, start, count = (one[there].astype(np.int64) for one in (which, start, count))
    return _Candidates(which, start, count, order)


def _marks(data: RunData, stream: StreamColumns) -> NDArray[np.int32]:
    """The batch in which each row came, which is stored after its columns."""
    return as_numpy(data.payload.column(len(stream.lanes)), np.int32)


def _both(keep: NDArray[np.bool_] | None, more: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return more if keep is None else keep & more
