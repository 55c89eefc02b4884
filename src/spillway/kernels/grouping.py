"""Rows of equal keys side by side.

Rows come sorted by hash, and equal keys have equal hashes: nearly always a group is a stretch of one.
Where several keys share a hash their rows may be mixed: these stretches alone are put in order, by
comparing their rows with the first of each stretch, then what is left with the first of that, and so
on: as many rounds as there are keys to one hash, which is two or three among millions of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

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


def grouped(h: NDArray[np.uint32], keys: Sequence[pa.Array]) -> Grouping:
    """The groups of equal keys among rows that are sorted by hash, in the order of the hashes."""
    n = len(h)
    order = np.arange(n, dtype=np.int32)
    if n == 0:
        return Grouping(order, np.zeros(1, np.int64))
    begins = np.empty(n, np.bool_)
    begins[0] = True
    np.not_equal(h[1:], h[:-1], out=begins[1:])
    inner = np.flatnonzero(~begins).astype(np.int32)
    if len(inner):
        same = same_keys(keys, inner, keys, inner - np.int32(1))
        if not same.all():
            return _untangled(begins, inner[~same], keys)
    return Grouping(order, np.append(np.flatnonzero(begins), n))


def _untangled(
    begins: NDArray[np.bool_], changes: NDArray[np.int32], keys: Sequence[pa.Array]
) -> Grouping:
    """The groups where the keys change inside stretches of one hash."""
    stretch = np.cumsum(begins) - 1
    leader = np.flatnonzero(begins).astype(np.int32)[stretch]
    mixed = np.zeros(int(stretch[-1]) + 1, np.bool_)
    mixed[stretch[changes]] = True
    left = np.flatnonzero(mixed[stretch]).astype(np.int32)
    while len(left):
        at = stretch[left]
        first = np.empty(len(left), np.bool_)
        first[0] = True
        np.not_equal(at[1:], at[:-1], out=first[1:])
        leads = left[first][np.cumsum(first) - 1]
        same = same_keys(keys, left, keys, leads)
        leader[left[same]] = leads[same]
        left = left[~same]
    # Leaders ascend with their stretches, so this keeps the order of the hashes.
    order = np.argsort(leader, kind="stable").astype(np.int32)
    changed = np.flatnonzero(np.diff(leader[order], prepend=-1))
    return Grouping(order, np.append(changed, len(order)))


@njit(cache=True, nogil=True)
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
    """Rows by the number of their group, in the order they have.

    Example:
        >>> by_group(np.array([1, 0, 1], np.int32), 2).order.tolist()
        [1, 0, 2]
    """
    return Grouping(*_order_by_group(group, groups))
