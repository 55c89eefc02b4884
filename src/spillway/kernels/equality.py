"""Whether the real keys of candidate pairs are equal, column by column.

Keys reach the operators normalised (one NaN, no negative zero), so equal values have equal bits. What
is under a NULL is arbitrary, and NULL equals nothing; only `same_keys` takes it for a value. Arrow
compares columns that are not plain fixed-width or variable-width bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel
from spillway.rows.cutting import TakenRows, Widths, cut_taken


@kernel
def _equal_words(a: Any, ia: Any, b: Any, ib: Any, words: int) -> Any:
    n = ia.shape[0]
    same = np.empty(n, np.bool_)
    for i in range(n):
        x, y = np.int64(ia[i]) * words, np.int64(ib[i]) * words
        equal = True
        for w in range(words):
            equal = equal and a[x + w] == b[y + w]
        same[i] = equal
    return same


@kernel
def _equal_bytes(a_at: Any, a: Any, ia: Any, b_at: Any, b: Any, ib: Any) -> Any:
    n = ia.shape[0]
    same = np.empty(n, np.bool_)
    for i in range(n):
        x, y = np.int64(a_at[ia[i]]), np.int64(b_at[ib[i]])
        size = np.int64(a_at[ia[i] + 1]) - x
        equal = size == np.int64(b_at[ib[i] + 1]) - y
        at = np.int64(0)
        while equal and at < size:
            equal = a[x + at] == b[y + at]
            at += 1
        same[i] = equal
    return same


def equal_pairs(
    a: pa.Array, ia: NDArray[np.int32], b: pa.Array, ib: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """For each i, whether row `ia[i]` of `a` equals row `ib[i]` of `b`; NULL equals nothing."""
    words = fixed_words(a.type)
    if words is not None:
        dtype, per_row = words
        result = _equal_words(_words(a, dtype, per_row), ia, _words(b, dtype, per_row), ib, per_row)
    elif _is_bytes(a.type):
        result = _equal_bytes(*plain_bytes(a), ia, *plain_bytes(b), ib)
    else:
        result = _equal_values(a, ia, b, ib)
    same = np.asarray(result, dtype=np.bool_)
    for column, at in ((a, ia), (b, ib)):
        if column.null_count:
            same = same & is_valid(column)[at]
    return same


def _equal_values(
    a: pa.Array, ia: NDArray[np.int32], b: pa.Array, ib: NDArray[np.int32]
) -> NDArray[Any]:
    """Compares any values, a bounded number of bytes at a time."""
    same = np.empty(len(ia), np.bool_)
    taken = [TakenRows(Widths([a]), ia), TakenRows(Widths([b]), ib)]
    for begin, end in cut_taken(taken, len(ia)):
        mine, theirs = a.take(pa.array(ia[begin:end])), b.take(pa.array(ib[begin:end]))
        equal = pc.equal(mine, theirs).fill_null(False)
        same[begin:end] = equal.to_numpy(zero_copy_only=False)
    return same


def fixed_words(kind: pa.DataType) -> tuple[np.dtype[Any], int] | None:
    """How a fixed-width type is read as whole machine words: (dtype, words per row)."""
    if pa.types.is_boolean(kind) or pa.types.is_nested(kind):
        return None
    try:
        bits = kind.bit_width
    except ValueError:
        return None
    if bits == 128:
        return np.dtype(np.int64), 2
    if bits in (8, 16, 32, 64):
        return np.dtype(f"i{bits // 8}"), 1
    return None


def _words(column: pa.Array, dtype: np.dtype[Any], per_row: int) -> NDArray[Any]:
    data = column.buffers()[1]
    if data is None or len(column) == 0:
        return np.empty(0, dtype)
    first = column.offset * per_row
    return np.frombuffer(data, dtype)[first : first + len(column) * per_row]


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def plain_bytes(column: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The offsets of the rows of a column of byte strings, and the bytes."""
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    offsets, data = column.buffers()[1], column.buffers()[2]
    dtype = np.int64 if large else np.int32
    if offsets is None or len(column) == 0:
        at = np.zeros(1, dtype)
    else:
        at = np.frombuffer(offsets, dtype)[column.offset : column.offset + len(column) + 1]
    return at, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def same_keys(
    a: Sequence[pa.Array], ia: NDArray[np.int32], b: Sequence[pa.Array], ib: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """For each i, whether row `ia[i]` of `a` has the keys of row `ib[i]` of `b`, NULL being a value."""
    same = np.ones(len(ia), np.bool_)
    for mine, theirs in zip(a, b, strict=True):
        equal = equal_pairs(mine, ia, theirs, ib)
        if mine.null_count or theirs.null_count:
            here, there = is_valid(mine)[ia], is_valid(theirs)[ib]
            equal = np.where(here & there, equal, here == there)
        same &= equal
    return same


def is_valid(column: pa.Array) -> NDArray[np.bool_]:
    """Which values are not NULL."""
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
