"""Sessions: intervals of one key that touch each other.

The kernel sorts the intervals of each group by their beginning, and starts a new session where an
interval begins more than the gap after the latest end so far.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel

#: The most rows of a group for insertion sort; rows are mostly in order.
_FEW = 32


@kernel
def cut_sessions(
    order: NDArray[np.int32],
    starts: Any,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    gap: int,
) -> Any:
    """Sorts the rows of each group by their first time, in place; returns where sessions start.

    Row i is the interval [first[i], last[i]].
    """
    begins = np.zeros(order.shape[0] + 1, np.bool_)
    for g in range(starts.shape[0] - 1):
        low, high = starts[g], starts[g + 1]
        if high - low <= _FEW:
            for i in range(low + 1, high):
                row, at = order[i], i
                while at > low and first[order[at - 1]] > first[row]:
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = row
        else:
            rows = order[low:high].copy()
            order[low:high] = rows[np.argsort(first[rows], kind="mergesort")]
        begins[low] = True
        end = last[order[low]]
        for i in range(low + 1, high):
            row = order[i]
            if first[row] - end > gap:
                begins[i] = True
                end = last[row]
            elif last[row] > end:
                end = last[row]
    begins[order.shape[0]] = True
    return np.flatnonzero(begins)
