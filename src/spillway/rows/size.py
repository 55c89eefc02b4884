"""The exact bytes that rows take in Arrow's layout.

All functions count the bytes *before* rows: fixed-width columns multiply, variable-width ones read
their offsets. So a caller can ask for many ranges or rows at once, and no other row is read.

A byte of bits belongs to the first of its rows. So the sizes of neighbouring ranges add up to the
size of the whole: a slot shrinks by exactly what leaves it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def bytes_between(batch: pa.RecordBatch, bounds: Ints) -> Ints:
    """Returns the bytes of the rows between each pair of neighbouring bounds.

    Example:
        >>> batch = pa.record_batch({"x": pa.array([1, 2, 3]), "s": pa.array(["a", "bb", ""])})
        >>> bytes_between(batch, np.array([0, 2, 3])).tolist()
        [27, 12]
    """
    total = np.zeros(len(bounds) - 1, np.int64)
    for column in batch.columns:
        total += np.diff(_before(column, bounds))
    return total


def bytes_inside(batch: pa.RecordBatch, begin: NDArray[Any], end: NDArray[Any]) -> Ints:
    """Returns the bytes of the rows [begin, end) of each of some ranges.

    Example:
        >>> batch = pa.record_batch({"s": pa.array(["a", "bb", "ccc"])})
        >>> bytes_inside(batch, np.array([1, 0]), np.array([3, 1])).tolist()
        [13, 5]
    """
    first, last = begin.astype(np.int64), end.astype(np.int64)
    total = np.zeros(len(first), np.int64)
    for column in batch.columns:
        total += _before(column, last) - _before(column, first)
    return total


def bytes_at(columns: Iterable[pa.Array], rows: NDArray[Any]) -> Ints:
    """Returns the bytes of each of some rows.

    Example:
        >>> bytes_at([pa.array(["a", "bbb", ""])], np.array([1, 1, 0])).tolist()
        [7, 7, 5]
    """
    first = rows.astype(np.int64)
    total = np.zeros(len(first), np.int64)
    for column in columns:
        total += _before(column, first + 1) - _before(column, first)
    return total


def widest_bytes(column: pa.Array) -> int:
    """Returns a number of bytes that no row of a column exceeds.

    Example:
        >>> widest_bytes(pa.array(["a", "bbb", ""]))
        8
    """
    if len(column) == 0:
        return 0
    if _is_bytes(column.type):
        # One pass over the offsets; one more byte for the bit of a NULL.
        offsets = _offsets(column)[: len(column) + 1]
        return int(np.diff(offsets).max()) + offsets.dtype.itemsize + 1
    return int(np.diff(_before(column, np.arange(len(column) + 1))).max())


def fixed_bytes(kind: pa.DataType) -> int | None:
    """Returns the bytes of a value, without bits; None if values have different sizes."""
    if pa.types.is_struct(kind):
        inner = [fixed_bytes(field.type) for field in kind]
        return None if None in inner else sum(size or 0 for size in inner)
    if pa.types.is_fixed_size_list(kind):
        size = fixed_bytes(kind.value_type)
        return None if size is None else size * kind.list_size
    if pa.types.is_dictionary(kind):
        return fixed_bytes(kind.index_type)
    if pa.types.is_null(kind):
        return 0
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return None


def _before(array: pa.Array, at: Ints) -> Ints:
    """Returns the bytes before rows, counted from the start of the buffers."""
    kind = array.type
    before: Ints = (at + 7) // 8 if array.null_count else np.zeros_like(at)
    if len(array) == 0:
        return before
    if pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            before = before + _before(array.field(place), at)
        return before
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets.to_numpy()
        child = _map_entries(array) if pa.types.is_map(kind) else array.values
        inner = _before(child, offsets[at].astype(np.int64))
        return before + inner + at * int(offsets.dtype.itemsize)
    if pa.types.is_fixed_size_list(kind):
        return before + _before(array.values, (at + array.offset) * kind.list_size)
    if pa.types.is_boolean(kind):
        return before + (at + 7) // 8
    if (width := fixed_bytes(kind)) is not None:
        return before + at * width
    offsets = _offsets(array)
    return before + offsets[at].astype(np.int64) + at * int(offsets.dtype.itemsize)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind)) or _is_large(kind)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _offsets(array: pa.Array) -> NDArray[Any]:
    dtype = np.int64 if _is_large(array.type) else np.int32
    return np.frombuffer(array.buffers()[1], dtype)[array.offset :]


def _map_entries(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
