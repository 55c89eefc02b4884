"""Probing a sorted run: for every probing hash, the contiguous range of equal hashes in the run.

If there are few probes, `match_ranges` uses the index of the run. If there are nearly as many probes
as rows, `match_sorted` scans both side by side, in a loop without unpredictable branches: a step
takes 2-3 ns, and needs no index.

A range is not yet a match: two keys may share a hash. `expand` turns ranges into pairs of rows in
pieces of any size, so the millions of pairs of a hot key are never in memory together.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel


@kernel
def match_ranges(
    probe: NDArray[np.uint32],
    h: NDArray[np.uint32],
    index: tuple[NDArray[np.int32], NDArray[np.uint64], int, int],
    begin: int,
    end: int,
) -> Any:
    """Ranges of rows [begin, end) of `h` equal to a probing hash, found by the index of `h`.

    Returns (probing row, first row of its range, rows in it), only for ranges that are not empty.
    """
    first, present, base, shift = index
    n = probe.shape[0]
    which = np.empty(n, np.int32)
    start = np.empty(n, np.int32)
    count = np.empty(n, np.int32)
    found = 0
    buckets = present.shape[0]
    fine = max(shift - 6, 0)
    for i in range(n):
        x = probe[i]
        distance = np.int64(x) - base
        b = distance >> shift
        if b < 0 or b >= buckets:
            continue
        if (present[b] >> np.uint64((distance >> fine) & 63)) & np.uint64(1) == 0:
            continue
        at = max(first[b], begin)
        stop = min(first[b + 1], end)
        while at < stop and h[at] < x:
            at += 1
        if at < stop and h[at] == x:
            which[found] = i
            start[found] = at
            at += 1
            while at < stop and h[at] == x:
                at += 1
            count[found] = at - start[found]
            found += 1
    return which[:found].copy(), start[:found].copy(), count[:found].copy()


@kernel
def match_sorted(probe: NDArray[np.uint32], h: NDArray[np.uint32], begin: int, end: int) -> Any:
    """The same as `match_ranges`, for probing hashes that ascend."""
    n = probe.shape[0]
    which = np.empty(n, np.int32)
    start = np.empty(n, np.int32)
    found, i, at = np.int64(0), np.int64(0), np.int64(begin)
    while i < n and at < end:
        mine, theirs = probe[i], h[at]
        behind = np.int64(theirs < mine)
        which[found] = i
        start[found] = at
        found += np.int64(theirs == mine)
        at += behind
        i += 1 - behind
    count = np.empty(found, np.int32)
    for f in range(found):
        stop = start[f] + 1
        while stop < end and h[stop] == h[start[f]]:
            stop += 1
        count[f] = stop - start[f]
    return which[:found].copy(), start[:found].copy(), count


@kernel
def expand(
    which: NDArray[Any],
    start: NDArray[Any],
    count: NDArray[Any],
    range_at: int,
    offset: int,
    limit: int,
) -> Any:
    """At most `limit` pairs, from pair `offset` of range `range_at` on.

    Returns (probing rows, run rows, next range, next offset), the rows as wide as the ranges are.
    """
    left = np.empty(limit, which.dtype)
    right = np.empty(limit, start.dtype)
    n = 0
    ranges = which.shape[0]
    while range_at < ranges and n < limit:
        take = min(int(count[range_at]) - offset, limit - n)
        for i in range(take):
            left[n + i] = which[range_at]
            right[n + i] = start[range_at] + offset + i
        n += take
        offset += take
        if offset == count[range_at]:
            range_at += 1
            offset = 0
    return left[:n], right[:n], range_at, offset


# Plain tuples, because numba's cache on disk refers to classes by name: one that a release renames would
# break the caches of earlier ones.

#: Candidate pairs: the probing rows, and for each the first of its rows and their number.
Ranges: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

#: Which run rows of the ranges may pair; an empty array does not limit anything.
#:
#:     order                  positions in the ranges are positions in this order of the run's rows
#:     begins, ends           the row is in a piece: from one of the ascending begins up to its end
#:     times, first, last     its time is from `first` to `last` of the probing row
#:     marks, before          its mark is below `before`
Wanted: TypeAlias = tuple[
    NDArray[np.int32],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int32],
    int,
]


@kernel
def expand_within(ranges: Ranges, wanted: Wanted, range_at: int, offset: int, limit: int) -> Any:
    """The same as `expand`, for the pairs whose run rows are wanted; also returns the pairs seen."""
    which, start, count = ranges
    order, begins, ends, times, first, last, marks, before = wanted
    left = np.empty(limit, np.int64)
    right = np.empty(limit, np.int64)
    ordered, timed, marked = order.shape[0] > 0, times.shape[0] > 0, marks.shape[0] > 0
    pieces = begins.shape[0]
    n, seen = 0, 0
    while range_at < which.shape[0] and n < limit:
        mine, base, stop = which[range_at], start[range_at], count[range_at]
        at = offset
        while at < stop and n < limit:
            row = np.int64(order[base + at]) if ordered else base + at
            keep = True
            if pieces:
                # The last piece that begins no later, by branch-free bisection; often there is one.
                piece, more = 0, pieces
                while more > 1:
                    half = more >> 1
                    piece += half * int(begins[piece + half] <= row)
                    more -= half
                keep = (row >= begins[piece]) & (row < ends[piece])
            if timed:
                keep &= (times[row] >= first[mine]) & (times[row] <= last[mine])
            if marked:
                keep &= marks[row] < before
            left[n] = mine
            right[n] = row
            n += int(keep)
            at += 1
        seen += at - offset
        offset = at
        if offset == stop:
            range_at += 1
            offset = 0
    return left[:n], right[:n], range_at, offset, seen


@kernel
def narrowed(
    values: NDArray[np.float64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    first: NDArray[np.float64],
    last: NDArray[np.float64],
) -> Any:
    """Within ranges of ascending values, those from `first` to `last`; expects to drop only a few."""
    inner, outer = begin.copy(), end.copy()
    for i in range(begin.shape[0]):
        while inner[i] < outer[i] and values[inner[i]] < first[i]:
            inner[i] += 1
        while inner[i] < outer[i] and values[outer[i] - 1] > last[i]:
            outer[i] -= 1
    return inner, outer


@kernel
def count_groups(h: NDArray[np.uint32], rows: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    """Adds to each group's count how many times its rows are listed."""
    groups = np.int64(counts.shape[0])
    for row in rows:
        counts[(np.int64(h[row]) * groups) >> 32] += 1
