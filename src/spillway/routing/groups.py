"""Partition groups: equal ranges of the 32-bit hash domain.

A group is a *range*, never a residue, so it is one contiguous slice of every sorted run, and a set
of neighbouring groups is again one slice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spillway.ids import HASH_END


def group_of(h: NDArray[np.uint32], groups: int) -> NDArray[np.int64]:
    """The group of each hash.

    Example:
        >>> group_of(np.array([0, 2**31, 2**32 - 1], np.uint32), 4).tolist()
        [0, 2, 3]
    """
    return (h.astype(np.int64) * groups) >> 32


def group_bounds(groups: int) -> NDArray[np.int64]:
    """The first hash of each group, and the end of the domain: `groups + 1` values."""
    return -((-np.arange(groups + 1, dtype=np.int64) * HASH_END) // groups)
