"""Dedup: emits a row the first time its key appears.

The operator takes the rows of a key in the order (batch, time, content), not in that of arrival
(kernels/ordering.py). Without a range, it emits the first row of a key. With a range, it emits a
row whose time is at least the range away, before or after, from every emitted row of its key. So
only the times of the rows decide. Spark's `dropDuplicatesWithinWatermark` forgets a key when the
watermark passes it, so its output depends on when batches were cut.

As a batch query, for rows in the order of their time: for each key, take the first row, then the
first row at least a range after it, and so on.

*Tumbling*: windows of one length start at the epoch, as in Spark's `window`. As a batch query: the
first row by key and `window(time, length)`.

State is the emitted keys with their times, or with their window starts. A start expires when the
watermark is a length past it, when no row of the window can come any more. That alone decides
expiry and the end of a parallel track (state/slot/tracks.py).

Rows of groups with a part on disk have no answer yet (operators/cumulative.py). The state keeps
them whole, in a list of one row, which is empty for emitted keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.grouping import Grouping, by_group, grouped
from spillway.kernels.ordering import apart, in_order, sort_each
from spillway.kernels.ranking import numbers, sort_keys
from spillway.operators.cumulative import Cumulative
from spillway.operators.input import StreamColumns
from spillway.operators.lookup import matches
from spillway.operators.operator import Results
from spillway.operators.stats import OperatorStats
from spillway.rows.cutting import TakenRows, Widths, cut_taken
from spillway.rows.joining import narrowed
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import HASH_COLUMN, RunData, as_numpy

Positions = NDArray[np.int32]


class DedupOperator(Cumulative):
    """Emits one row of each key; with a window, one per range or tumbling window."""

    def __init__(
        self,
        stream: StreamColumns,
        order: int | None = None,
        block_rows: int = 65_536,
        *,
        tumbling: bool = False,
    ) -> None:
        self.stream = stream
        #: Whether the stream's window is the length of tumbling windows that start at the epoch.
        self.tumbling = tumbling
        #: The column that orders the rows of a batch: the window's time, another column, or none.
        self.order = order if stream.time is None else stream.time
        self.block_rows = block_rows
        self._key_at = tuple(range(len(stream.keys)))

    @property
    def untracked(self) -> str:
        """Why there is no parallel track: each decision depends on the one before.

        In tumbling windows a decision concerns only rows of one window, which ends.
        """
        if self.stream.window_us is None:
            return "without a window, keys never expire"
        if self.tumbling:
            return ""
        return "each decision about a row depends on the rows that passed before it"

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The layout: keys, the time or window start if any, and the row while it waits."""
        time = None if self.stream.time is None else len(self._key_at)
        return (StreamLayout(self.stream.name, time, self.stream.window_us),)

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """Returns the rows in the form in which they wait."""
        [delta] = deltas
        if delta.rows == 0:
            return (delta,)
        payload = delta.payload
        marks = pa.array(np.full(delta.rows, batch, np.int32))
        visible = payload.columns[: len(self.stream.visible)]
        names = ["batch", *(f"v{at}" for at in range(len(visible)))]
        rows = pa.StructArray.from_arrays([marks, *visible], names)
        offsets = pa.array(np.arange(delta.rows + 1, dtype=np.int32))
        whole = pa.ListArray.from_arrays(offsets, rows)
        keys = [payload.column(at) for at in self.stream.keys]
        if self.stream.time is not None:
            keys.append(self._compared(payload.column(self.stream.time)))
        return (self._run(delta.h, keys, whole),)

    def results(self, old: Sequence[Segment], delta: RunData, stats: OperatorStats) -> Results:
        """Yields the rows whose keys are new; keeps their keys."""
        if delta.rows == 0:
            return (delta,)
        at = self._new(old, delta)
        stats.count_outputs(delta.h[at])
        yield from self._emitted(delta, at)
        return (self._kept(delta, at),)

    def shadow(self, old: Sequence[Segment], delta: RunData) -> RunData:
        """Returns each key and window once: no other row of it can pass."""
        return self._kept(delta, self._new(old, delta)) if delta.rows else delta

    def _new(self, old: Sequence[Segment], delta: RunData) -> Positions:
        """Returns the emitted rows, ascending."""
        keys = delta.payload.columns[: len(self._key_at)]
        groups = grouped(delta.h, keys)
        first = groups.first
        of_first = pa.array(first)
        h, mine = delta.h[first], [key.take(of_first) for key in keys]
        found = [(segment, *matches(h, mine, segment, self._key_at)) for segment in old]
        if self.stream.window_us is None:
            new = np.ones(len(groups), np.bool_)
            for _, left, _ in found:
                new[left] = False
            return np.sort(self._sorted(delta, _only(groups, new)).first)
        known = by_group(_joined([left for _, left, _ in found]), len(groups))
        times = _joined([_times(segment.data)[right] for segment, _, right in found], np.int64)
        seen = times[known.order]
        sort_each(seen, known.starts)
        ordered = self._sorted(delta, groups)
        mine_times = _times(delta)[ordered.order]
        # Different window starts are different windows.
        least = 1 if self.tumbling else self.stream.window_us
        far = apart(seen, known.starts, mine_times, ordered.starts, least)
        return np.sort(ordered.order[far])

    def _compared(self, times: pa.Array) -> pa.Array:
        """Returns what rows are compared by: their times, or their window starts."""
        if not self.tumbling:
            return times
        # The remainder is never negative, so times before the epoch use the same grid.
        micros = as_numpy(times, np.int64)
        return pa.array(micros - micros % self.stream.window_us).view(times.type)

    def _sorted(self, delta: RunData, groups: Grouping) -> Grouping:
        """Sorts the rows of each group by (batch, time, content)."""
        if groups.alone:
            return groups
        batches, *visible = delta.payload.column(-1).flatten().flatten()
        marks = numbers(batches, np.int64)
        times = marks if self.order is None else sort_keys(visible[self.order])
        return in_order(groups, marks, times, visible)

    def _emitted(self, delta: RunData, at: Positions) -> Iterator[pa.RecordBatch]:
        waiting = delta.payload.column(-1)
        taken = TakenRows(Widths([waiting]), at)
        for begin, end in cut_taken([taken], len(at), self.block_rows):
            _, *visible = waiting.take(pa.array(at[begin:end])).flatten().flatten()
            block = pa.RecordBatch.from_arrays(visible, names=list(self.stream.visible))
            yield narrowed(block)

    def _kept(self, delta: RunData, at: Positions) -> RunData:
        rows = pa.array(at)
        waiting = delta.payload.column(-1)
        none = pa.ListArray.from_arrays(
            pa.array(np.zeros(len(at) + 1, np.int32)), waiting.values.slice(0, 0)
        )
        keys = [column.take(rows) for column in delta.payload.columns[:-1]]
        return self._run(delta.h[at], keys, none)

    def _run(
        self, h: NDArray[np.uint32], columns: Sequence[pa.Array], waiting: pa.Array
    ) -> RunData:
        names = [HASH_COLUMN, *(f"c{at}" for at in range(len(columns) + 1))]
        batch = pa.RecordBatch.from_arrays([pa.array(h), *columns, waiting], names=names)
        return RunData(batch, self.layouts[0].time_column)


def _only(groups: Grouping, chosen: NDArray[np.bool_]) -> Grouping:
    """Selects some of the groups."""
    if chosen.all():
        return groups
    sizes = np.diff(groups.starts)
    order = groups.order[np.repeat(chosen, sizes)]
    return Grouping(order, np.append(0, np.cumsum(sizes[chosen])).astype(np.int64))


def _times(data: RunData) -> NDArray[np.int64]:
    assert data.times is not None
    return data.times


def _joined(parts: Sequence[NDArray[Any]], dtype: type = np.int32) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts])
