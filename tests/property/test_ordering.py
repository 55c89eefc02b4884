"""The order of rows against Python's own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spillway.kernels.grouping import by_group
from spillway.kernels.ordering import apart, in_order, sort_each

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 1),
        st.integers(0, 1),
        st.one_of(st.none(), st.text("ab", max_size=2)),
        st.integers(0, 1),
        st.lists(st.integers(0, 1), max_size=2),
    ),
    max_size=90,
)


@given(ROWS, st.randoms(use_true_random=False))
def test_order_goes_by_keys_then_by_content_and_never_by_arrival(rows, random) -> None:
    def sorted_rows(given_rows: list) -> list:
        columns = list(zip(*given_rows, strict=True)) or [()] * 6
        first, second = (np.array(column, np.int64) for column in columns[1:3])
        kinds = [pa.string(), pa.int64(), pa.list_(pa.int64())]
        values = [pa.array(c, k) for c, k in zip(columns[3:], kinds, strict=True)]
        groups = by_group(np.array(columns[0], np.int32), 3)
        return [given_rows[i] for i in in_order(groups, first, second, values).order]

    shuffled = random.sample(rows, len(rows))
    found = sorted_rows(rows)
    assert found == sorted_rows(shuffled)
    plain = [row[:5] for row in found]
    assert plain == sorted(plain, key=lambda r: (*r[:3], r[3] is not None, r[3] or "", r[4]))


GROUPS = st.lists(
    st.tuples(
        st.lists(st.integers(-20, 20), max_size=4), st.lists(st.integers(-20, 20), max_size=6)
    ),
    max_size=5,
)


@given(GROUPS, st.integers(1, 9))
def test_times_are_taken_that_are_far_from_all_before(groups, range_) -> None:
    def flat(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        starts = np.append(0, np.cumsum([len(one) for one in lists])).astype(np.int64)
        return np.array([v for one in lists for v in one], np.int64), starts

    taken, taken_starts = flat([old for old, _ in groups])
    sort_each(taken, taken_starts)
    assert taken.tolist() == [v for old, _ in groups for v in sorted(old)]
    far = apart(taken, taken_starts, *flat([new for _, new in groups]), range_)
    wanted = []
    for old, new in groups:
        held = list(old)
        for time in new:
            wanted.append(all(abs(time - one) >= range_ for one in held))
            held += [time] if wanted[-1] else []
    assert far.tolist() == wanted
