"""Sliding windows against going through every window."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.kernels import sliding

VALUES = st.lists(st.integers(-9, 9), min_size=1, max_size=40)


@st.composite
def windows(draw):
    """Groups of values, some NULL, and a window for some of the rows of each."""
    values, valid, starts, begin, end = [], [], [0], [], []
    for group in draw(st.lists(VALUES, min_size=1, max_size=4)):
        first, low = len(values), len(values)
        values += group
        for i in range(first, len(values)):
            low = draw(st.integers(low, i))
            if draw(st.booleans()):
                begin.append(low)
                end.append(i + 1)
        starts.append(len(values))
    valid = draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    bounds = (np.array(begin, np.int64), np.array(end, np.int64))
    return np.array(values, np.int64), np.array(valid, np.bool_), np.array(starts), *bounds


@given(windows())
def test_sliding_gives_what_going_through_every_window_gives(drawn) -> None:
    values, valid, _, begin, end = drawn
    rows = [range(a, b) for a, b in zip(begin, end, strict=True)]
    filled = np.where(valid, values, 0)
    assert sliding.slide_sum(filled, begin, end, np.int64(0)).tolist() == [
        sum(int(filled[i]) for i in some) for some in rows
    ]
    least = sliding.slide_least(values, valid, begin, end)
    for at, some in zip(least.tolist(), rows, strict=True):
        there = [i for i in some if valid[i]]
        assert at == (min(there, key=lambda i: (values[i], i)) if there else -1)
    count, mean, m2 = sliding.slide_moments(values + 1e6, valid, begin, end)
    for n, center, spread, some in zip(count, mean, m2, rows, strict=True):
        there = [values[i] + 1e6 for i in some if valid[i]]
        assert n == len(there)
        if there:
            assert center == pytest.approx(np.mean(there))
            assert spread == pytest.approx(np.var(there) * n, abs=1e-3)


def test_a_large_value_that_has_left_takes_nothing_with_it() -> None:
    values = np.array([1e17, 0.1, 0.2, 0.3])
    begin, end = np.array([0, 1, 2]), np.array([2, 3, 4])
    assert sliding.slide_sum(values, begin, end, 0.0)[1:].tolist() == [0.1 + 0.2, 0.2 + 0.3]
    values[0] = math.inf
    assert sliding.slide_sum(values, begin, end, 0.0)[1:].tolist() == [0.1 + 0.2, 0.2 + 0.3]


@given(st.lists(VALUES, min_size=1, max_size=4), st.integers(1, 6))
def test_windows_begin_where_their_definition_says(groups, size) -> None:
    times = np.array([t for group in groups for t in sorted(group)], np.int64)
    starts = np.append(0, np.cumsum([len(group) for group in groups])).astype(np.int64)
    rows, ranges = sliding.last_rows(starts, size), sliding.last_range(starts, times, size)
    for g in range(len(groups)):
        for i in range(starts[g], starts[g + 1]):
            assert rows[i] == max(starts[g], i - size + 1)
            seen = [j for j in range(starts[g], i + 1) if times[j] > times[i] - size]
            assert (ranges[i], len(seen)) == (seen[0], i + 1 - seen[0])


@given(windows(), st.data())
def test_rows_of_later_batches_are_not_spelled_out(drawn, data) -> None:
    values, _, starts, begin, end = drawn
    batches = np.array([data.draw(st.integers(0, 2)) for _ in values], np.int32)
    rows, at = sliding.spelled_out(begin, end, batches)
    hidden = sliding.overtaken(starts, batches)
    for w, (a, b) in enumerate(zip(begin, end, strict=True)):
        seen = [i for i in range(a, b) if batches[i] <= batches[b - 1]]
        assert rows[at[w] : at[w + 1]].tolist() == seen
        assert hidden[b - 1] or len(seen) == b - a
