"""Windows and sessions of rows: their boundaries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spillway.kernels.grouping import grouped_by_time
from spillway.kernels.sessions import cut_sessions
from spillway.operators.grouping.marks import Spans
from spillway.plan.windows import EventWindows

KIND = pa.timestamp("us")


def windows_of(spans: Spans, time: int) -> list[int]:
    """The starts of the windows of one row, ascending."""
    marks = spans.of_rows(pa.array([time], KIND))
    spread = spans.spread(marks)
    found = marks[0] if spread is None else spread[1][0]
    return sorted(found.cast(pa.int64()).to_pylist())


@pytest.mark.parametrize(
    ("length", "slide", "start"),
    [(5, 5, 0), (5, 5, 3), (6, 2, 1), (7, 3, -2), (9, 8, 4), (1, 1, 0)],
)
def test_row_is_in_all_windows_around_its_time(length: int, slide: int, start: int) -> None:
    spans = Spans(length, slide, start)
    for time in range(-30, 30):
        wanted = [
            first
            for first in range(-60, 60)
            if (first - start) % slide == 0 and first <= time < first + length
        ]
        assert windows_of(spans, time) == wanted


def test_rows_of_a_hash_are_grouped_by_key_and_time() -> None:
    rng = np.random.default_rng(2)
    h = np.sort(rng.integers(0, 20, 500)).astype(np.uint32)
    keys, times = h * 2 + rng.integers(0, 2, 500).astype(np.uint32), rng.integers(0, 40, 500)
    groups = grouped_by_time(h, [pa.array(keys)], times)
    assert sorted(groups.order.tolist()) == list(range(500))
    assert (np.diff(h[groups.order].astype(int)) >= 0).all()
    found = [
        {(keys[row], times[row]) for row in groups.order[a:b]}
        for a, b in zip(groups.starts[:-1], groups.starts[1:], strict=True)
    ]
    assert all(len(one) == 1 for one in found)
    assert len(found) == len({*zip(keys.tolist(), times.tolist(), strict=True)})


@pytest.mark.parametrize("rows", [5, 100])
def test_sessions_are_cut_where_the_gap_is_larger(rows: int) -> None:
    rng = np.random.default_rng(rows)
    first = rng.integers(0, 10 * rows, rows)
    last = first + rng.integers(0, 5, rows)
    order = np.arange(rows, dtype=np.int32)
    starts = cut_sessions(order, np.array([0, rows]), first, last, 4)
    ends = np.maximum.accumulate(last[order])
    cuts = [at for at in range(1, rows) if first[order[at]] - ends[at - 1] > 4]
    assert starts.tolist() == [0, *cuts, rows]


@pytest.mark.parametrize(
    ("windows", "text"),
    [
        (EventWindows(60_000_000, 60_000_000), "tumbling windows of 60 s"),
        (
            EventWindows(60_000_000, 20_000_000, 5),
            "hopping windows of 60 s every 20 s, starting at 5e-06 s",
        ),
        (EventWindows(60_000_000, None), "sessions with a gap of 60 s"),
        (EventWindows(60_000_000, None, lasting=True), "keys with a time to live of 60 s"),
    ],
)
def test_windows_are_described(windows: EventWindows, text: str) -> None:
    assert windows.text == text
