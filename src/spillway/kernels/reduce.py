"""One value per group: sums, counts, choices, moments.

All take the rows of group g as `order[starts[g]:starts[g + 1]]` (kernels/grouping.py). `valid` tells
which values are not NULL; empty: all. Where the operation allows it, one kernel reduces rows and also
combines earlier reductions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel


@kernel
def count_valid(valid: NDArray[np.bool_], order: NDArray[np.int32], starts: Any) -> Any:
    """Values of each group that are not NULL."""
    out = np.empty(starts.shape[0] - 1, np.int64)
    for g in range(out.shape[0]):
        n = 0
        for at in range(starts[g], starts[g + 1]):
            n += valid[order[at]]
        out[g] = n
    return out


@kernel
def sum_floats(
    values: NDArray[np.float64], valid: NDArray[np.bool_], order: NDArray[np.int32], starts: Any
) -> Any:
    """Sums; 0.0 where there is no value."""
    out = np.empty(starts.shape[0] - 1, np.float64)
    plain = valid.shape[0] == 0
    for g in range(out.shape[0]):
        total = 0.0
        for at in range(starts[g], starts[g + 1]):
            row = order[at]
            if plain or valid[row]:
                total += values[row]
        out[g] = total
    return out


@kernel
def sum_ints(
    values: NDArray[np.int64], valid: NDArray[np.bool_], order: NDArray[np.int32], starts: Any
) -> Any:
    """Exact sums, and the first group whose sum overflows 64 bits on the way; -1: none does."""
    out = np.empty(starts.shape[0] - 1, np.int64)
    plain = valid.shape[0] == 0
    over = -1
    for g in range(out.shape[0]):
        total = np.int64(0)
        for at in range(starts[g], starts[g + 1]):
            row = order[at]
            if plain or valid[row]:
                value = values[row]
                more = total + value
                if ((total ^ more) & (value ^ more)) < 0 and over < 0:
                    over = g
                total = more
        out[g] = total
    return out, over


@kernel
def sum_wide(
    words: NDArray[np.int64], valid: NDArray[np.bool_], order: NDArray[np.int32], starts: Any
) -> Any:
    """Sums of 128-bit integers, as pairs (low, high) of words; and the first group that overflows."""
    out = np.zeros(2 * (starts.shape[0] - 1), np.int64)
    plain = valid.shape[0] == 0
    over = -1
    for g in range(starts.shape[0] - 1):
        low, high = np.uint64(0), np.int64(0)
        for at in range(starts[g], starts[g + 1]):
            row = np.int64(order[at])
            if plain or valid[row]:
                value = words[2 * row + 1]
                low += np.uint64(words[2 * row])
                carry = np.int64(low < np.uint64(words[2 * row]))
                more = high + value + carry
                if ((high ^ more) & (value ^ more)) < 0 and over < 0:
                    over = g
                high = more
        out[2 * g] = np.int64(low)
        out[2 * g + 1] = high
    return out, over


@kernel
def least(
    keys: NDArray[np.int64], valid: NDArray[np.bool_], order: NDArray[np.int32], starts: Any
) -> Any:
    """The row with the least key of each group, the first of equals; -1 where there is no value."""
    out = np.empty(starts.shape[0] - 1, np.int32)
    plain = valid.shape[0] == 0
    for g in range(out.shape[0]):
        best = np.int32(-1)
        for at in range(starts[g], starts[g + 1]):
            row = order[at]
            if (plain or valid[row]) and (best < 0 or keys[row] < keys[best]):
                best = row
        out[g] = best
    return out


@kernel
def first_of_three(
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    c: NDArray[np.int64],
    order: NDArray[np.int32],
    starts: Any,
) -> Any:
    """The row of each group that is first by (a, b, c); no group is empty."""
    out = np.empty(starts.shape[0] - 1, np.int32)
    for g in range(out.shape[0]):
        best = order[starts[g]]
        for at in range(starts[g] + 1, starts[g + 1]):
            row = order[at]
            if a[row] != a[best]:
                less = a[row] < a[best]
            elif b[row] != b[best]:
                less = b[row] < b[best]
            else:
                less = c[row] < c[best]
            if less:
                best = row
        out[g] = best
    return out


@kernel
def moments(
    values: NDArray[np.float64], valid: NDArray[np.bool_], order: NDArray[np.int32], starts: Any
) -> Any:
    """Count, mean and sum of squared distances from the mean (Welford)."""
    groups = starts.shape[0] - 1
    count, mean, m2 = np.zeros(groups, np.int64), np.zeros(groups), np.zeros(groups)
    plain = valid.shape[0] == 0
    for g in range(groups):
        n, center, spread = 0, 0.0, 0.0
        for at in range(starts[g], starts[g + 1]):
            row = order[at]
            if plain or valid[row]:
                n += 1
                away = values[row] - center
                center += away / n
                spread += away * (values[row] - center)
        count[g], mean[g], m2[g] = n, center, spread
    return count, mean, m2


@kernel
def combine_moments(
    counts: NDArray[np.int64],
    means: NDArray[np.float64],
    m2s: NDArray[np.float64],
    order: NDArray[np.int32],
    starts: Any,
) -> Any:
    """The moments of several sets of values as those of their union (Chan, Golub, LeVeque)."""
    groups = starts.shape[0] - 1
    count, mean, m2 = np.zeros(groups, np.int64), np.zeros(groups), np.zeros(groups)
    for g in range(groups):
        n, center, spread = 0, 0.0, 0.0
        for at in range(starts[g], starts[g + 1]):
            row = order[at]
            if counts[row] == 0:
                continue
            both = n + counts[row]
            away = means[row] - center
            center += away * counts[row] / both
            spread += m2s[row] + away * away * n * counts[row] / both
            n = both
        count[g], mean[g], m2[g] = n, center, spread
    return count, mean, m2


@kernel
def add_ints(
    totals: NDArray[np.int64],
    at: NDArray[np.int32],
    values: NDArray[np.int64],
    rows: NDArray[np.int32],
) -> Any:
    """Adds `values[rows[i]]` to `totals[at[i]]`; returns the first place that overflows, or -1."""
    over = -1
    for i in range(at.shape[0]):
        total, value = totals[at[i]], values[rows[i]]
        more = total + value
        if ((total ^ more) & (value ^ more)) < 0 and over < 0:
            over = i
        totals[at[i]] = more
    return over


@kernel
def add_floats(
    totals: NDArray[np.float64],
    at: NDArray[np.int32],
    values: NDArray[np.float64],
    rows: NDArray[np.int32],
) -> None:
    """Adds `values[rows[i]]` to `totals[at[i]]`."""
    for i in range(at.shape[0]):
        totals[at[i]] += values[rows[i]]
