"""One value per window, where windows slide: window w has the rows [begin[w], end[w]).

Begins and ends never go back; a window that begins where no earlier one ended starts a new group.
Differences of prefix sums would cancel: a large value that has left would take digits of the small
ones with it. So nothing is subtracted. A window joins the aggregate of a suffix of earlier rows with
that of the rows added since ("two stacks"). When the suffix is used up, the kernel computes the
suffixes of the rows present; every row takes part once. So a window costs two steps, however many
rows it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel


@kernel
def last_rows(starts: Any, rows: int) -> Any:
    """Where the window of the last `rows` rows of its group begins, for each row as the last one."""
    begin = np.empty(starts[-1], np.int64)
    for g in range(starts.shape[0] - 1):
        for i in range(starts[g], starts[g + 1]):
            begin[i] = max(starts[g], i + 1 - rows)
    return begin


@kernel
def last_range(starts: Any, times: NDArray[np.int64], range_: int) -> Any:
    """Where the window (t - range, t] of its group begins, for each row; times ascend in groups."""
    begin = np.empty(starts[-1], np.int64)
    for g in range(starts.shape[0] - 1):
        low = starts[g]
        for i in range(starts[g], starts[g + 1]):
            while times[i] - times[low] >= range_:
                low += 1
            begin[i] = low
    return begin


@kernel
def overtaken(starts: Any, batches: NDArray[np.int32]) -> Any:
    """Whether a row of a later batch comes before a row in its group."""
    out = np.zeros(starts[-1], np.bool_)
    for g in range(starts.shape[0] - 1):
        newest = batches[starts[g]]
        for i in range(starts[g], starts[g + 1]):
            out[i] = batches[i] < newest
            newest = max(newest, batches[i])
    return out


@kernel
def spelled_out(
    begin: NDArray[np.int64], end: NDArray[np.int64], batches: NDArray[np.int32]
) -> Any:
    """The rows of each window that came no later than its last, and where each window begins."""
    starts = np.zeros(begin.shape[0] + 1, np.int64)
    total = 0
    for w in range(begin.shape[0]):
        total += end[w] - begin[w]
    rows = np.empty(total, np.int32)
    at = 0
    for w in range(begin.shape[0]):
        for i in range(begin[w], end[w]):
            if batches[i] <= batches[end[w] - 1]:
                rows[at] = i
                at += 1
        starts[w + 1] = at
    return rows[:at], starts


@kernel
def slide_sum(
    values: NDArray[Any], begin: NDArray[np.int64], end: NDArray[np.int64], zero: Any
) -> Any:
    """Sums, in the type of the values; `zero` is theirs."""
    out = np.empty(begin.shape[0], values.dtype)
    suffix = np.empty(values.shape[0], values.dtype)
    flip, reached, back = 0, 0, zero
    for w in range(begin.shape[0]):
        if begin[w] >= flip:
            total = zero
            for j in range(end[w] - 1, begin[w] - 1, -1):
                total = values[j] + total
                suffix[j] = total
            flip, reached, back = end[w], end[w], zero
        else:
            while reached < end[w]:
                back += values[reached]
                reached += 1
        out[w] = suffix[begin[w]] + back
    return out


@kernel
def slide_least(
    keys: NDArray[np.int64],
    valid: NDArray[np.bool_],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
) -> Any:
    """The row with the least key of each window; -1 where there is no value."""
    out = np.empty(begin.shape[0], np.int32)
    suffix = np.empty(keys.shape[0], np.int32)
    plain = valid.shape[0] == 0
    flip, reached, back = 0, 0, np.int32(-1)
    for w in range(begin.shape[0]):
        if begin[w] >= flip:
            best = np.int32(-1)
            for j in range(end[w] - 1, begin[w] - 1, -1):
                if (plain or valid[j]) and (best < 0 or keys[j] <= keys[best]):
                    best = np.int32(j)
                suffix[j] = best
            flip, reached, back = end[w], end[w], np.int32(-1)
        else:
            while reached < end[w]:
                if (plain or valid[reached]) and (back < 0 or keys[reached] < keys[back]):
                    back = np.int32(reached)
                reached += 1
        front = suffix[begin[w]]
        out[w] = front if back < 0 or (front >= 0 and keys[front] <= keys[back]) else back
    return out


@kernel
def _chan(na: Any, ma: float, sa: float, nb: Any, mb: float, sb: float) -> Any:
    if na == 0:
        return nb, mb, sb
    if nb == 0:
        return na, ma, sa
    n, away = na + nb, mb - ma
    return n, ma + away * nb / n, sa + sb + away * away * na * nb / n


@kernel
def slide_moments(
    values: NDArray[np.float64],
    valid: NDArray[np.bool_],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
) -> Any:
    """Count, mean and sum of squared distances from the mean."""
    size, plain = begin.shape[0], valid.shape[0] == 0
    counts, means, m2s = np.empty(size, np.int64), np.empty(size), np.empty(size)
    suffix_n = np.empty(values.shape[0], np.int64)
    suffix = np.empty((values.shape[0], 2))
    flip, reached = 0, 0
    n, mean, m2 = 0, 0.0, 0.0
    for w in range(size):
        if begin[w] >= flip:
            n, mean, m2 = 0, 0.0, 0.0
            for j in range(end[w] - 1, begin[w] - 1, -1):
                if plain or valid[j]:
                    n, mean, m2 = _chan(1, values[j], 0.0, n, mean, m2)
                suffix_n[j] = n
                suffix[j, 0], suffix[j, 1] = mean, m2
            flip, reached = end[w], end[w]
            n, mean, m2 = 0, 0.0, 0.0
        else:
            while reached < end[w]:
                if plain or valid[reached]:
                    n, mean, m2 = _chan(n, mean, m2, 1, values[reached], 0.0)
                reached += 1
        at = begin[w]
        counts[w], means[w], m2s[w] = _chan(suffix_n[at], suffix[at, 0], suffix[at, 1], n, mean, m2)
    return counts, means, m2s
