"""Group-by over all rows that ever came: one row of partials per key.

State is not rows but partials (operators/grouping/partials.py). The operator first reduces a piece
of a batch to one row per key. Merging runs combines rows of equal keys, so a key has one row, plus
one in each of a few young layers. A batch looks its keys up in all of these, and gives one result
for each key that it touched ("update" mode).

NULL is a valid key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.grouping import Grouping, by_group, grouped
from spillway.kernels.ranking import numbers
from spillway.operators.cumulative import Cumulative
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.partials import Count, GatheredRows, Partial, Total
from spillway.operators.input import StreamColumns
from spillway.operators.lookup import matches
from spillway.operators.operator import Results
from spillway.operators.stats import OperatorStats
from spillway.rows import bounds
from spillway.rows.cutting import cut_rows, stretches
from spillway.rows.joining import joined_column
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment, together
from spillway.state.runs.run import HASH_COLUMN, RunData, as_numpy

#: Keys looked up at a time.
STEP_KEYS = 131_072

#: Rows of a run that have keys of a delta: the row of the delta, ascending, and that of the run.
_Found = tuple[RunData, NDArray[np.int32], NDArray[np.int32]]


class GroupByOperator(Cumulative):
    """Aggregates one stream by key, over all its rows."""

    def __init__(
        self,
        stream: StreamColumns,
        key_names: Sequence[str],
        aggregates: Sequence[Aggregate],
        block_rows: int = 65_536,
    ) -> None:
        self.stream = stream
        self.key_names = tuple(key_names)
        self.aggregates = tuple(aggregates)
        self.block_rows = block_rows
        #: Every partial once, even if several aggregates need it.
        self.partials: tuple[Partial, ...] = tuple(
            dict.fromkeys(one for aggregate in aggregates for one in aggregate.partials())
        )
        self._key_at = tuple(range(len(self.key_names)))

    @property
    def untracked(self) -> str:
        """Why there is no parallel track: a result covers all rows."""
        return "a result covers all rows that ever came: there is no window"

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The layout: keys and partials."""
        return (StreamLayout(self.stream.name, combine=self.combine, weigh=self.weigh),)

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """Reduces the rows of each key to partials."""
        [delta] = deltas
        if delta.rows == 0:
            return (delta,)
        payload = delta.payload
        keys = [payload.column(at) for at in self.stream.keys]
        groups = grouped(delta.h, keys)
        rows = GatheredRows(payload, np.full(delta.rows, batch, np.int32))
        columns = [column for one in self.partials for column in one.of_rows(rows, groups)]
        return (RunData(_batch(delta.h, keys, columns, groups)),)

    def combine(
        self, rows: pa.RecordBatch, order: NDArray[np.int32], _: NDArray[np.bool_] | None
    ) -> pa.RecordBatch:
        """Combines partials of equal keys, whether they wait for results or not."""
        h = as_numpy(rows.column(0), np.uint32)
        keys = [rows.column(1 + at) for at in self._key_at]
        groups = grouped(h, keys, order)
        if groups.alone:
            return rows.take(pa.array(order))
        columns: list[pa.Array] = []
        at = 1 + len(keys)
        for partial in self.partials:
            columns += partial.combined(rows.columns[at : at + partial.width], groups)
            at += partial.width
        return _batch(h, keys, columns, groups)

    def weigh(self, rows: pa.RecordBatch) -> int:
        """Returns the sum of all counts, which are the same however rows are combined."""
        found, at = 0, 1 + len(self._key_at)
        for partial in self.partials:
            if isinstance(partial, Count):
                found += int(numbers(rows.column(at), np.int64).sum())
            at += partial.width
        return found

    def together(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Combines partials of several segments, one row per key."""
        return self.combine(*together(parts), None)

    def results(self, old: Sequence[Segment], delta: RunData, stats: OperatorStats) -> Results:
        """Yields one result for each key of the delta."""
        for begin in range(0, delta.rows, STEP_KEYS):
            step = delta.part(begin, min(begin + STEP_KEYS, delta.rows))
            stats.count_outputs(step.h)
            keys = step.payload.columns[: len(self._key_at)]
            found = [(s.data, *matches(step.h, keys, s, self._key_at)) for s in old]
            for some, state in _in_steps(step, [one for one in found if len(one[1])]):
                yield from cut_rows(self._with_state(some, state), most_rows=self.block_rows)
        return (delta,)

    def _with_state(self, delta: RunData, state: Sequence[_Found]) -> pa.RecordBatch:
        """Returns the results for the keys of a delta, including their state."""
        keys = delta.payload.columns[: len(self._key_at)]
        parts = _Gathered(self.partials, delta.payload.columns[len(keys) :])
        for data, left, right in state:
            parts.add(data.payload.columns[len(keys) :], left, right)
        found = parts.whole()
        results = [one.result([found[p] for p in one.partials()]) for one in self.aggregates]
        names = [*self.key_names, *(one.name for one in self.aggregates)]
        return pa.RecordBatch.from_arrays([*keys, *results], names=names)


def _in_steps(
    delta: RunData, found: Sequence[_Found]
) -> Iterator[tuple[RunData, Sequence[_Found]]]:
    """Splits keys into steps whose rows, with their state, have bounded bytes; mostly one."""
    every = range(delta.payload.num_columns)
    widths = delta.widths(every)
    known = [(data.widths(every), left, right) for data, left, right in found]
    most = delta.rows * widths.widest + sum(len(left) * one.widest for one, left, _ in known)
    if most <= bounds.STEP_BYTES:
        yield delta, found
        return
    sizes = widths.at(np.arange(delta.rows))
    for one, left, right in known:
        sizes += np.bincount(left, one.at(right), delta.rows).astype(np.int64)
    for begin, end in stretches(sizes, bounds.STEP_BYTES):
        some = []
        for data, left, right in found:
            first, last = np.searchsorted(left, [begin, end]).tolist()
            if first < last:
                some.append((data, left[first:last] - np.int32(begin), right[first:last]))
        yield delta.part(begin, end), some


class _Gathered:
    """The partials of some keys, one row each, and the state added to them."""

    def __init__(self, partials: Sequence[Partial], columns: Sequence[pa.Array]) -> None:
        self._own = list(columns)
        #: Totals are added at once; other partials are collected first.
        self._totals: list[tuple[Total, int, NDArray[Any]]] = []
        self._others: list[tuple[Partial, int]] = []
        at = 0
        for partial in partials:
            if isinstance(partial, Total):
                self._totals.append((partial, at, columns[at].to_numpy().copy()))
            else:
                self._others.append((partial, at))
            at += partial.width
        self._left: list[NDArray[np.int32]] = [np.arange(len(columns[0]), dtype=np.int32)]
        self._more: list[list[pa.Array]] = []

    def add(
        self, columns: Sequence[pa.Array], left: NDArray[np.int32], right: NDArray[np.int32]
    ) -> None:
        """Adds row `right[i]` of some columns of partials to key `left[i]`."""
        for total, at, sums in self._totals:
            total.add(sums, left, columns[at], right)
        if self._others:
            rows = pa.array(right)
            self._left.append(left)
            self._more.append(
                [c.take(rows) for one, at in self._others for c in columns[at : at + one.width]]
            )

    def whole(self) -> dict[Partial, list[pa.Array]]:
        """Returns the columns of each partial, one row for each key."""
        found: dict[Partial, list[pa.Array]] = {
            total: [pa.array(sums)] for total, _, sums in self._totals
        }
        if not self._others:
            return found
        groups = by_group(np.concatenate(self._left), len(self._left[0]))
        place = 0
        for partial, at in self._others:
            span = range(place, place + partial.width)
            own = self._own[at : at + partial.width]
            columns = [
                joined_column([mine, *(more[one] for more in self._more)])
                for mine, one in zip(own, span, strict=True)
            ]
            found[partial] = partial.combined(columns, groups) if self._more else own
            place += partial.width
        return found


def _batch(
    h: NDArray[np.uint32],
    keys: Sequence[pa.Array],
    columns: Sequence[pa.Array],
    groups: Grouping,
) -> pa.RecordBatch:
    """Builds one row per group: its hash, its keys, and the given columns."""
    if not groups.alone:
        first = groups.first
        at = pa.array(first)
        h, keys = h[first], [key.take(at) for key in keys]
    names = [HASH_COLUMN, *(f"c{i}" for i in range(len(keys) + len(columns)))]
    return pa.RecordBatch.from_arrays([pa.array(h), *keys, *columns], names=names)
