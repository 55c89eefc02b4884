"""Partials: what is kept of values, so that sets of values can be put together.

A partial is a few columns, one row per key. It is made of rows (`of_rows`), and several rows of it
become one (`combined`), in any order and in any grouping: that is what lets state be merged, spilled
and moved as partials. Aggregates (operators/grouping/aggregates.py) say which partials they need, and
share them.

Columns have no NULL, except where a value that was chosen is kept as it was.
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


class Rows:
    """Rows to be reduced: their columns, and the batch that each came with.

    With an order, they are these rows of the payload; only columns that are asked for are gathered.
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
        """One column."""
        if self._order is None:
            return self._payload.column(at)
        if at not in self._gathered:
            self._gathered[at] = self._payload.column(at).take(self._order)
        return self._gathered[at]


class Partial(Protocol):
    """One kind of partial over one column."""

    @property
    def width(self) -> int:
        """How many columns it has."""
        ...

    def of_rows(self, rows: Rows, groups: Grouping) -> list[pa.Array]:
        """The partial of each group of rows."""
        ...

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """The partial of each group of partials."""
        ...


@runtime_checkable
class Total(Partial, Protocol):
    """A partial of one column of numbers that add up: rows of state are added where they lie."""

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
    """A partial that is made of sliding windows without going through all rows of each."""

    def of_windows(self, rows: Rows, begin: Bounds, end: Bounds) -> list[pa.Array] | None:
        """The partial of the rows [begin, end) of each window; None: not of these values."""
        ...


def validity(column: pa.Array) -> NDArray[np.bool_]:
    """Which values are not NULL; empty if all are."""
    return is_valid(column) if column.null_count else _ALL_VALID


@dataclass(frozen=True)
class Count:
    """How many values are not NULL; without a column, how many rows there are."""

    column: int | None
    width = 1

    def of_rows(self, rows: Rows, groups: Grouping) -> list[pa.Array]:
        """Values by group."""
        valid = _ALL_VALID if self.column is None else validity(rows.column(self.column))
        if len(valid) == 0:
            return [pa.array(np.diff(groups.starts))]
        return [pa.array(reduce.count_valid(valid, groups.order, groups.starts))]

    def of_windows(self, rows: Rows, begin: Bounds, end: Bounds) -> list[pa.Array]:
        """Counts are whole numbers: differences of sums are exact."""
        valid = _ALL_VALID if self.column is None else validity(rows.column(self.column))
        if len(valid) == 0:
            return [pa.array(end - begin)]
        before = np.append(0, np.cumsum(valid))
        return [pa.array(before[end] - before[begin])]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Counts add up."""
        counts = numbers(columns[0], np.int64)
        return [pa.array(reduce.sum_ints(counts, _ALL_VALID, groups.order, groups.starts)[0])]

    def add(
        self,
        totals: NDArray[Any],
        at: NDArray[np.int32],
        column: pa.Array,
        rows: NDArray[np.int32],
    ) -> None:
        """Counts add up."""
        reduce.add_ints(totals, at, numbers(column, np.int64), rows)


@dataclass(frozen=True)
class IntSum:
    """An exact sum of integers in 64 bits; what leaves them is refused, as Spark does by default."""

    column: int
    name: str
    width = 1

    def of_rows(self, rows: Rows, groups: Grouping) -> list[pa.Array]:
        """Sums by group, 0 where all values are NULL."""
        column = rows.column(self.column)
        return self._summed(numbers(column, np.int64), validity(column), groups)

    def of_windows(self, rows: Rows, begin: Bounds, end: Bounds) -> list[pa.Array] | None:
        """Sums of windows, if none can leave 64 bits."""
        values = numbers(rows.column(self.column), np.int64)
        largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
        if largest * int((end - begin).max(initial=0)) >= 1 << 63:
            return None
        return [pa.array(sliding.slide_sum(values, begin, end, np.int64(0)))]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Sums add up."""
        return self._summed(numbers(columns[0], np.int64), _ALL_VALID, groups)

    def add(
        self,
        totals: NDArray[Any],
        at: NDArray[np.int32],
        column: pa.Array,
        rows: NDArray[np.int32],
    ) -> None:
        """Sums add up."""
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

    def of_rows(self, rows: Rows, groups: Grouping) -> list[pa.Array]:
        """Sums by group, 0 where all values are NULL."""
        column = rows.column(self.column)
        values = numbers(column, np.float64)
        return [pa.array(reduce.sum_floats(values, validity(column), groups.order, groups.starts))]

    def of_windows(self, rows: Rows, begin: Bounds, end: Bounds) -> list[pa.Array]:
        """Sums of windows."""
        values = numbers(rows.column(self.column), np.float64)
        return [pa.array(sliding.slide_sum(values, begin, end, 0.0))]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Sums add up."""
        values = numbers(columns[0], np.float64)
        return [pa.array(reduce.sum_floats(values, _ALL_VALID, groups.order, groups.starts))]

    def add(
        self,
        totals: NDArray[Any],
        at: NDArray[np.int32],
        column: pa.Array,
        rows: NDArray[np.int32],
    ) -> None:
        """Sums add up."""
        reduce.add_floats(totals, at, numbers(column, np.float64), rows)


@dataclass(frozen=True)
class DecimalSum:
    """An exact sum of decimals in 128 bits."""

    column: int
    name: str
    scale: int
    width = 1

    def of_rows(self, rows: Rows, groups: Grouping) -> list[pa.Array]:
        """Sums by group, 0 where all values are NULL."""
        column = rows.column(self.column)
        return self._summed(column, validity(column), groups)

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Sums add up."""
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
    """The least or the largest value; NULL where there is none. NaN is above all numbers."""

    column: int
    largest: bool
    width = 1

    def of_rows(self, rows: Rows, groups: Grouping) -> list[pa.Array]:
        """The extremes of groups of values."""
        return self.combined([rows.column(self.column)], groups)

    def of_windows(self, rows: Rows, begin: Bounds, end: Bounds) -> list[pa.Array]:
        """The extremes of windows."""
        column = rows.column(self.column)
        keys = sort_keys(column)
        keys = ~keys if self.largest else keys
        at = sliding.slide_least(keys, validity(column), begin, end)
        return [column.take(pa.array(at, mask=at < 0))]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """The extreme of extremes."""
        [column] = columns
        keys = sort_keys(column)
        keys = ~keys if self.largest else keys
        at = reduce.least(keys, validity(column), groups.order, groups.starts)
        return [column.take(pa.array(at, mask=at < 0))]


