"""What the image workloads share: when their event time starts, and how they compare images.

An image is a row of bytes. Two images are compared by the mean difference of their bytes, at a cost
proportional to the bytes. Each workload sets the limit below which its images match.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

#: Event time starts here, as in the other workloads: 2024-01-01T00:00:00Z.
START_US = 1_704_067_200_000_000
#: Bytes of the images compared at once, few enough to stay in a processor's cache.
_BLOCK_BYTES = 1 << 20
#: The sum of this many bytes fits 32 bits, which is faster than 64.
_SHORT = 1 << 24

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]


def times_of(after_us: NDArray[np.int64]) -> pa.Array:
    """A column of times, given in microseconds since the start."""
    return pa.array(START_US + after_us, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def difference(left: Bytes, right: Bytes) -> NDArray[np.float64]:
    """The mean difference of the bytes of each pair of images.

    Example:
        >>> difference(np.array([[0, 9]], np.uint8), np.array([[4, 3]], np.uint8)).tolist()
        [5.0]
    """
    pairs, width = left.shape
    block = max(1, _BLOCK_BYTES // max(1, width))
    kind = np.uint32 if width <= _SHORT else np.uint64
    found = np.empty(pairs)
    for at in range(0, pairs, block):
        one, other = left[at : at + block], right[at : at + block]
        # Bytes stay bytes: the larger less the smaller never overflows.
        apart = np.maximum(one, other) - np.minimum(one, other)
        found[at : at + block] = apart.sum(axis=1, dtype=kind)
    found /= width
    return found


def nearer(left: Any, right: Any, column: str, limit: float) -> Flags:
    """For each candidate pair, whether its images in a column differ by less than a limit."""
    apart = difference(left.matrix(column), right.matrix(column))
    return np.asarray(apart < limit)
