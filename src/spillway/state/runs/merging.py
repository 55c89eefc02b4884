"""Merges sorted rows in pieces of bounded bytes, and finds how far a bounded step gets.

A merge yields sorted batches, nearly always one. Rows beyond `JOINED_BYTES` (rows/bounds.py) become
several, and even rows of one hash are then in more than one. A merge that does not give every row
that it got raises an error. A merge that combines rows must give every hash that it got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.ids import HASH_END
from spillway.kernels.order import order_by_hash
from spillway.routing.routing import HashRange
from spillway.rows import bounds
from spillway.rows.cutting import cut_rows, stretches
from spillway.rows.joining import conserve, fit, joined, narrowed
from spillway.rows.size import bytes_between
from spillway.state.runs.run import RunData, as_numpy

WHOLE = HashRange(0, HASH_END)

Spots = NDArray[np.int64]
#: Takes rows and the order that sorts them by hash; returns the sorted rows that are left.
_Combine = Callable[[pa.RecordBatch, NDArray[np.int32]], pa.RecordBatch]


@dataclass(frozen=True)
class Segment:
    """Rows [begin, end) of an opened run: one slice, ready to probe."""

    data: RunData
    begin: int
    end: int
    range: HashRange = WHOLE
    #: For each group, the time up to which rows are gone; None: all rows are here.
    final_us: NDArray[np.int64] | None = None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.end - self.begin

    @property
    def bytes(self) -> int:
        """The exact bytes of the rows."""
        return self.data.bytes_in(self.begin, self.end)

    def batch(self) -> pa.RecordBatch:
        """Returns the rows."""
        return self.data.batch.slice(self.begin, self.rows)


def merged(
    parts: Sequence[pa.RecordBatch], most_bytes: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Merges sorted rows of several runs; for equal hashes, earlier parts come first.

    Yields sorted batches, each with bounded bytes or one row.
    """
    most_bytes = bounds.JOINED_BYTES if most_bytes is None else most_bytes
    if sum(part.nbytes for part in parts) <= most_bytes:
        yield narrowed(sorted_whole(parts))
        return
    order = order_by_hash(np.concatenate([hashes(part) for part in parts]))
    sizes = np.concatenate([_sizes(part) for part in parts])[order]
    # Rows of a part stay in order, so each piece has the next rows of every part.
    starts = np.cumsum([0, *(part.num_rows for part in parts)])
    part_of = (np.searchsorted(starts, order, side="right") - 1).astype(np.int32)
    done = np.zeros(len(parts), np.int64)
    for begin, end in stretches(sizes, most_bytes):
        counts = np.bincount(part_of[begin:end], minlength=len(parts))
        some = [
            narrowed(part.slice(first, count))
            for part, first, count in zip(parts, done.tolist(), counts.tolist(), strict=True)
            if count
        ]
        # Slices of parts have a few bytes of bits more than their rows, so the join may be wide.
        yield narrowed(sorted_whole(some))
        done += counts
    conserve("a merge", len(order), int(done.sum()))


