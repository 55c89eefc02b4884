"""The order of the rows of a group: by batch, then by a time, then by what is in them.

The exchange brings the rows of a batch in any order, so an operator that goes by order must not use that
of arrival: a repeated batch would say something else. Rows that agree in everything are the same
row to anyone, so the content decides the rest. Contents are compared only where batch and time are
equal, column by column, as SQL orders values; of nested values, their text is compared, and only where
all plain columns agree.

Known limitation: 0.0 and -0.0 are equal here, so rows that differ in nothing else have no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from spillway.kernels.ranking import sort_keys

Keys = NDArray[Any]


def in_order(keys: Sequence[Keys], columns: Sequence[pa.Array]) -> NDArray[np.int64]:
    """The rows sorted by some keys, the most important first, and then by their columns.

    Example:
        >>> in_order([np.array([1, 0, 1])], [pa.array(["b", "a", "a"])]).tolist()
        [1, 2, 0]
    """
    order = np.lexsort(keys[::-1]).astype(np.int64)
    plain = [c for c in columns if not pa.types.is_nested(c.type)]
    nested = [c for c in columns if pa.types.is_nested(c.type)]
    for some, key in ((plain, sort_keys), (nested, _texts)):
        if not some:
            continue
        run, tied = _ties(order, keys)
        if len(tied) == 0:
            break
        rows = order[tied]
        more = [key(column.take(pa.array(rows))) for column in some]
        order[tied] = rows[np.lexsort([*more[::-1], run])]
        keys = [*keys, *(_spread(one, rows, len(order)) for one in more)]
    return order


def _ties(order: NDArray[np.int64], keys: Sequence[Keys]) -> tuple[Keys, NDArray[np.int64]]:
    """The places in the order whose rows agree in all keys with a neighbour, and a number per run."""
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    inside = np.zeros(len(order), np.bool_)
    inside[1:] |= same
    inside[:-1] |= same
    tied = np.flatnonzero(inside)
    run = np.cumsum(np.append(True, ~same))[tied] if len(order) else tied
    return run, tied


def _spread(keys: Keys, rows: NDArray[np.int64], size: int) -> Keys:
    spread = np.zeros(size, np.int64)
    spread[rows] = keys
    return spread


def _texts(column: pa.Array) -> Keys:
    return sort_keys(pa.array([repr(value) for value in column.to_pylist()], pa.string()))


@njit(cache=True, nogil=True)
def apart(
    taken: NDArray[np.int64], taken_starts: Any, times: NDArray[np.int64], starts: Any, range_: int
) -> Any:
    """Which times of each group are at least `range_` from all that were taken before, in order.

    `taken` has for each group the times that were taken earlier, ascending. A time that is far enough
    is taken, and the next ones are compared with it too.
    """
    far = np.zeros(times.shape[0], np.bool_)
    for g in range(starts.shape[0] - 1):
        size = taken_starts[g + 1] - taken_starts[g]
        held = np.empty(size + starts[g + 1] - starts[g], np.int64)
        held[:size] = taken[taken_starts[g] : taken_starts[g + 1]]
        for i in range(starts[g], starts[g + 1]):
            time = times[i]
            low, high = 0, size
            while low < high:
                middle = (low + high) // 2
                if held[middle] < time:
                    low = middle + 1
                else:
                    high = middle
            if low < size and held[low] - time < range_:
                continue
            if low > 0 and time - held[low - 1] < range_:
                continue
            for at in range(size, low, -1):
                held[at] = held[at - 1]
            held[low] = time
            size += 1
            far[i] = True
    return far


@njit(cache=True, nogil=True)
def sort_each(values: NDArray[np.int64], starts: Any) -> None:
    """Sorts the values of each group, where they are."""
    for g in range(starts.shape[0] - 1):
        if starts[g + 1] - starts[g] > 1:
            values[starts[g] : starts[g + 1]] = np.sort(values[starts[g] : starts[g + 1]])
