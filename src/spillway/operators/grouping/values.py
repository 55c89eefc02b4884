"""Partials that keep values of a group: all different ones, the first ones, or one chosen by another.

They keep lists, one for each group. Lists have bounds: a number of values, or bytes. A group that
needs more bytes stops the query with an error that names the aggregate, because a key with a huge
list would otherwise fill the memory of its slot.

Known limitation: when a key gets new values, its whole list is merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.errors import QueryError
from spillway.kernels import reduce
from spillway.kernels.equality import is_valid
from spillway.kernels.grouping import Grouping
from spillway.kernels.ranking import numbers, sort_keys
from spillway.operators.grouping.partials import GatheredRows
from spillway.rows.cutting import Widths

#: Bytes of the values of one group.
MOST_BYTES = 16 << 20

_Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DistinctValues:
    """The different values of a group that are not NULL, ascending; at most the `limit` least ones.

    A limit is associative: one of the least values of a whole is one of the least of its part.
    """

    column: int
    name: str
    limit: int | None = None
    width = 1

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Returns the different values of groups of rows."""
        column = rows.column(self.column)
        number = np.repeat(np.arange(len(groups)), np.diff(groups.starts))
        order = groups.order
        if column.null_count:
            valid = is_valid(column)[order]
            order, number = order[valid], number[valid]
        return [self._kept(column.take(pa.array(order)), number, len(groups))]

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Returns the different values of several lists."""
        values, number = _flattened(columns[0], groups)
        return [self._kept(values, number, len(groups))]

    def _kept(self, values: pa.Array, number: _Ints, groups: int) -> pa.Array:
        keys = sort_keys(values)
        order = np.lexsort((keys, number))
        keys, number = keys[order], number[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (keys[1:] != keys[:-1]) | (number[1:] != number[:-1])
        order, number = order[new], number[new]
        return _lists([values], order, number, groups, self.limit, self.name)[0]


@dataclass(frozen=True)
class FirstValues:
    """The first values of a group that are not NULL, by (batch, order column, value)."""

    column: int
    name: str
    limit: int
    #: The column that orders the rows of a batch; None: their values do.
    order: int | None = None
    width = 3

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Returns the first values of groups of rows."""
        column = rows.column(self.column)
        number = np.repeat(np.arange(len(groups)), np.diff(groups.starts))
        times = np.zeros(len(column), np.int64)
        if self.order is not None:
            times = sort_keys(rows.column(self.order))
        at = groups.order
        if column.null_count:
            valid = is_valid(column)[at]
            at, number = at[valid], number[valid]
        taken = [column.take(pa.array(at)), pa.array(rows.batches[at]), pa.array(times[at])]
        return self._kept(taken, number, len(groups))

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Returns the first values of several lists."""
        flat = [_flattened(column, groups) for column in columns]
        return self._kept([values for values, _ in flat], flat[0][1], len(groups))

    def _kept(self, columns: Sequence[pa.Array], number: _Ints, groups: int) -> list[pa.Array]:
        values, batches, times = columns
        by = [sort_keys(values), numbers(times, np.int64), numbers(batches, np.int64), number]
        order = np.lexsort(by)
        return _lists(columns, order, number[order], groups, self.limit, self.name)


@dataclass(frozen=True)
class ChosenBy:
    """The value of the row with the least or the largest order; rows without an order do not count.

    The least value decides between rows of equal order, so a repeated batch chooses the same.
    """

    column: int
    order: int
    largest: bool
    width = 2

    def of_rows(self, rows: GatheredRows, groups: Grouping) -> list[pa.Array]:
        """Returns the chosen value of each group of rows, and its order."""
        return self.combined([rows.column(self.column), rows.column(self.order)], groups)

    def combined(self, columns: Sequence[pa.Array], groups: Grouping) -> list[pa.Array]:
        """Returns the chosen value among those chosen before."""
        values, orders = columns
        keys = sort_keys(orders)
        keys = ~keys if self.largest else keys
        missing = np.zeros(len(keys), np.int64)
        if orders.null_count:
            missing = (~is_valid(orders)).astype(np.int64)
        at = reduce.first_of_three(missing, keys, sort_keys(values), groups.order, groups.starts)
        none = pa.array(at, mask=missing[at] > 0)
        return [values.take(none), orders.take(none)]


def estimated(lists: pa.Array, limit: int) -> pa.Array:
    """Returns how many different values there are, from the `limit` least hashes of each group.

    With fewer hashes than the limit, it is their number. Else the largest of them tells how dense all
    hashes are (k minimum values); the relative error is about 1 / sqrt(limit - 2).
    """
    sizes = np.diff(lists.offsets.to_numpy())
    found = sizes.astype(np.int64)
    full = np.flatnonzero(sizes >= limit)
    if len(full):
        last = lists.offsets.to_numpy()[full + 1] - 1
        hashes = lists.values.to_numpy()[last].astype(np.float64)
        found[full] = np.rint((limit - 1) * 2.0**64 / (hashes + 2.0**63)).astype(np.int64)
    return pa.array(found)


def _flattened(lists: pa.Array, groups: Grouping) -> tuple[pa.Array, _Ints]:
    """Returns the values of lists, group after group, and the number of the group of each."""
    ordered = lists.take(pa.array(groups.order))
    sizes = np.diff(ordered.offsets.to_numpy())
    number = np.repeat(np.arange(len(groups)), np.diff(groups.starts))
    return ordered.flatten(), np.repeat(number, sizes)


def _lists(
    columns: Sequence[pa.Array],
    order: NDArray[Any],
    number: _Ints,
    groups: int,
    limit: int | None,
    name: str,
) -> list[pa.Array]:
    """Returns the ordered values of each group as lists, at most `limit` of each."""
    sizes = np.bincount(number, minlength=groups)
    if limit is not None and sizes.max(initial=0) > limit:
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order, number = order[place < limit], number[place < limit]
        sizes = np.minimum(sizes, limit)
    _check_bytes(columns[0], order, number, name)
    offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
    at = pa.array(order)
    return [pa.ListArray.from_arrays(offsets, column.take(at)) for column in columns]


def _check_bytes(values: pa.Array, order: NDArray[Any], number: _Ints, name: str) -> None:
    widths = Widths([values])
    if len(order) * widths.widest <= MOST_BYTES:
        return
    sizes = np.bincount(number, widths.at(order))
    if sizes.max() > MOST_BYTES:
        raise QueryError(
            f"the values of aggregate {name} need {int(sizes.max())} bytes for one key, "
            f"more than {MOST_BYTES}",
            detail="all values of a key are kept together in one row of state",
            hint="use approx_count_distinct instead of count_distinct, a smaller limit, or more keys",
        )
