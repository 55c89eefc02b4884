"""Keys and partials of one stream: the stored form of every group-by that does not keep rows.

A stored row has the hash, the keys, the *marks* and the partials (operators/grouping/partials.py).
Marks are times: a group-by over all rows has none; one over windows has the start of the window; one
over sessions has when the session began and ended. Rows of equal keys whose marks belong together
are one group, and combine into one row. Combining is associative, so state may merge, spill and move
in any order.

The operators differ in their marks, and in when they give results:

    groupby.py        updates: for each group that a batch touched (needs all earlier rows)
    lasting.py        updates whose keys leave when they have not been touched for some time
    closing.py        final results: for each group, once, when the watermark has passed its end
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.grouping import Grouping
from spillway.kernels.ranking import numbers
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.folds import FoldAggregate
from spillway.operators.grouping.marks import Marks, Unmarked
from spillway.operators.grouping.partials import Count, GatheredRows, Partial
from spillway.operators.input import StreamColumns
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.run import HASH_COLUMN, RunData, as_numpy

Columns = Sequence[pa.Array]


class Totals:
    """How the rows of one stream become keys, marks and partials, and these become results."""

    def __init__(
        self,
        stream: StreamColumns,
        key_names: Sequence[str],
        aggregates: Sequence[Aggregate | FoldAggregate],
        block_rows: int = 65_536,
        marks: Marks | None = None,
    ) -> None:
        self.stream = stream
        self.key_names = tuple(key_names)
        self.aggregates = tuple(aggregates)
        self.block_rows = block_rows
        self.marks: Marks = marks or Unmarked()
        #: Every partial once, even if several aggregates need it.
        self.partials: tuple[Partial, ...] = tuple(
            dict.fromkeys(one for aggregate in aggregates for one in aggregate.partials())
        )
        #: The positions of the keys, and of the first partial, in a stored payload.
        self.key_at = tuple(range(len(self.key_names)))
        self.first_partial = len(self.key_names) + self.marks.width

    def layout(self, *, final: bool = False, visited: bool = False) -> StreamLayout:
        """Returns the layout; with `final`, the operator sees rows when they expire.

        `visited`: parts of a group on disk miss no result.
        """
        time = None if self.marks.time is None else len(self.key_at) + self.marks.time
        return StreamLayout(
            self.stream.name,
            time,
            self.marks.life_us,
            combine=self.combine,
            weigh=self.weigh,
            final=final,
            visited=visited,
            # Layers with all windows of a batch may merge; merging drops those that have ended.
            narrow_us=None if self.marks.life_us is None else 4 * self.marks.life_us,
        )

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """Reduces the rows of each group to partials."""
        [delta] = deltas
        if delta.rows == 0:
            return (delta,)
        payload = delta.payload
        keys = [payload.column(at) for at in self.stream.keys]
        timed = None if self.marks.time is None else self.stream.time
        times = None if timed is None else payload.column(timed)
        marks = self.marks.of_rows(times)
        groups = self.marks.grouped(delta.h, keys, marks, None)
        rows = GatheredRows(payload, np.full(delta.rows, batch, np.int32))
        columns = [column for one in self.partials for column in one.of_rows(rows, groups)]
        reduced = self._batch(delta.h, keys, self.marks.combined(marks, groups), columns, groups)
        return (self.run(self._spread(reduced)),)

    def _spread(self, reduced: pa.RecordBatch) -> pa.RecordBatch:
        """Returns a row for each window that a group of rows is in."""
        at = 1 + len(self.key_at)
        spread = self.marks.spread(reduced.columns[at : at + self.marks.width])
        if spread is None:
            return reduced
        rows, marks = spread
        columns = [*reduced.take(pa.array(rows)).columns]
        columns[at : at + self.marks.width] = marks
        whole = pa.RecordBatch.from_arrays(columns, names=reduced.schema.names)
        return self.combine(whole, np.arange(len(rows), dtype=np.int32), None)

    def combine(
        self, rows: pa.RecordBatch, order: NDArray[np.int32], _: NDArray[np.bool_] | None
    ) -> pa.RecordBatch:
        """Combines partials of equal groups, whether they wait for results or not."""
        h = as_numpy(rows.column(0), np.uint32)
        keys = [rows.column(1 + at) for at in self.key_at]
        marks = rows.columns[1 + len(keys) : 1 + self.first_partial]
        groups = self.marks.grouped(h, keys, marks, order)
        if groups.alone:
            return rows.take(pa.array(groups.order))
        columns = self._combined(rows.columns[1 + self.first_partial :], groups)
        return self._batch(h, keys, self.marks.combined(marks, groups), columns, groups)

    def _combined(self, columns: Columns, groups: Grouping) -> list[pa.Array]:
        found: list[pa.Array] = []
        at = 0
        for partial in self.partials:
            found += partial.combined(columns[at : at + partial.width], groups)
            at += partial.width
        return found

    def weigh(self, rows: pa.RecordBatch) -> int:
        """Returns the sum of all counts, which are the same however rows are combined."""
        found, at = 0, 1 + self.first_partial
        for partial in self.partials:
            if isinstance(partial, Count):
                found += int(numbers(rows.column(at), np.int64).sum())
            at += partial.width
        return found

    def run(self, batch: pa.RecordBatch) -> RunData:
        """Returns stored rows as a run."""
        return RunData(batch, self.layout().time_column)

    def shown(
        self, keys: Columns, marks: Columns, found: Mapping[Partial, Columns]
    ) -> pa.RecordBatch:
        """Returns the results of groups from their keys, marks and partials."""
        results = [one.result([found[p] for p in one.partials()]) for one in self.aggregates]
        extra = self.marks.shown(marks)
        names = [*self.key_names, *extra, *(one.name for one in self.aggregates)]
        return pa.RecordBatch.from_arrays([*keys, *extra.values(), *results], names=names)

    def partials_in(self, payload: pa.RecordBatch) -> dict[Partial, Columns]:
        """Returns the columns of each partial in a stored payload."""
        found: dict[Partial, Columns] = {}
        at = self.first_partial
        for partial in self.partials:
            found[partial] = payload.columns[at : at + partial.width]
            at += partial.width
        return found

    def _batch(
        self,
        h: NDArray[np.uint32],
        keys: Columns,
        marks: Columns,
        columns: Columns,
        groups: Grouping,
    ) -> pa.RecordBatch:
        """Builds one row per group; marks and partials have one value per group already."""
        if self.marks.width or not groups.alone:
            first = groups.first
            at = pa.array(first)
            h, keys = h[first], [key.take(at) for key in keys]
        whole = [pa.array(h), *keys, *marks, *columns]
        names = [HASH_COLUMN, *(f"c{i}" for i in range(len(whole) - 1))]
        return pa.RecordBatch.from_arrays(whole, names=names)
