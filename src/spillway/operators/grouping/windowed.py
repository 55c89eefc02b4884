"""Windowed group-by: a statistic over the recent rows of each key (FLUX section 3).

The rows of a key have the order (batch, time, content), whatever order they arrive in
(kernels/ordering.py). A row sees itself and, of the earlier rows in that order,

    LastRows(k)   the last k - 1
    Within        those with a time in (t - range, t], where t is its own time

and its statistic covers what it sees. In per-row mode every row gives one result, as in FLUX. In
update mode a batch gives one result per key: that of the key's last row in the batch.

State is rows with their batch number. Rows that no later row can see go when runs merge (last
rows), or when the watermark has passed them (range).

Rows that come out of order across batches do not revise earlier results: a result covers what had
come by its batch. operators/grouping/final.py gives the result of each row when it is final.

Known limitation: when a row comes for a key, all stored rows of that key are in memory at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.grouping import Grouping, by_group, grouped
from spillway.kernels.ordering import in_order
from spillway.kernels.ranking import numbers, sort_keys
from spillway.kernels.sliding import last_range, last_rows, overtaken
from spillway.operators.cumulative import Cumulative
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.partials import Bounds, GatheredRows
from spillway.operators.grouping.windows import AnyAggregate, Windows, over_windows
from spillway.operators.input import StreamColumns
from spillway.operators.lookup import Positions, candidates, matches
from spillway.operators.operator import Results
from spillway.operators.stats import OperatorStats
from spillway.rows import bounds
from spillway.rows.cutting import Stretch, Widths, cut_rows, stretches
from spillway.rows.joining import joined
from spillway.rows.size import bytes_inside
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import HASH_COLUMN, RunData, as_numpy

#: Old and new rows that are ordered together, unless they are wide; a key with more rows is
#: ordered alone.
BLOCK_ROWS = 1 << 18


@dataclass(frozen=True)
class LastRows:
    """A window of the last rows of a key."""

    rows: int
    #: Position of the column that orders the rows of a batch; None: their content does.
    order: int | None = None


@dataclass(frozen=True)
class Within:
    """A window of a key's rows in a range of time, which the stream's columns name."""


class RowWindows:
    """Aggregates over windows of rows that the state keeps, whose last column is their batch."""

    def __init__(
        self,
        stream: StreamColumns,
        emitted: Sequence[tuple[str, int]],
        aggregates: Sequence[AnyAggregate],
        window: LastRows | Within,
        *,
        per_row: bool,
        block_rows: int = 65_536,
    ) -> None:
        """`emitted` are the columns that a result takes from its row: names and positions."""
        self.stream = stream
        self.emitted = tuple(emitted)
        self.aggregates = tuple(aggregates)
        self.window = window
        self.per_row = per_row
        self.block_rows = block_rows
        self._order = window.order if isinstance(window, LastRows) else stream.time
        #: Orders rows of one batch and time: all columns except the keys.
        self._content = [at for at in range(len(stream.lanes)) if at not in stream.keys]

    def of_keys(
        self, old: Sequence[Segment], delta: RunData, groups: Grouping
    ) -> Iterator[tuple[pa.RecordBatch, NDArray[np.uint32]]]:
        """Yields results of some keys of the delta, and the hash of each."""
        rows, number, new = self._gathered(old, delta, groups)
        ordered = self._in_order(rows, by_group(number, len(groups)))
        block = GatheredRows(rows, rows.column(-1).to_numpy()[ordered.order], ordered.order)
        at = self._due(block, new[ordered.order], ordered.starts)
        if not len(at):
            return
        windows = self._windows(block, ordered.starts, at)
        due, hashes = ordered.order[at], delta.h[groups.first]
        names = [*(name for name, _ in self.emitted), *(one.name for one in self.aggregates)]
        for begin, end in self._stretches(rows, ordered, at):
            some = due[begin:end]
            values = over_windows(self.aggregates, block, windows.take(slice(begin, end)))
            shown = [rows.column(position).take(pa.array(some)) for _, position in self.emitted]
            result = pa.RecordBatch.from_arrays([*shown, *values], names=names)
            yield result, hashes[number[some]]

    def _stretches(
        self, rows: pa.RecordBatch, ordered: Grouping, at: NDArray[np.int64]
    ) -> Iterator[Stretch]:
        """Cuts windows so that their results have bounded bytes, whatever rows they show.

        A window may show any value of its key's rows: the least, or the first. So a result counts
        as much as the widest of them, for each column.
        """
        taken = {position for _, position in self.emitted}
        for one in self.aggregates:
            if isinstance(one, Aggregate) and one.column is not None:
                taken.add(one.column)
        widths = Widths([rows.column(position) for position in sorted(taken)])
        if len(at) * 2 * widths.widest <= bounds.JOINED_BYTES:
            return iter([(0, len(at))])
        sizes = widths.at(ordered.order)
        widest = np.maximum.reduceat(sizes, ordered.starts[:-1])
        of_key = np.searchsorted(ordered.starts, at, side="right") - 1
        return stretches(sizes[at] + widest[of_key], bounds.JOINED_BYTES)

    def _gathered(
        self, old: Sequence[Segment], delta: RunData, groups: Grouping
    ) -> tuple[pa.RecordBatch, Positions, NDArray[np.bool_]]:
        """Gathers the rows of some keys, with the key number, and whether it is from the delta.

        Rows of the delta come last, so the rows of a key are nearly in order.
        """
        first = pa.array(groups.first)
        keys = [key.take(first) for key in self.keys_of(delta.payload)]
        parts, number = [], []
        for segment in old:
            left, right = matches(delta.h[groups.first], keys, segment, self.stream.keys)
            if len(left):
                parts.append(segment.data.payload.take(pa.array(right)))
                number.append(left)
        parts.append(delta.payload.take(pa.array(groups.order)))
        number.append(np.repeat(np.arange(len(groups), dtype=np.int32), np.diff(groups.starts)))
        whole = joined(parts)
        new = np.arange(whole.num_rows) >= whole.num_rows - len(groups.order)
        return whole, np.concatenate(number), new

    def _in_order(self, rows: pa.RecordBatch, groups: Grouping) -> Grouping:
        """Orders the rows of each key so that windows are contiguous.

        For a range of time it orders by time first. That is the order of the rows, unless a row of
        a later batch overtakes one; those windows are handled separately.
        """
        batches = numbers(rows.column(-1), np.int64)
        times = batches if self._order is None else sort_keys(rows.column(self._order))
        first, second = batches, times
        if not isinstance(self.window, LastRows):
            first, second = times, batches
        return in_order(groups, first, second, [rows.column(at) for at in self._content])

    def _due(self, block: GatheredRows, new: NDArray[np.bool_], starts: Bounds) -> Bounds:
        """Marks the rows that give a result."""
        raise NotImplementedError

    def _windows(self, block: GatheredRows, starts: Bounds, at: Bounds) -> Windows:
        """Returns the windows of some rows."""
        raise NotImplementedError

    def keys_of(self, payload: pa.RecordBatch) -> list[pa.Array]:
        """Returns the keys of rows."""
        return [payload.column(at) for at in self.stream.keys]


class WindowedOperator(RowWindows, Cumulative):
    """Aggregates one stream by key, over a window of each key's rows, as rows come."""

    @property
    def untracked(self) -> str:
        """Why there is no parallel track: the last rows stay until others come."""
        if isinstance(self.window, Within):
            return ""
        return "the last rows of a key stay until newer ones come, however long that takes"

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The layout: the columns of the stream, and the batch."""
        combine = self.combine if isinstance(self.window, LastRows) else None
        stream = self.stream
        return (StreamLayout(stream.name, stream.time, stream.window_us, combine),)

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """Returns the rows with their batch number."""
        [delta] = deltas
        if delta.rows == 0:
            return (delta,)
        columns = [*delta.batch.columns, pa.array(np.full(delta.rows, batch, np.int32))]
        names = [HASH_COLUMN, *(f"c{at}" for at in range(len(columns) - 1))]
        return (RunData(pa.RecordBatch.from_arrays(columns, names=names), delta.time_column),)

    def combine(
        self, rows: pa.RecordBatch, order: Positions, waiting: NDArray[np.bool_] | None
    ) -> pa.RecordBatch:
        """Returns the last rows of each key, and all rows that wait for their results."""
        assert isinstance(self.window, LastRows)
        payload = rows.select(rows.schema.names[1:])
        groups = grouped(as_numpy(rows.column(0), np.uint32), self.keys_of(payload), order)
        sizes = np.diff(groups.starts)
        if (sizes > self.window.rows).any():
            ordered = self._in_order(payload, groups).order
            from_end = np.repeat(groups.starts[1:], sizes) - np.arange(len(order))
            keep = np.zeros(len(order), np.bool_) if waiting is None else waiting.copy()
            keep[ordered[from_end <= self.window.rows]] = True
            order = order[keep[order]]
        return rows.take(pa.array(order))

    def results(self, old: Sequence[Segment], delta: RunData, stats: OperatorStats) -> Results:
        """Yields a result for each row of the delta, or for each of its keys."""
        if delta.rows == 0:
            return (delta,)
        groups = grouped(delta.h, self.keys_of(delta.payload))
        for begin, end in row_blocks(old, delta, groups):
            starts = groups.starts[begin : end + 1]
            some = Grouping(groups.order[starts[0] : starts[-1]], starts - starts[0])
            for result, hashes in self.of_keys(old, delta, some):
                stats.count_outputs(hashes)
                yield from cut_rows(result, most_rows=self.block_rows)
        return (delta,)

    def shadow(self, _: Sequence[Segment], delta: RunData) -> RunData:
        """Returns all rows: later ones see them."""
        return delta

    def _due(self, block: GatheredRows, new: NDArray[np.bool_], starts: Bounds) -> Bounds:
        """Marks the rows that give a result: all new ones, or the last one of each key."""
        if self.per_row:
            return np.flatnonzero(new)
        batches = block.batches
        newest = np.maximum.reduceat(batches, starts[:-1])
        of_newest = batches == np.repeat(newest, np.diff(starts))
        places = np.where(of_newest, np.arange(len(batches)), -1)
        return np.asarray(np.maximum.reduceat(places, starts[:-1]), np.int64)

    def _windows(self, rows: GatheredRows, starts: Bounds, at: Bounds) -> Windows:
        """Returns the windows of rows, which end with the row."""
        if isinstance(self.window, LastRows):
            begin = last_rows(starts, self.window.rows)
            tangled = np.zeros(len(at), np.bool_)
        else:
            assert self.stream.time is not None
            assert self.stream.window_us is not None
            times = as_numpy(rows.column(self.stream.time), np.int64)
            begin = last_range(starts, times, self.stream.window_us)
            tangled = overtaken(starts, rows.batches)[at]
        return Windows(begin[at], at + 1, tangled)


def row_blocks(old: Sequence[Segment], delta: RunData, groups: Grouping) -> Iterator[Stretch]:
    """Splits the keys of a delta into blocks with a bounded number of rows and bytes."""
    h = delta.h[groups.first]
    found = [(segment.data, *candidates(h, segment, likely=True)) for segment in old]
    sizes = np.diff(groups.starts)
    for _, which, _, count in found:
        sizes[which] += count
    row_bytes = max(1, bounds.STEP_BYTES // BLOCK_ROWS)
    sizes *= row_bytes
    every = range(delta.payload.num_columns)
    widest = max([delta.widths(every).widest, *(one[0].widths(every).widest for one in found)])
    if widest > row_bytes:
        exact = np.add.reduceat(delta.widths(every).at(groups.order), groups.starts[:-1])
        for data, which, start, count in found:
            exact[which] += bytes_inside(data.payload, start, start + count)
        sizes = np.maximum(sizes, exact)
    return stretches(sizes, BLOCK_ROWS * row_bytes)
