"""Finds the rows of a run inside a band (plan/sql/bands.py), by the order of a column.

The process that has the run open sorts its rows, at twelve bytes per row and column. `Orders` keeps
the orders while the run is open, up to `ORDER_BYTES` per process, whatever the tier. For runs that
do not fit, each visit sorts again. Orders in the cache stay: a batch visits all runs in turn, so if
new orders replaced the least recently used, none would be there when its run's turn comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.probe import narrowed
from spillway.operators.predicates.columns import gathered
from spillway.plan.sql.bands import Band
from spillway.plan.sql.linear import Span
from spillway.state.runs.run import RunData

#: Bytes of orders that a process keeps: five million rows, which take half a second to sort.
ORDER_BYTES = 64 << 20

Positions = NDArray[np.int64]
#: Begins and ends of ranges of an order.
Ends = tuple[Positions, Positions]


@dataclass(frozen=True)
class Ordered:
    """The rows of a column, sorted by value for fast search."""

    kind: pa.DataType
    #: The rows that are not NULL; rows with NaN come last.
    which: NDArray[np.int32]
    #: Numbers, ascending, without NaN.
    numbers: NDArray[np.float64]
    #: The least and the largest finite number.
    span: Span

    @property
    def size_bytes(self) -> int:
        """Its bytes: a position and a number for each row, including NaN."""
        return 12 * len(self.which)


def ordered(column: pa.Array) -> Ordered | None:
    """Sorts a column; returns None unless it holds numbers or times."""
    kind = column.type
    if not _is_number(kind):
        return None
    values, valid = gathered(column, None)
    whole = values.view(np.int64) if values.dtype.kind == "M" else values
    numbers = np.asarray(whole).astype(np.float64)
    if valid is None:
        order = np.argsort(numbers)
    else:
        some = np.flatnonzero(valid)
        order = some[np.argsort(numbers[some])]
    numbers = numbers[order]
    numbers = numbers[: len(numbers) - int(np.count_nonzero(np.isnan(numbers)))]
    finite = numbers[np.isfinite(numbers)] if pa.types.is_floating(kind) else numbers
    span = (float(finite[0]), float(finite[-1])) if len(finite) else (0.0, 0.0)
    return Ordered(kind, order.astype(np.int32), numbers, span)


class Orders:
    """The orders of columns of open runs, up to a budget plus one; each goes with its run."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._kept: WeakKeyDictionary[RunData, dict[int, Ordered]] = WeakKeyDictionary()
        #: The one order beyond the budget; several bands of a predicate may ask for it.
        self._spare: tuple[dict[int, Ordered], int] = ({}, 0)

    @property
    def size_bytes(self) -> int:
        """The bytes kept."""
        return sum(one.size_bytes for some in self._kept.values() for one in some.values())

    def of(self, data: RunData, at: int) -> Ordered | None:
        """Returns the order of a column of a run; None unless it holds numbers or times."""
        mine = self._kept.setdefault(data, {})
        if at not in mine:
            if (found := ordered(data.payload.column(at))) is None:
                return None
            spare, place = self._spare
            spare.pop(place, None)
            mine[at] = found
            self._spare = (mine, at) if self.size_bytes > self._budget_bytes else ({}, 0)
        return mine[at]


#: The orders of this process, which works for one slot at a time.
ORDERS = Orders(ORDER_BYTES)


@dataclass(frozen=True)
class InBand:
    """For each probing row, the rows of a run in the band: ranges of their order."""

    which: NDArray[np.int32]
    order: NDArray[np.int32]
    #: The rows that may be in the band: begin and end.
    wide: Ends
    #: Those that certainly are, whatever rounding does.
    sure: Ends
    #: Where rows with NaN begin in the order; they may be in the band, too.
    unordered: int


def in_band(data: RunData, at: int, mine: Ordered, band: Band) -> InBand | None:
    """Returns, for each row of a column, the rows of a run with values at `at` in the band.

    Returns None if these are not numbers, or so large that the condition may fail on them.
    """
    theirs = ORDERS.of(data, at)
    if theirs is None or band.overflows(mine.span, theirs.span):
        return None
    kinds = mine.kind, theirs.kind
    ends = band.ranges(mine.numbers, single=any(map(pa.types.is_float32, kinds)))
    wide = _between(theirs.numbers, *ends[0])
    sure = narrowed(theirs.numbers, *wide, *ends[1])
    # With NaN, all rows may be in the band, and none certainly is.
    more, all_of = len(mine.which) - len(mine.numbers), len(theirs.numbers)
    last = 0 if band.ordered else all_of
    wide, sure = _and_more(wide, more, last), _and_more(sure, more, 0)
    unordered = len(theirs.which) if band.ordered else all_of
    return InBand(mine.which, theirs.which, wide, sure, unordered)


def in_all(found: Sequence[InBand], count: int) -> InBand:
    """Returns, for each of `count` rows, the rows in all bands of the same order."""
    if len(found) == 1:
        return found[0]
    which = reduce(np.intersect1d, [one.which for one in found]).astype(np.int32)
    wide = _shared([(one.which, one.wide) for one in found], which, count)
    sure = _shared([(one.which, one.sure) for one in found], which, count)
    return InBand(which, found[0].order, wide, sure, max(one.unordered for one in found))


def _shared(
    ranges: Sequence[tuple[NDArray[np.int32], Ends]], which: NDArray[np.int32], count: int
) -> Ends:
    """Intersects ranges of the same rows."""
    begin = np.zeros(len(which), np.int64)
    end = np.full(len(which), np.iinfo(np.int64).max)
    place = np.zeros(count, np.int64)
    for rows, (first, last) in ranges:
        place[rows] = np.arange(len(rows))
        at = place[which]
        begin, end = np.maximum(begin, first[at]), np.minimum(end, last[at])
    return begin, np.maximum(begin, end)


def _and_more(ends: Ends, more: int, last: int) -> Ends:
    if not more:
        return ends
    begin, end = ends
    return (
        np.concatenate([begin, np.zeros(more, begin.dtype)]),
        np.concatenate([end, np.full(more, last, end.dtype)]),
    )


def _between(
    values: NDArray[np.float64], first: NDArray[np.float64], last: NDArray[np.float64]
) -> Ends:
    begin = np.searchsorted(values, first, side="left")
    return begin, np.maximum(begin, np.searchsorted(values, last, side="right"))


def _is_number(kind: pa.DataType) -> bool:
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(number or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))