def sorted_whole(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Merges sorted rows of several runs into one batch, which may be wide (rows/joining.py)."""
    if len(parts) == 1:
        return parts[0]
    batch, order = together(parts)
    return batch.take(pa.array(order))


def together(parts: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, NDArray[np.int32]]:
    """Joins the rows of several runs; also returns the order that sorts them by hash."""
    batch = joined(parts)
    return batch, order_by_hash(hashes(batch))


def combined(parts: Sequence[pa.RecordBatch], combine: _Combine) -> Iterator[pa.RecordBatch]:
    """Merges sorted rows of several runs, and combines those of equal keys.

    `combine` takes rows and the order that sorts them by hash. If the rows are too many for one batch,
    it gets a few at a time, together with what is left of their hash so far. It must return a row of
    every hash that it gets.
    """
    if fit([part.nbytes for part in parts]):
        yield narrowed(_combined(parts, combine))
        return
    before, after = _HashCount(), _HashCount()
    pieces = map(before.counted, merged(parts, bounds.JOINED_BYTES // 2))
    yield from map(after.counted, _combined_pieces(pieces, combine))
    conserve("combining rows", before.count, after.count, "hashes")


def _combined_pieces(
    pieces: Iterable[pa.RecordBatch], combine: _Combine
) -> Iterator[pa.RecordBatch]:
    held: pa.RecordBatch | None = None
    for piece in pieces:
        if held is not None and hashes(held)[-1] != hashes(piece)[0]:
            yield from cut_rows(held, bounds.JOINED_BYTES)
            held = None
        rows = _combined([piece] if held is None else [held, piece], combine)
        h = hashes(rows)
        last = int(np.searchsorted(h, h[-1])) if len(h) else 0
        if last:
            yield narrowed(rows.slice(0, last))
        held = rows.slice(last)
    if held is not None:
        yield from cut_rows(held, bounds.JOINED_BYTES)


def _combined(parts: Sequence[pa.RecordBatch], combine: _Combine) -> pa.RecordBatch:
    batch, order = together(parts)
    rows = combine(batch, order)
    before, after = _distinct(hashes(batch)[order]), _distinct(hashes(rows))
    conserve("combining rows", before, after, "hashes")
    return rows


class _HashCount:
    """Counts the different hashes of sorted batches, which come one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self._last: int | None = None

    def counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Counts a batch, and returns it."""
        h = hashes(batch)
        if len(h):
            self.count += _distinct(h) - (int(h[0]) == self._last)
            self._last = int(h[-1])
        return batch


def _distinct(h: NDArray[np.uint32]) -> int:
    """Counts the different hashes among sorted ones."""
    return int(np.count_nonzero(h[1:] != h[:-1])) + (len(h) > 0)


def hashes(batch: pa.RecordBatch) -> NDArray[np.uint32]:
    """Returns the hash of each stored row."""
    return as_numpy(batch.column(0), np.uint32)


def _sizes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    return bytes_between(batch, np.arange(batch.num_rows + 1))


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


def ranges_in_order(pieces: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Yields all rows, one hash range after the other, each in bounded bytes or of one hash."""
    pieces = [piece for piece in pieces if piece.rows]
    while pieces:
        hash_end = cut_for(pieces, HASH_END)
        spanned = [(s, below(s, hash_end)[1]) for s in pieces]
        yield [Segment(s.data, s.begin, end, s.range) for s, end in spanned if s.begin < end]
        pieces = [Segment(s.data, end, s.end, s.range) for s, end in spanned if end < s.end]


def cut_for(pieces: Sequence[Segment], fuel: int, most_bytes: int | None = None) -> int:
    """Returns a hash below which the pieces have almost `fuel` rows, and at least one row.

    They have at most about `most_bytes` too, unless they are rows of one hash.
    """
    most_bytes = bounds.STEP_BYTES if most_bytes is None else most_bytes
    end = _end(pieces, max(1, fuel), HASH_END, _rows_below)
    if _bytes_below(pieces, end) <= most_bytes + most_bytes // 4:
        return end
    return _end(pieces, max(1, most_bytes), end, _bytes_below)


def _end(
    pieces: Sequence[Segment],
    fuel: int,
    end: int,
    measure: Callable[[Sequence[Segment], int], int],
) -> int:
    """Returns a hash up to `end` below which a measure of the pieces is almost `fuel`.

    It bisects the hash domain. Hashes are spread evenly, so it needs few steps; it is correct if
    they are not.
    """
    if measure(pieces, end) <= fuel + fuel // 4:
        return end
    low, high, under = min(int(p.data.h[p.begin]) for p in pieces), end, 0
    while high - low > 1:
        middle = (low + high) // 2
        found = measure(pieces, middle)
        if found > fuel:
            high = middle
        elif found >= fuel - fuel // 4:
            return middle
        else:
            low, under = middle, found
    # One hash has more than the fuel: what is below it goes first, then it goes alone.
    return low if under else high


def _rows_below(pieces: Sequence[Segment], cut: int) -> int:
    return sum(end - begin for begin, end in (below(p, cut) for p in pieces))


def _bytes_below(pieces: Sequence[Segment], cut: int) -> int:
    return sum(_bytes_in(p, below(p, cut)[1]) for p in pieces)


def _bytes_in(piece: Segment, end: int) -> int:
    if end in (piece.begin, piece.end):
        return piece.bytes if end > piece.begin else 0
    # Not `bytes_in`, whose cache has the sizes that every batch asks for.
    return int(bytes_between(piece.data.batch, np.array([piece.begin, end], np.int64))[0])


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
    offsets = np.repeat(begin - np.cumsum(lengths) + lengths, lengths)
    rows = segment.data.batch.take(pa.array(offsets + np.arange(count)))
    return Segment(RunData(rows, segment.data.time_column), 0, count)
