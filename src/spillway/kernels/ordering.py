"""The order of the rows of a group: by batch, then by a time, then by content.

The exchange delivers the rows of a batch in any order. An operator that used the order of arrival
would give other results when a batch repeats. Content decides between rows of equal batch and time;
rows with equal content are interchangeable. Columns compare one by one, as SQL orders values; nested
values compare as text, and only where all plain columns agree.

Known limitation: 0.0 and -0.0 are equal here, so rows that differ in nothing else have no order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel
from spillway.kernels.grouping import Grouping
from spillway.kernels.ranking import sort_keys

Keys = NDArray[np.int64]
#: The most rows of a group for insertion sort: mostly they are in order already.
_FEW = 32


def in_order(groups: Grouping, first: Keys, second: Keys, columns: Sequence[pa.Array]) -> Grouping:
    """The groups, with the rows of each sorted by two keys, and then by their columns.

    Example:
        >>> one = Grouping(np.arange(3, dtype=np.int32), np.array([0, 3]))
        >>> keys = np.array([1, 0, 1])
        >>> in_order(one, keys, keys, [pa.array(["b", "a", "a"])]).order.tolist()
        [1, 2, 0]
    """
    order = groups.order.copy()
    ties = _sort_by_two(order, groups.starts, first, second)
    if ties == 0:
        return Grouping(order, groups.starts)
    same = (first[order[1:]] == first[order[:-1]]) & (second[order[1:]] == second[order[:-1]])
    begins = groups.starts[(groups.starts > 0) & (groups.starts < len(order))]
    same[begins - 1] = False
    for nested in (False, True):
        some = [one for one in columns if pa.types.is_nested(one.type) == nested]
        if some and same.any():
            same = _by_content(order, same, some, _texts if nested else sort_keys)
    return Grouping(order, groups.starts)


def _by_content(
    order: NDArray[np.int32],
    same: NDArray[np.bool_],
    columns: Sequence[pa.Array],
    key: Callable[[pa.Array], Keys],
) -> NDArray[np.bool_]:
    """Sorts runs of rows that agree so far by their columns; returns which rows still agree.

    `same[i]` says that the rows at i and i + 1 agree.
    """
    inside = np.append(same, False) | np.append(False, same)
    tied = np.flatnonzero(inside)
    run = np.cumsum(np.append(True, ~same))[tied]
    rows = order[tied]
    keys = [key(column.take(pa.array(rows))) for column in columns]
    sorting = np.lexsort([*keys[::-1], run])
    order[tied] = rows[sorting]
    still = np.zeros(len(order) - 1, np.bool_)
    agree = run[1:] == run[:-1]
    for one in keys:
        agree &= one[sorting][1:] == one[sorting][:-1]
    still[tied[:-1][agree]] = True
    return still


@kernel
def _after(first: Keys, second: Keys, a: Any, b: Any) -> bool:
    if first[a] != first[b]:
        return bool(first[a] > first[b])
    return bool(second[a] > second[b])


@kernel
def _sort_by_two(order: NDArray[np.int32], starts: Any, first: Keys, second: Keys) -> Any:
    """Sorts the rows of each group in place; returns how many neighbours agree in both keys."""
    ties = 0
    for g in range(starts.shape[0] - 1):
        low, high = starts[g], starts[g + 1]
        sound = True
        for i in range(low + 1, high):
            if _after(first, second, order[i - 1], order[i]):
                sound = False
                break
        if not sound and high - low <= _FEW:
            for i in range(low + 1, high):
                row, at = order[i], i
                while at > low and _after(first, second, order[at - 1], row):
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = row
        elif not sound:
            rows = order[low:high].copy()
            rows = rows[np.argsort(second[rows], kind="mergesort")]
            order[low:high] = rows[np.argsort(first[rows], kind="mergesort")]
        for i in range(low + 1, high):
            a, b = order[i - 1], order[i]
            ties += first[a] == first[b] and second[a] == second[b]
    return ties


def _texts(column: pa.Array) -> Keys:
    return sort_keys(pa.array([repr(value) for value in column.to_pylist()], pa.string()))


@kernel
def apart(
    taken: NDArray[np.int64], taken_starts: Any, times: NDArray[np.int64], starts: Any, range_: int
) -> Any:
    """Which times of each group are at least `range_` from all times accepted before, in order.

    `taken` has for each group the times accepted earlier, ascending. A time that is far enough is
    accepted, and the next ones are compared with it too.
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


@kernel
def sort_each(values: NDArray[np.int64], starts: Any) -> None:
    """Sorts the values of each group in place."""
    for g in range(starts.shape[0] - 1):
        if starts[g + 1] - starts[g] > 1:
            values[starts[g] : starts[g + 1]] = np.sort(values[starts[g] : starts[g + 1]])
