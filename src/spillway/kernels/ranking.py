"""The order of values, as 64-bit integers that compare as the values do in SQL.

Integers, dates, timestamps and booleans are their own keys. The bits of a float become an integer
that compares like it, with 0.0 equal to -0.0 and one NaN above all numbers, as in Spark. Other values
(text, bytes, decimals) get their rank in the given column, so their keys compare only within it. NULL
comes first; a caller that ignores NULL uses the validity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spillway.errors import PlanError

#: The key of NULL.
NULL_KEY = np.iinfo(np.int64).min
_NAN_KEY = np.iinfo(np.int64).max


def sort_keys(column: pa.Array) -> NDArray[np.int64]:
    """One key per value."""
    kind = column.type
    if pa.types.is_floating(kind):
        keys = _of_floats(numbers(column, np.float64))
    elif is_integral(kind):
        keys = numbers(column, np.int64)
    else:
        return _ranks(column)
    if column.null_count == 0:
        return keys
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), keys, NULL_KEY)


def is_integral(kind: pa.DataType) -> bool:
    """Whether values are whole numbers in at most 64 bits, or are stored as such."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or (pa.types.is_temporal(kind) and kind.bit_width <= 64)
    )


def numbers(column: pa.Array, dtype: type[np.generic]) -> NDArray[Any]:
    """The values of a numeric or temporal column as one type of number; 0 stands for NULL."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    if column.null_count:
        column = column.fill_null(0)
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(dtype, copy=False)


def _of_floats(values: NDArray[np.float64]) -> NDArray[np.int64]:
    bits = (values + 0.0).view(np.int64)
    keys = np.where(bits < 0, np.int64(NULL_KEY) - bits, bits)
    return np.where(np.isnan(values), _NAN_KEY, keys)


def _ranks(column: pa.Array) -> NDArray[np.int64]:
    if pa.types.is_nested(column.type):
        raise PlanError(
            f"values of type {column.type} have no order",
            hint="leave the column out, or select its fields as separate columns",
        )
    if pa.types.is_null(column.type):
        return np.full(len(column), NULL_KEY)
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    keys: NDArray[np.int64] = ranks.to_numpy(zero_copy_only=False).astype(np.int64)
    if column.null_count:
        keys[~column.is_valid().to_numpy(zero_copy_only=False)] = NULL_KEY
    return keys
