"""Merges sorted rows, and finds how far a bounded merge gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.ids import HASH_END
from spillway.kernels.order import order_by_hash
from spillway.routing.routing import HashRange
from spillway.state.runs.run import RunData, as_numpy

#: Bytes that one merge step may hold, whatever the fuel in rows allows.
MERGE_STEP_BYTES = 64 << 20

WHOLE = HashRange(0, HASH_END)

Spots = NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """Rows [begin, end) of an opened run: one slice, ready to probe."""

    data: RunData
    begin: int
    end: int
    range: HashRange = WHOLE

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.end - self.begin

    @property
    def bytes(self) -> int:
        """The exact bytes of the rows."""
        return self.data.bytes_in(self.begin, self.end)

    @property
    def row_bytes(self) -> int:
        """Estimates the bytes of one row."""
        return self.bytes // max(self.rows, 1)

    def batch(self) -> pa.RecordBatch:
        """Returns the rows."""
        return self.data.batch.slice(self.begin, self.rows)


def merged(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Merges sorted rows of several runs; for equal hashes, earlier parts come first."""
    batch, order = together(parts)
    return batch.take(pa.array(order))


def together(parts: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, NDArray[np.int32]]:
    """Concatenates the rows of several runs; also returns the order that sorts them by hash."""
    batch = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    return batch, order_by_hash(as_numpy(batch.column(0), np.uint32))


def alive(batch: pa.RecordBatch, time_column: int, bound: int) -> pa.RecordBatch:
    """Returns the rows later than a bound in event time."""
    keep = as_numpy(batch.column(1 + time_column), np.int64) > bound
    return batch if keep.all() else batch.filter(pa.array(keep))


def below(segment: Segment, cut: int) -> tuple[int, int]:
    """Returns the rows of a segment with hashes below a cut."""
    if cut >= HASH_END:
        return segment.begin, segment.end
    end = int(np.searchsorted(segment.data.h, np.uint32(cut)))
    return segment.begin, min(segment.end, max(segment.begin, end))


def cut_for(pieces: Sequence[Segment], fuel: int) -> int:
    """Returns a hash below which the pieces have almost `fuel` rows, and at least one row.

    It bisects the hash domain. Hashes are spread evenly, so it needs few steps; it is correct if
    they are not.
    """
    total = sum(p.rows for p in pieces)
    width = pieces[0].bytes // pieces[0].rows
    fuel = max(1, min(fuel, MERGE_STEP_BYTES // max(width, 1)))
    if total <= fuel + fuel // 4:
        return HASH_END
    low, high, under = min(int(p.data.h[p.begin]) for p in pieces), HASH_END, 0
    while high - low > 1:
        cut = (low + high) // 2
        rows = sum(end - begin for begin, end in (below(p, cut) for p in pieces))
        if rows > fuel:
            high = cut
        elif rows >= fuel - fuel // 4:
            return cut
        else:
            low, under = cut, rows
    # One hash has more rows than the fuel: the rows below it go first, then it goes alone.
    return low if under else high


def spans(segment: Segment, ranges: Sequence[HashRange]) -> tuple[Spots, Spots]:
    """Returns where the rows of a segment begin and end in each range."""
    h = segment.data.h
    begin = np.searchsorted(h, np.array([one.lo for one in ranges], np.uint32))
    end = np.searchsorted(h, np.array([one.hi - 1 for one in ranges], np.uint32), side="right")
    return np.clip(begin, segment.begin, segment.end), np.clip(end, segment.begin, segment.end)


def inside(segment: Segment, ranges: Sequence[HashRange]) -> Segment:
    """Returns the rows of a segment inside the ranges (ascending, disjoint).

    If the rows are contiguous, they stay in the same run; otherwise they are copied into a new one.
    """
    begin, end = spans(segment, ranges)
    some = begin < end
    begin, end = begin[some], end[some]
    count = int((end - begin).sum())
    if count == segment.rows:
        return segment
    if count == 0 or begin[0] + count == end[-1]:
        first = int(begin[0]) if count else segment.begin
        return Segment(segment.data.part(first, first + count), 0, count)
    lengths = end - begin
    steps = np.repeat(begin - np.cumsum(lengths) + lengths, lengths)
    rows = segment.data.batch.take(pa.array(steps + np.arange(count)))
    return Segment(RunData(rows, segment.data.time_column), 0, count)
