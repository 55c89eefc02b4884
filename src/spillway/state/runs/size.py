"""The exact bytes that ranges of rows take in Arrow's layout.

Callers ask for the sizes of many ranges at once (all groups of a slot), so everything works on an
array of row bounds. Fixed-width columns multiply; variable-width ones read their offsets at the
bounds.

A byte of bits belongs to the first of its rows. So the sizes of neighbouring ranges add up to the
size of the whole: a slot shrinks by exactly what leaves it.
"""

from __future__ import annotations

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
        total += _array_bytes(column, bounds)
    return total


def _array_bytes(array: pa.Array, bounds: Ints) -> Any:
    rows = np.diff(bounds)
    kind = array.type
    bits = np.diff((bounds + 7) // 8)
    validity = bits if array.null_count else np.zeros_like(rows)
    if pa.types.is_struct(kind):
        fields = (array.field(i) for i in range(kind.num_fields))
        return validity + sum(
            (_array_bytes(field, bounds) for field in fields), np.zeros_like(rows)
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets.to_numpy().astype(np.int64)
        width = 8 if pa.types.is_large_list(kind) else 4
        child = _map_entries(array) if pa.types.is_map(kind) else array.values
        return validity + rows * width + _array_bytes(child, offsets[bounds])
    if pa.types.is_boolean(kind):
        return validity + bits
    if pa.types.is_null(kind):
        return np.zeros_like(rows)
    if pa.types.is_dictionary(kind):
        return validity + _array_bytes(array.indices, bounds)
    try:
        return validity + rows * (kind.bit_width // 8)
    except ValueError:
        return validity + _variable_bytes(array, bounds)


def _variable_bytes(array: pa.Array, bounds: Ints) -> Any:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.int64 if large else np.int32
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(bounds) - 1, np.int64)
    offsets = np.frombuffer(buffer, dtype)[array.offset :]
    return np.diff(offsets[bounds].astype(np.int64)) + np.diff(bounds) * np.dtype(dtype).itemsize


def _map_entries(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
