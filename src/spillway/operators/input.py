"""The input of a slot: exchanged rows, split by stream, without late rows, sorted by hash.

An exchanged row has the stream number, the hash, and then the lanes
(spark/runtime/exchange/lanes.py). An operator gets one delta for each stream: the sorted new rows.

A row with a NULL key or time matches nothing. It comes without its values, only to be counted, unless
its stream gives rows without partners: its stream number is below that of a marker (`null_number`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spillway.kernels.order import order_by_stream_and_hash
from spillway.routing.routing import HashRange
from spillway.rows.joining import joined
from spillway.state.runs.merging import Segment, inside
from spillway.state.runs.run import HASH_COLUMN, RunData, as_numpy

#: Offset added to the stream number of a duplicated row, which is already counted. Marks are above
#: all stream numbers: this is also the largest number of streams.
AGAIN = 1 << 12
#: The stream number of a row that only tells a task its slot.
MARKER = -1


@dataclass(frozen=True)
class StreamColumns:
    """One stream's columns: which are stored, and their roles."""

    name: str
    #: Names of the columns the user sees: the first of the stored ones.
    visible: tuple[str, ...]
    #: For each stored column, the column of the exchanged rows that carries it.
    lanes: tuple[int, ...]
    #: For each key, the position of its stored column.
    keys: tuple[int, ...]
    #: Position of the event time among the stored columns; None without a window.
    time: int | None = None
    window_us: int | None = None
    #: Positions of the columns in results; None: all that the user sees.
    read: tuple[int, ...] | None = None

    @property
    def shown(self) -> Sequence[int]:
        """The positions of the columns in results."""
        return range(len(self.visible)) if self.read is None else self.read

    def struct(self, columns: Sequence[pa.Array]) -> pa.StructArray:
        """Returns the shown columns as a struct of a result."""
        return pa.StructArray.from_arrays(columns, names=[self.visible[at] for at in self.shown])


@dataclass(frozen=True)
class Sorted:
    """The rows of a piece of input, by stream, sorted by hash; and counts of the rest."""

    deltas: tuple[RunData, ...]
    rows: tuple[int, ...]
    late: tuple[int, ...]
    #: Largest event time per stream, including late rows; None without rows or without a window.
    max_times: tuple[int | None, ...]


def null_number(stream: Any) -> Any:
    """Returns the number of a row of this stream that has a NULL key or time; and back.

    Example:
        >>> null_number(2), null_number(-4)
        (-4, 2)
    """
    return MARKER - 1 - stream


def without_nulls(
    batches: Sequence[pa.RecordBatch], streams: int
) -> tuple[list[pa.RecordBatch], NDArray[np.int64]]:
    """Returns the rows that may match, and for each stream the number of those with a NULL."""
    counts = np.zeros(streams, np.int64)
    kept = []
    for batch in batches:
        stream = batch.column(0).to_numpy()
        null = stream < MARKER
        counts += np.bincount(null_number(stream[null]), minlength=streams)
        kept.append(batch.filter(pa.array(~null)) if null.any() else batch)
    return [some for some in kept if some.num_rows], counts


def null_rows(
    batches: Sequence[pa.RecordBatch], number: int, columns: StreamColumns, watermark_us: int | None
) -> Iterator[pa.RecordBatch]:
    """Yields the shown columns of rows of a stream that have a NULL key or time, without late rows.

    Only streams whose rows come out without partners send the values of such rows.
    """
    for batch in batches:
        mine = batch.filter(pa.array(batch.column(0).to_numpy() == null_number(number)))
        if columns.time is not None and watermark_us is not None and mine.num_rows:
            times = mine.column(2 + columns.lanes[columns.time]).cast(pa.int64())
            mine = mine.filter(pc.fill_null(pc.greater_equal(times, watermark_us), True))
        if mine.num_rows:
            shown = [2 + columns.lanes[at] for at in columns.shown]
            yield mine.select(shown)


def sort_input(
    batches: Sequence[pa.RecordBatch],
    streams: Sequence[StreamColumns],
    watermark_us: int | None,
    copied: Sequence[HashRange] = (),
) -> Sorted:
    """Splits exchanged rows by stream, drops late rows, and sorts each stream by hash.

    It does not count duplicated rows, or rows with hashes in `copied`: another slot counts those.
    """
    if not batches:
        empty = tuple(empty_rows() for _ in streams)
        return Sorted(empty, (0,) * len(streams), (0,) * len(streams), (None,) * len(streams))
    whole = joined(batches)
    stream = stream_numbers(whole)
    h = as_numpy(whole.column(1), np.uint32)
    again = stream >= AGAIN if stream.max() >= AGAIN else None
    order, bounds = order_by_stream_and_hash(stream % AGAIN, h, len(streams))
    deltas, rows, late, max_times = [], [], [], []
    for number, columns in enumerate(streams):
        mine = order[bounds[number] : bounds[number + 1]]
        rows.append(_counted(mine, h, again, copied))
        mine, newest = _without_late(whole, mine, columns, watermark_us)
        late.append(rows[-1] - _counted(mine, h, again, copied))
        max_times.append(newest)
        deltas.append(RunData(_stored(whole, h, mine, columns), columns.time))
    return Sorted(tuple(deltas), tuple(rows), tuple(late), tuple(max_times))


def _without_late(
    whole: pa.RecordBatch,
    mine: NDArray[np.int32],
    columns: StreamColumns,
    watermark_us: int | None,
) -> tuple[NDArray[np.int32], int | None]:
    if columns.time is None or len(mine) == 0:
        return mine, None
    times = as_numpy(whole.column(2 + columns.lanes[columns.time]), np.int64)[mine]
    newest = int(times.max())
    if watermark_us is None:
        return mine, newest
    return mine[times >= watermark_us], newest


def _counted(
    mine: NDArray[np.int32],
    h: NDArray[np.uint32],
    again: NDArray[np.bool_] | None,
    copied: Sequence[HashRange],
) -> int:
    """Counts the rows, by hash, that count here."""
    own = mine if again is None else mine[~again[mine]]
    return len(own) - _inside(h[own], copied)


def _inside(h: NDArray[np.uint32], ranges: Sequence[HashRange]) -> int:
    """Counts the hashes, ascending, that are in the ranges."""
    ends = (np.searchsorted(h, [one.lo, one.hi]) for one in ranges)
    return sum(int(end - begin) for begin, end in ends)


def _stored(
    whole: pa.RecordBatch, h: NDArray[np.uint32], mine: NDArray[np.int32], columns: StreamColumns
) -> pa.RecordBatch:
    at = pa.array(mine)
    lanes = [whole.column(2 + lane).take(at) for lane in columns.lanes]
    names = [HASH_COLUMN, *(f"c{i}" for i in range(len(lanes)))]
    return pa.RecordBatch.from_arrays([pa.array(h[mine]), *lanes], names=names)


def stream_numbers(batch: pa.RecordBatch) -> NDArray[np.int16]:
    """Returns the stream number of each exchanged row, with its marks."""
    return as_numpy(batch.column(0), np.int16)


def empty_rows() -> RunData:
    """Returns an empty delta."""
    none = pa.RecordBatch.from_arrays([pa.array([], pa.uint32())], names=[HASH_COLUMN])
    return RunData(none)


def rows_inside(rows: RunData, ranges: Sequence[HashRange]) -> RunData:
    """Returns the rows with hashes in the ranges (ascending, disjoint), in the same order."""
    return inside(Segment(rows, 0, rows.rows), ranges).data if rows.rows else rows
