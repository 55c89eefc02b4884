"""Candidates in tiles: any ranges give what pairs give, in bounded tiles."""

from __future__ import annotations

import numpy as np
import pytest
from test_pieces import (
    GROUPS,
    KINDS,
    ROWS,
    STREAMS,
    VISITORS,
    WINDOW_US,
    pieces,
    stored,
    visitors,
)

import spillway as sw
from spillway.kernels.tiling import cut_tiles
from spillway.operators.predicates.binding import bound
from spillway.operators.stats import OperatorStats
from spillway.operators.theta.search import Search
from spillway.operators.theta.tiling import tile_rows
from spillway.operators.theta.visit import Visit
from spillway.routing.slices import slicing_for
from spillway.rows import bounds

AREAS: list[tuple[int, int]] = []


def near(a, b):
    AREAS.append((len(a), len(b)))
    return np.abs(a.x[:, None] - b.x) < 0.03


def near_pairs(a, b):
    return np.abs(a.x - b.x) < 0.03


def turned(b, a):
    AREAS.append((len(b), len(a)))
    return np.abs(a.x - b.x[:, None]) < 0.03


def found(condition, segments, over=("a", "b"), before=None, marks=False):
    asked = [bound(one, over, KINDS, at) for at, one in enumerate(condition)]
    slicing = slicing_for([WINDOW_US] * 2, [0, 0], GROUPS)
    step = Search(STREAMS, slicing, asked, 1, segments, 512, [range(3)] * 2, before)
    stats = OperatorStats(GROUPS)
    blocks = list(Visit(step, visitors(), stats).blocks())
    assert all(len(one[0][2]) <= 2 * 512 for one in blocks)
    ids = [[some[n][2].to_pylist() for n in (0, 1)] for some in blocks]
    return sorted(pair for some in ids for pair in zip(*some, strict=True)), stats


@pytest.fixture(autouse=True)
def none_asked() -> None:
    AREAS.clear()


@pytest.fixture
def whole():
    slicing = slicing_for([WINDOW_US] * 2, [0, 0], GROUPS)
    return pieces(stored(slicing), list(range(GROUPS)))


@pytest.mark.parametrize(
    "condition",
    [
        [sw.tiles(near)],
        [sw.predicate(sw.tiles(near), prefilter="abs(a.x - b.x) < 0.05")],
        [sw.predicate(sw.tiles(near), prefilter="abs(a.x - b.x) < 0.05 and a.x * b.x >= 0")],
        ["abs(a.x - b.x) < 0.04", sw.tiles(near)],
        [sw.tiles(near), "abs(a.x - b.x) < 0.04"],
        ["a.x * b.x >= 0", sw.tiles(near)],
    ],
    ids=["alone", "band", "no band", "after a band", "before a band", "after no band"],
)
def test_tiles_give_what_a_function_of_pairs_gives(whole, condition) -> None:
    wanted, _ = found([near_pairs], whole)
    assert len(wanted) > 1000
    assert found(condition, whole)[0] == wanted
    assert AREAS


def test_arguments_come_in_the_order_of_the_streams(whole) -> None:
    wanted, _ = found([near_pairs], whole)
    assert found([sw.tiles(turned)], whole, ("b", "a"))[0] == wanted


def test_pieces_of_a_run_leave_out_rows_between_them() -> None:
    slicing = slicing_for([WINDOW_US] * 2, [0, 0], GROUPS)
    some = pieces(stored(slicing), list(range(0, GROUPS, 3)))
    wanted, _ = found([near_pairs], some)
    assert found([sw.tiles(near)], some)[0] == wanted
    banded = sw.predicate(sw.tiles(near), prefilter="abs(a.x - b.x) < 0.05")
    assert found([banded], some)[0] == wanted


def test_rows_of_this_batch_are_left_out(whole) -> None:
    assert found([sw.tiles(near)], whole, before=0)[0] == []
    assert found([sw.tiles(near)], whole, before=1)[0] == found([near_pairs], whole, before=1)[0]


def test_statistics_count_candidates_not_the_area(whole) -> None:
    one, other = (found([test], whole)[1] for test in (near_pairs, sw.tiles(near)))
    [pairs], [tiled] = (
        [count for key, count in stats.selectivity.items() if type(key).__name__ == "Judged"]
        for stats in (one, other)
    )
    assert pairs == tiled
    assert (one.outputs == other.outputs).all()


def test_tiles_are_few_where_ranges_overlap(whole) -> None:
    found([sw.tiles(near)], whole)
    area = sum(m * k for m, k in AREAS)
    assert area <= 4 * VISITORS * ROWS
    assert len(AREAS) < VISITORS


@pytest.mark.parametrize("bound_bytes", [16, 64, 1000])
def test_tiles_are_bounded_in_bytes(monkeypatch, bound_bytes) -> None:
    slicing = slicing_for([WINDOW_US] * 2, [0, 0], GROUPS)
    whole = pieces(stored(slicing), [10, 40])
    wanted, _ = found([near_pairs], whole)
    monkeypatch.setattr(bounds, "BLOCK_BYTES", bound_bytes)
    AREAS.clear()
    assert found([sw.tiles(near)], whole)[0] == wanted
    assert max(8 * m * k for m, k in AREAS) <= max(bound_bytes // 4, 8)


@pytest.mark.parametrize(
    ("left", "right"), [(8, 8), (15_000, 15_000), (1 << 20, 8), (8, 1 << 20), (1 << 30, 1 << 30)]
)
def test_rows_of_a_tile_fit_a_block(left: int, right: int) -> None:
    m, k = tile_rows(left, right)
    assert m * left + k * right <= bounds.BLOCK_BYTES or (m, k) == (1, 1)
    assert m * k >= 1


def test_ranges_far_apart_get_tiles_of_their_own() -> None:
    start = np.array([0, 10, 1_000_000, 1_000_010, 0], np.int64)
    count = np.array([5_000, 5_000, 5_000, 5_000, 1], np.int64)
    cut = [one.tolist() for one in cut_tiles(start, count, 256, 4096, 4)]
    assert cut == [
        [0, 2, 4],
        [2, 4, 5],
        [0, 1_000_000, 0],
        [5_010, 1_005_010, 1],
    ]


def test_more_ranges_than_fit_are_cut() -> None:
    start, count = np.zeros(1000, np.int64), np.full(1000, 50, np.int64)
    first, last, low, high = cut_tiles(start, count, 256, 4096, 4)
    assert (last - first).tolist() == [256, 256, 256, 232]
    assert set(low) == {0}
    assert set(high) == {50}
