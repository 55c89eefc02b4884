"""Windowed group-by with one final result for each row, when the watermark has passed its time.

The result of a row covers the rows of its key with a time in (t - range, t], where t is its own time,
whatever the order in which they came: SQL's window over a range that ends at the current row. It is
final when the watermark is later than t, because no row up to t can come any more.

State is rows with two marks: their batch, and a time by which they expire (slot/expiring.py). That is
t at first: then the row gives its result. If later rows can still see it, the operator keeps it until
t plus the range.

Known limitation: when a row gives its result, all stored rows of its key are in memory at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.grouping import Grouping, grouped
from spillway.kernels.sliding import last_range
from spillway.operators.grouping.partials import Bounds, GatheredRows
from spillway.operators.grouping.windowed import RowWindows, row_blocks
from spillway.operators.grouping.windows import Windows
from spillway.operators.operator import Results
from spillway.operators.stats import OperatorStats
from spillway.rows.cutting import cut_rows
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import HASH_COLUMN, RunData, as_numpy


class FinalOperator(RowWindows):
    """Aggregates one stream by key, over a range of time before each row, when that is final."""

    @property
    def untracked(self) -> str:
        """Why there is no parallel track: rows see rows before them."""
        return "the final result of a row needs the rows before it, which one slot has"

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The layout: the columns of the stream, when a row expires, and its batch."""
        at = len(self.stream.lanes)
        name, range_us = self.stream.name, self._range
        return (StreamLayout(name, at, 1, final=True, visited=True, narrow_us=range_us),)

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """Returns the rows with their marks."""
        [delta] = deltas
        if delta.rows == 0:
            return (delta,)
        assert self.stream.time is not None
        batches = pa.array(np.full(delta.rows, batch, np.int32))
        columns = [*delta.batch.columns, delta.payload.column(self.stream.time), batches]
        names = [HASH_COLUMN, *(f"c{at}" for at in range(len(columns) - 1))]
        return (self._run(pa.RecordBatch.from_arrays(columns, names=names)),)

    def expiring(
        self, _: int, due: RunData, left: Sequence[Segment], stats: OperatorStats, /
    ) -> Results:
        """Yields a result for each row that has given none; keeps rows that later ones can see."""
        groups = grouped(due.h, self.keys_of(due.payload))
        for begin, end in row_blocks(left, due, groups):
            starts = groups.starts[begin : end + 1]
            some = Grouping(groups.order[starts[0] : starts[-1]], starts - starts[0])
            for result, hashes in self.of_keys(left, due, some):
                stats.count_outputs(hashes)
                yield from cut_rows(result, most_rows=self.block_rows)
        return (self._kept(due),)

    def _kept(self, due: RunData) -> RunData:
        """Returns the rows that have given their results now; they stay for later rows."""
        fresh = np.flatnonzero(self._fresh(due.payload))
        rows = due.batch.take(pa.array(fresh))
        at = 1 + len(self.stream.lanes)
        times = rows.column(at)
        until = as_numpy(times, np.int64) + (self._range - 1)
        marks = pa.array(until).view(times.type)
        return self._run(rows.set_column(at, rows.schema.names[at], marks))

    def _fresh(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Marks the rows that have given no result."""
        assert self.stream.time is not None
        marks = as_numpy(rows.column(len(self.stream.lanes)), np.int64)
        found: NDArray[np.bool_] = marks == as_numpy(rows.column(self.stream.time), np.int64)
        return found

    def _due(self, block: GatheredRows, new: NDArray[np.bool_], _: Bounds) -> Bounds:
        marks, times = self._marks_of(block), self._times_of(block)
        return np.flatnonzero(new & (marks == times))

    def _windows(self, block: GatheredRows, starts: Bounds, at: Bounds) -> Windows:
        """Returns the windows of rows: up to the last row of the same time, whenever it came."""
        times = self._times_of(block)
        begin = last_range(starts, times, self._range)
        ends = np.ones(len(times), np.bool_)
        ends[:-1] = times[1:] != times[:-1]
        ends[starts[1:] - 1] = True
        last = np.flatnonzero(ends)
        end = last[np.searchsorted(last, at)] + 1
        # Every row of a window counts, whatever its batch.
        block.batches = np.zeros(len(times), np.int32)
        return Windows(begin[at], end, np.zeros(len(at), np.bool_))

    def _times_of(self, block: GatheredRows) -> NDArray[np.int64]:
        assert self.stream.time is not None
        return as_numpy(block.column(self.stream.time), np.int64)

    def _marks_of(self, block: GatheredRows) -> NDArray[np.int64]:
        return as_numpy(block.column(len(self.stream.lanes)), np.int64)

    @property
    def _range(self) -> int:
        assert self.stream.window_us is not None
        return self.stream.window_us

    def _run(self, batch: pa.RecordBatch) -> RunData:
        return RunData(batch, len(self.stream.lanes))
