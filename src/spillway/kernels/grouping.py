"""Rows of equal keys next to each other.

Rows come sorted by hash, so the rows of a key are nearly always the whole stretch of one hash. Rows
can be mixed only where several keys share a hash. The kernel compares such a stretch with its first
row, then the rest with the first of the rest, and so on: one pass for each key of the hash, which is
two or three among millions of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel
from spillway.kernels.equality import same_keys


@dataclass(frozen=True)
class Grouping:
    """Rows by group: group g has the rows `order[starts[g]:starts[g + 1]]`."""

    order: NDArray[np.int32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def first(self) -> NDArray[np.int32]:
        """The first row of each group."""
        return self.order[self.starts[:-1]]

    @cached_property
    def alone(self) -> bool:
        """Whether every row is a group of its own."""
        return len(self) == len(self.order)


def grouped(
    h: NDArray[np.uint32], keys: Sequence[pa.Array], order: NDArray[np.int32] | None = None
) -> Grouping:
    """The groups of equal keys among rows, in hash order.

    `order` sorts the rows by hash; None: they are sorted. Rows of a group stay in this order.
    """
    n = len(h)
    if order is None:
        order = np.arange(n, dtype=np.int32)
    if n == 0:
        return Grouping(order, np.zeros(1, np.int64))
    begins = _begins(h, order)
    inner = np.flatnonzero(~begins)
    if len(inner):
        same = same_keys(keys, order[inner], keys, order[inner - 1])
        if not same.all():
            order, begins = _untangled(order, begins, inner[~same], keys)
    return Grouping(order, np.append(np.flatnonzero(begins), n))


def grouped_by_time(
    h: NDArray[np.uint32],
    keys: Sequence[pa.Array],
    times: NDArray[np.int64],
    order: NDArray[np.int32] | None = None,
) -> Grouping:
    """The groups of equal keys and times among rows, in the order of hash and time.

    A key may have many times. So the kernel sorts the rows of a hash by time first, and only rows of
    one hash and one time are compared by their keys.
    """
    n = len(h)
    order = np.arange(n, dtype=np.int32) if order is None else order.copy()
    if n == 0:
        return Grouping(order, np.zeros(1, np.int64))
    places = _sort_by_time(h, times, order)
    return grouped(places, keys, order)


@kernel
def _sort_by_time(h: NDArray[np.uint32], times: NDArray[np.int64], order: NDArray[np.int32]) -> Any:
    """Sorts the rows of each hash by time, in place; returns a number for each hash and time."""
    n = order.shape[0]
    places = np.empty(n, np.uint32)
    place = np.uint32(0)
    low = 0
    while low < n:
        high = low + 1
        sound = True
        while high < n and h[order[high]] == h[order[low]]:
            sound = sound and times[order[high - 1]] <= times[order[high]]
            high += 1
        if not sound:
            rows = order[low:high].copy()
            order[low:high] = rows[np.argsort(times[rows], kind="mergesort")]
        for i in range(low, high):
            if i > low and times[order[i]] != times[order[i - 1]]:
                place += np.uint32(1)
            places[order[i]] = place
        place += np.uint32(1)
        low = high
    return places


@kernel
def _begins(h: NDArray[np.uint32], order: NDArray[np.int32]) -> Any:
    """Which rows, in their order, have another hash than the row before."""
    out = np.empty(order.shape[0], np.bool_)
    out[0] = True
    for i in range(1, order.shape[0]):
        out[i] = h[order[i]] != h[order[i - 1]]
    return out


def _untangled(
    order: NDArray[np.int32],
    begins: NDArray[np.bool_],
    changes: NDArray[np.int64],
    keys: Sequence[pa.Array],
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The order and beginnings of groups, where several keys share a hash."""
    starts = np.append(np.flatnonzero(begins), len(order))
    mixed = np.unique(np.searchsorted(starts, changes, side="right") - 1)
    sizes = starts[mixed + 1] - starts[mixed]
    places = np.repeat(starts[mixed] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    stretch = np.repeat(np.arange(len(mixed)), sizes)
    rows = order[places]
    leader = np.zeros(len(rows), np.int64)
    left = np.arange(len(rows))
    while len(left):
        first = np.diff(stretch[left], prepend=-1) != 0
        leads = left[first][np.cumsum(first) - 1]
        same = same_keys(keys, rows[left], keys, rows[leads])
        leader[left[same]] = leads[same]
        left = left[~same]
    # Leaders ascend with their stretches, so this keeps the order of the hashes.
    sorting = np.argsort(leader, kind="stable")
    order, begins = order.copy(), begins.copy()
    order[places] = rows[sorting]
    begins[places] = np.diff(leader[sorting], prepend=-1) != 0
    return order, begins


@kernel
def _order_by_group(group: NDArray[np.int32], groups: int) -> Any:
    starts = np.zeros(groups + 1, np.int64)
    for g in group:
        starts[g + 1] += 1
    for g in range(groups):
        starts[g + 1] += starts[g]
    cursor = starts[:-1].copy()
    order = np.empty(group.shape[0], np.int32)
    for i in range(group.shape[0]):
        g = group[i]
        order[cursor[g]] = i
        cursor[g] += 1
    return order, starts


def by_group(group: NDArray[np.int32], groups: int) -> Grouping:
    """Rows by the number of their group, in their order.

    Example:
        >>> by_group(np.array([1, 0, 1], np.int32), 2).order.tolist()
        [1, 0, 2]
    """
    return Grouping(*_order_by_group(group, groups))
