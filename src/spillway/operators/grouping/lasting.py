"""Group-by in updates whose keys leave when they have not been touched for some time.

A key whose rows pause for longer than its time to live starts anew: its aggregates cover its newest
*session* (operators/grouping/marks.py), rows that are at most that time apart in a chain. Only the
times of rows decide, so results do not depend on how batches were cut, or on when state left memory.
A batch gives one result for each key that it touched, that of the key's newest session. A session
leaves the state when the watermark shows that no row can touch it any more.

While a group has a part on disk, its expired rows wait there, at no harm (state/slot/due.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.grouping import grouped
from spillway.operators.cumulative import Cumulative
from spillway.operators.grouping.sessions import ended
from spillway.operators.grouping.totals import Totals
from spillway.operators.lookup import matches
from spillway.operators.operator import Results
from spillway.operators.stats import OperatorStats
from spillway.rows import bounds
from spillway.rows.cutting import cut_rows, stretches
from spillway.rows.joining import joined
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment, together
from spillway.state.runs.run import RunData, as_numpy

#: Keys looked up at a time.
STEP_KEYS = 131_072


class LastingOperator(Totals, Cumulative):
    """Aggregates one stream by key, over the rows since the key's last long pause."""

    @property
    def untracked(self) -> str:
        """Why there is no parallel track: a key may stay for ever."""
        return "a key stays as long as rows come, and needs all its rows in one slot"

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The layout: keys, sessions and partials."""
        return (self.layout(final=True, visited=False),)

    def together(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Combines partials of several segments, one row per session."""
        return self.combine(*together(parts), None)

    def expiring(
        self,
        _: int,
        due: RunData,
        left: Sequence[Segment],
        __: OperatorStats,
        /,
    ) -> Results:
        """Keeps the sessions that go on; the others give nothing more."""
        longer = ended(self, due, left)[1]
        yield from ()
        return (longer,)

    def results(self, old: Sequence[Segment], delta: RunData, stats: OperatorStats) -> Results:
        """Yields one result for each key of the delta."""
        for step in self._steps(delta):
            rows = self._with_state(old, step)
            h = as_numpy(rows.column(0), np.uint32)
            newest = self._newest(rows)
            stats.count_outputs(h[newest])
            found = RunData(rows.take(pa.array(newest)))
            columns, keys = found.payload.columns, len(self.key_at)
            marks = columns[keys : self.first_partial]
            result = self.shown(columns[:keys], marks, self.partials_in(found.payload))
            yield from cut_rows(result, most_rows=self.block_rows)
        return (delta,)

    def _steps(self, delta: RunData) -> Iterator[RunData]:
        """Cuts a delta into steps of bounded rows and bytes, at the ends of hashes."""
        sizes = delta.widths(range(delta.payload.num_columns)).at(np.arange(delta.rows))
        low = 0
        for _, end in stretches(sizes, bounds.STEP_BYTES, STEP_KEYS):
            # All rows of a key are in one step.
            last = int(np.searchsorted(delta.h, delta.h[end - 1], side="right"))
            if last > low:
                yield delta.part(low, last)
                low = last

    def _with_state(self, old: Sequence[Segment], delta: RunData) -> pa.RecordBatch:
        """Returns all sessions of the keys of a delta."""
        keys = delta.payload.columns[: len(self.key_at)]
        parts = [delta.batch]
        for segment in old:
            _, right = matches(delta.h, keys, segment, self.key_at)
            if len(right):
                parts.append(segment.data.batch.take(pa.array(np.unique(right))))
        batch = joined(parts)
        order = np.argsort(as_numpy(batch.column(0), np.uint32), kind="stable")
        return self.combine(batch, order.astype(np.int32), None)

    def _newest(self, rows: pa.RecordBatch) -> NDArray[np.int32]:
        """Returns the session of each key that began last."""
        keys = [rows.column(1 + at) for at in self.key_at]
        groups = grouped(as_numpy(rows.column(0), np.uint32), keys)
        number = np.repeat(np.arange(len(groups)), np.diff(groups.starts))
        first = as_numpy(rows.column(2 + len(keys)), np.int64)[groups.order]
        order = groups.order[np.lexsort((first, number))]
        return order[groups.starts[1:] - 1]