@dataclass(frozen=True)
class End:
    """The first or the last value, NULL or not, by (batch, order column, value)."""

    column: int
    #: The column that orders the rows of a batch; without one, their values do.
    order: int | None
    last: bool
    width = 3

    def of_rows(self, rows: Rows, groups: Grouping) -> list[pa.Array]:
        """The first or last value of each group of rows."""
        values = rows.column(self.column)
        times = np.zeros(len(values), np.int64)
        if self.order is not None:
            times = sort_keys(rows.column(self.order))
        return self.combined([values, pa.array(rows.batches), pa.array(times)], groups)

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """The first of the firsts, or the last of the lasts."""
        keys = [numbers(column, np.int64) for column in columns[1:]] + [sort_keys(columns[0])]
        batch, time, value = (~one for one in keys) if self.last else keys
        at = reduce.first_of_three(batch, time, value, groups.order, groups.starts)
        return [column.take(pa.array(at)) for column in columns]


@dataclass(frozen=True)
class Moments:
    """Count, mean, squared distances from the mean: sound where sums of squares cancel out."""

    column: int
    width = 3

    def of_rows(self, rows: Rows, groups: Grouping) -> list[pa.Array]:
        """The moments of groups of values."""
        column = rows.column(self.column)
        values = numbers(column, np.float64)
        found = reduce.moments(values, validity(column), groups.order, groups.starts)
        return [pa.array(one) for one in found]

    def of_windows(self, rows: Rows, begin: Bounds, end: Bounds) -> list[pa.Array]:
        """The moments of windows."""
        column = rows.column(self.column)
        values = numbers(column, np.float64)
        found = sliding.slide_moments(values, validity(column), begin, end)
        return [pa.array(one) for one in found]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """The moments of unions."""
        count = numbers(columns[0], np.int64)
        mean, m2 = (numbers(column, np.float64) for column in columns[1:])
        found = reduce.combine_moments(count, mean, m2, groups.order, groups.starts)
        return [pa.array(one) for one in found]


def overflow(name: str, kind: str, other: str) -> QueryError:
    """The error for a sum that does not fit its type."""
    return QueryError(
        f"the sum {name} does not fit {kind}",
        detail="a group's values add up to more than the type of the result can hold",
        hint=f"cast the column to {other} before it is summed",
    )
