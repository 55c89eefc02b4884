"""Rows of a run that a band leaves (plan/bands.py), found in the order of a column.

The order of a run's rows is made once, in the process that has the run open, at twelve bytes a row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.operators.columns import gathered
from spillway.plan.bands import Band
from spillway.state.run import RunData

Positions = NDArray[np.int64]


def in_band(
    data: RunData, at: int, column: pa.Array, band: Band
) -> tuple[Positions, Positions, NDArray[np.int32]] | None:
    """For each value of a column, the rows whose values at `at` are in the band.

    They are a range in an order: first, how many, and the order. None where it is not of numbers.
    """
    theirs = data.payload.column(at)
    if not (_is_number(column.type) and _is_number(theirs.type)):
        return None
    order, values = data.derived(("order", at), lambda: _ordered(theirs))
    single = pa.types.is_float32(column.type) or pa.types.is_float32(theirs.type)
    first, last = band.ranges(_numbers(column), single=single)
    start = np.searchsorted(values, first, side="left")
    count = np.searchsorted(values, last, side="right") - start
    count[np.isnan(first) | np.isnan(last)] = 0
    return start, count, order


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    """A column as numbers; NaN for NULL."""
    values, valid = gathered(column, None)
    numbers = np.asarray(values).astype(np.float64)
    if valid is not None:
        numbers[~valid] = np.nan
    return numbers


def _ordered(column: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The rows in the order of a column's numbers, and these; without NULL and NaN."""
    numbers = _numbers(column)
    order = np.argsort(numbers).astype(np.int32)
    there = len(order) - int(np.count_nonzero(np.isnan(numbers)))
    return order[:there], numbers[order[:there]]
