"""Partials: summaries of values that can be combined.

A partial is a few columns, one row per key. `of_rows` makes it from rows; `combined` merges several
rows of it, in any order and grouping. So state can merge, spill and move as partials. Aggregates
(operators/grouping/aggregates.py) say which partials they need, and share them.

Columns have no NULLs, except where a partial keeps a chosen value as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.errors import QueryError
from spillway.kernels import reduce, sliding
from spillway.kernels.equality import is_valid
from spillway.kernels.grouping import Grouping
from spillway.kernels.ranking import numbers, sort_keys

Bounds = NDArray[np.int64]
_ALL_VALID = np.zeros(0, np.bool_)


class GatheredRows:
    """Rows to reduce: their columns, and the batch of each.

    With an order, they are these rows of the payload; only requested columns are gathered.
    """

    def __init__(
        self,
        payload: pa.RecordBatch,
        batches: NDArray[np.int32],
        order: NDArray[np.int32] | None = None,
    ) -> None:
        self.batches = batches
        self._payload = payload
        self._order = None if order is None else pa.array(order)
        self._gathered: dict[int, pa.Array] = {}

    def column(self, at: int) -> pa.Array:
        """Returns one column."""
        if self._order is None:
            return self._payload.column(at)
        if at not in self._gathered:
            self._gathered[at] = self._payload.column(at).take(self._order)
        return self._gathered[at]


class Partial(Protocol):
    """One kind of partial over one column."""

    @property
    def width(self) -> int:
        """Its number of columns."""
        ...

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Returns the partial of each group of rows."""
        ...

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Returns the partial of each group of partials."""
        ...


@runtime_checkable
class Total(Partial, Protocol):
    """A partial of one numeric column that adds up: state rows are added in place."""

    def add(
        self,
        totals: NDArray[Any],
        at: NDArray[np.int32],
        column: pa.Array,
        rows: NDArray[np.int32],
    ) -> None:
        """Adds row `rows[i]` of a column of this partial to the total at `at[i]`."""
        ...


@runtime_checkable
class Sliding(Partial, Protocol):
    """A partial for sliding windows that does not read all rows of each window."""

    def of_windows(self, rows: GatheredRows, begin: Bounds, end: Bounds) -> list[pa.Array] | None:
        """Returns the partial of rows [begin, end) of each window; None: not for these values."""
        ...


def validity(column: pa.Array) -> NDArray[np.bool_]:
    """Marks the values that are not NULL; empty if none is NULL."""
    return is_valid(column) if column.null_count else _ALL_VALID


@dataclass(frozen=True)
class Count:
    """Counts values that are not NULL; without a column, counts rows."""

    column: int | None
    width = 1

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Counts values by group."""
        valid = _ALL_VALID if self.column is None else validity(rows.column(self.column))
        if len(valid) == 0:
            return [pa.array(np.diff(groups.starts))]
        return [pa.array(reduce.count_valid(valid, groups.order, groups.starts))]

    def of_windows(self, rows: GatheredRows, begin: Bounds, end: Bounds) -> list[pa.Array]:
        """Counts values by window: counts are integers, so differences of sums are exact."""
        valid = _ALL_VALID if self.column is None else validity(rows.column(self.column))
        if len(valid) == 0:
            return [pa.array(end - begin)]
        before = np.append(0, np.cumsum(valid))
        return [pa.array(before[end] - before[begin])]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Adds counts."""
        counts = numbers(columns[0], np.int64)
        return [pa.array(reduce.sum_ints(counts, _ALL_VALID, groups.order, groups.starts)[0])]

    def add(
        self,
        totals: NDArray[Any],
        at: NDArray[np.int32],
        column: pa.Array,
        rows: NDArray[np.int32],
    ) -> None:
        """Adds counts."""
        reduce.add_ints(totals, at, numbers(column, np.int64), rows)


@dataclass(frozen=True)
class IntSum:
    """An exact sum of integers in 64 bits; an overflow is an error, as in Spark by default."""

    column: int
    name: str
    width = 1

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Sums by group; 0 if all values are NULL."""
        column = rows.column(self.column)
        return self._summed(numbers(column, np.int64), validity(column), groups)

    def of_windows(self, rows: GatheredRows, begin: Bounds, end: Bounds) -> list[pa.Array] | None:
        """Sums by window, if no sum can overflow 64 bits."""
        values = numbers(rows.column(self.column), np.int64)
        largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
        if largest * int((end - begin).max(initial=0)) >= 1 << 63:
            return None
        return [pa.array(sliding.slide_sum(values, begin, end, np.int64(0)))]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Adds sums."""
        return self._summed(numbers(columns[0], np.int64), _ALL_VALID, groups)

    def add(
        self,
        totals: NDArray[Any],
        at: NDArray[np.int32],
        column: pa.Array,
        rows: NDArray[np.int32],
    ) -> None:
        """Adds sums."""
        if reduce.add_ints(totals, at, numbers(column, np.int64), rows) >= 0:
            raise overflow(self.name, "bigint", "decimal(38,0) or double")

    def _summed(
        self, values: NDArray[Any], valid: NDArray[np.bool_], groups: Grouping
    ) -> list[pa.Array]:
        sums, over = reduce.sum_ints(values, valid, groups.order, groups.starts)
        if over >= 0:
            raise overflow(self.name, "bigint", "decimal(38,0) or double")
        return [pa.array(sums)]


@dataclass(frozen=True)
class FloatSum:
    """A sum in floating point."""

    column: int
    width = 1

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Sums by group; 0 if all values are NULL."""
        column = rows.column(self.column)
        values = numbers(column, np.float64)
        return [pa.array(reduce.sum_floats(values, validity(column), groups.order, groups.starts))]

    def of_windows(self, rows: GatheredRows, begin: Bounds, end: Bounds) -> list[pa.Array]:
        """Sums by window."""
        values = numbers(rows.column(self.column), np.float64)
        return [pa.array(sliding.slide_sum(values, begin, end, 0.0))]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Adds sums."""
        values = numbers(columns[0], np.float64)
        return [pa.array(reduce.sum_floats(values, _ALL_VALID, groups.order, groups.starts))]

    def add(
        self,
        totals: NDArray[Any],
        at: NDArray[np.int32],
        column: pa.Array,
        rows: NDArray[np.int32],
    ) -> None:
        """Adds sums."""
        reduce.add_floats(totals, at, numbers(column, np.float64), rows)


@dataclass(frozen=True)
class DecimalSum:
    """An exact sum of decimals in 128 bits."""

    column: int
    name: str
    scale: int
    width = 1

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Sums by group; 0 if all values are NULL."""
        column = rows.column(self.column)
        return self._summed(column, validity(column), groups)

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Adds sums."""
        return self._summed(columns[0], _ALL_VALID, groups)

    def _summed(
        self, column: pa.Array, valid: NDArray[np.bool_], groups: Grouping
    ) -> list[pa.Array]:
        words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset :]
        sums, over = reduce.sum_wide(words, valid, groups.order, groups.starts)
        if over >= 0:
            raise overflow(self.name, f"decimal(38,{self.scale})", "a smaller scale, or double")
        buffers = [None, pa.py_buffer(sums)]
        return [pa.Array.from_buffers(pa.decimal128(38, self.scale), len(groups), buffers)]


@dataclass(frozen=True)
class Extreme:
    """The least or the largest value; NULL if there is none. NaN is above all numbers."""

    column: int
    largest: bool
    width = 1

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Returns the extreme of each group of values."""
        return self.combined([rows.column(self.column)], groups)

    def of_windows(self, rows: GatheredRows, begin: Bounds, end: Bounds) -> list[pa.Array]:
        """Returns the extreme of each window."""
        column = rows.column(self.column)
        keys = sort_keys(column)
        keys = ~keys if self.largest else keys
        at = sliding.slide_least(keys, validity(column), begin, end)
        return [column.take(pa.array(at, mask=at < 0))]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Returns the extreme of extremes."""
        [column] = columns
        keys = sort_keys(column)
        keys = ~keys if self.largest else keys
        at = reduce.least(keys, validity(column), groups.order, groups.starts)
        return [column.take(pa.array(at, mask=at < 0))]


@dataclass(frozen=True)
class End:
    """The first or the last value, NULL or not, by (batch, order column, value)."""

    column: int
    #: The column that orders the rows of a batch; None: their values do.
    order: int | None
    last: bool
    width = 3

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Returns the first or last value of each group of rows."""
        values = rows.column(self.column)
        times = np.zeros(len(values), np.int64)
        if self.order is not None:
            times = sort_keys(rows.column(self.order))
        return self.combined([values, pa.array(rows.batches), pa.array(times)], groups)

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Returns the first of the firsts, or the last of the lasts."""
        keys = [numbers(column, np.int64) for column in columns[1:]] + [sort_keys(columns[0])]
        batch, time, value = (~one for one in keys) if self.last else keys
        at = reduce.first_of_three(batch, time, value, groups.order, groups.starts)
        return [column.take(pa.array(at)) for column in columns]


@dataclass(frozen=True)
class Moments:
    """Count, mean and squared distances from the mean: stable where sums of squares cancel out."""

    column: int
    width = 3

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Returns the moments of groups of values."""
        column = rows.column(self.column)
        values = numbers(column, np.float64)
        found = reduce.moments(values, validity(column), groups.order, groups.starts)
        return [pa.array(one) for one in found]

    def of_windows(self, rows: GatheredRows, begin: Bounds, end: Bounds) -> list[pa.Array]:
        """Returns the moments of windows."""
        column = rows.column(self.column)
        values = numbers(column, np.float64)
        found = sliding.slide_moments(values, validity(column), begin, end)
        return [pa.array(one) for one in found]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Combines moments."""
        count = numbers(columns[0], np.int64)
        mean, m2 = (numbers(column, np.float64) for column in columns[1:])
        found = reduce.combine_moments(count, mean, m2, groups.order, groups.starts)
        return [pa.array(one) for one in found]


def overflow(name: str, kind: str, other: str) -> QueryError:
    """Returns the error for a sum that overflows its type."""
    return QueryError(
        f"the sum {name} does not fit into {kind}",
        detail="the values of a group add up to more than the result type can hold",
        hint=f"cast the column to {other} before the sum",
    )
