"""Cuts ranges of candidates into tiles: neighbouring ranges, and the rows that they cover together.

A tile computes every pair of its rows, also pairs that are not candidates. So a tile grows only while
candidates fill it well; a small tile may be sparse, because a call costs more than a few pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel


@kernel
def cut_tiles(
    start: NDArray[np.int64], count: NDArray[np.int64], most: int, few: int, sparse: int
) -> Any:
    """Groups consecutive ranges: at most `most` of them, and few pairs that are in no range.

    A group may cover `few` pairs, or `sparse` times the pairs in its ranges. Returns, for each group,
    its first range, the first of the next group, and the begin and end of the rows that it covers.
    """
    n = start.shape[0]
    first, low, high = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    groups = 0
    pairs = 0
    for i in range(n):
        begin, end = start[i], start[i] + count[i]
        if groups:
            at = groups - 1
            least, last_ = min(low[at], begin), max(high[at], end)
            rows = i - first[at] + 1
            area = rows * (last_ - least)
            if rows <= most and area <= max(few, sparse * (pairs + count[i])):
                low[at], high[at] = least, last_
                pairs += count[i]
                continue
        first[groups], low[groups], high[groups] = i, begin, end
        pairs = count[i]
        groups += 1
    last = np.empty(groups, np.int64)
    for at in range(groups):
        last[at] = first[at + 1] if at + 1 < groups else n
    return first[:groups].copy(), last, low[:groups].copy(), high[:groups].copy()
