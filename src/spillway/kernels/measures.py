"""Distances and products of vectors, pair by pair, in an order that nothing changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel

#: Parts of a row whose sums bound a distance, and values between two looks whether it is too large.
_PARTS, _LOOK_EVERY = 16, 1024
#: Rows of one side that stay in a processor's cache while those of the other pass.
_HELD = 16


@kernel
def dots(left: NDArray[Any], right: NDArray[Any], mine: Any, theirs: Any) -> Any:
    """The products of some pairs of rows, added up from left to right in double precision."""
    found = np.empty(mine.shape[0], np.float64)
    for p in range(mine.shape[0]):
        total = 0.0
        for k in range(left.shape[1]):
            total += np.float64(left[mine[p], k]) * np.float64(right[theirs[p], k])
        found[p] = total
    return found


@kernel
def near_bytes(left: NDArray[np.uint8], right: NDArray[np.uint8], most: int) -> Any:
    """For each pair of rows, whether their differences add up to less than `most`.

    The sums of parts differ by no more than the parts themselves. So a few sums exclude many pairs.
    """
    found = np.zeros((left.shape[0], right.shape[0]), np.bool_)
    width = left.shape[1]
    step = max(1, -(-width // _PARTS))
    sums, others = _sums(left, step), _sums(right, step)
    for first in range(0, right.shape[0], _HELD):
        for i in range(left.shape[0]):
            for j in range(first, min(first + _HELD, right.shape[0])):
                least = np.int64(0)
                for part in range(sums.shape[1]):
                    least += abs(sums[i, part] - others[j, part])
                if least >= most:
                    continue
                total = np.int64(0)
                for begin in range(0, width, _LOOK_EVERY):
                    end = min(begin + _LOOK_EVERY, width)
                    total += _apart(left[i, begin:end], right[j, begin:end])
                    if total >= most:
                        break
                found[i, j] = total < most
    return found


@kernel
def _apart(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> Any:
    """The sum of differences; in a loop from zero on, which compiles to vector instructions."""
    total = np.uint32(0)
    for k in range(one.shape[0]):
        total += np.uint32(abs(np.int32(one[k]) - np.int32(other[k])))
    return np.int64(total)


@kernel
def _sums(rows: NDArray[np.uint8], step: int) -> Any:
    parts = -(-rows.shape[1] // step)
    found = np.zeros((rows.shape[0], parts), np.int64)
    for i in range(rows.shape[0]):
        for part in range(parts):
            total = np.int64(0)
            for k in range(part * step, min((part + 1) * step, rows.shape[1])):
                total += rows[i, k]
            found[i, part] = total
    return found


@kernel
def near_numbers(left: NDArray[Any], right: NDArray[Any], limit: float) -> Any:
    """For each pair of rows, whether the mean of their differences is less than `limit`."""
    found = np.zeros((left.shape[0], right.shape[0]), np.bool_)
    width = left.shape[1]
    for i in range(left.shape[0]):
        for j in range(right.shape[0]):
            total = 0.0
            for begin in range(0, width, _LOOK_EVERY):
                for k in range(begin, min(begin + _LOOK_EVERY, width)):
                    total += abs(np.float64(left[i, k]) - np.float64(right[j, k]))
                # Rounding never makes a sum of positive numbers smaller.
                if total / width >= limit:
                    break
            found[i, j] = total / width < limit
    return found
