"""Runs that were cut: they are searched once, and give what their pieces have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spillway.operators.input import StreamColumns
from spillway.operators.predicates.binding import bound
from spillway.operators.stats import OperatorStats
from spillway.operators.theta import visit as visits
from spillway.operators.theta.combinations import Combinations, combinations
from spillway.operators.theta.search import Search
from spillway.operators.theta.visit import Visit
from spillway.routing.routing import group_ranges
from spillway.routing.slices import Slicing, slicing_for
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData

WINDOW_US, GROUPS, ROWS, VISITORS = 1_000_000, 64, 2000, 100
NAMES = ("x", "t", "id")
STREAMS = tuple(StreamColumns(name, NAMES, (0, 1, 2), (), 1, WINDOW_US) for name in "ab")
KINDS = {name: {"x": "double", "t": "timestamp_ntz", "id": "bigint"} for name in "ab"}
BAND, WIDE = "abs(a.x - b.x) < 0.01", "abs(a.x - b.x) < 2"


def stored(slicing: Slicing) -> RunData:
    """Rows of the second stream, as often as the slicing has planes."""
    random = np.random.default_rng(0)
    times = random.integers(0, WINDOW_US, ROWS)
    places = [slicing.places(1, times, copy) for copy in range(slicing.copies)]
    order = np.argsort(np.concatenate(places), kind="stable")
    columns = [
        pa.array(np.concatenate(places)),
        pa.array(np.tile(random.random(ROWS), slicing.copies)),
        pa.array(np.tile(times, slicing.copies), pa.timestamp("us")),
        pa.array(np.tile(np.arange(ROWS), slicing.copies)),
        pa.array(np.zeros(ROWS * slicing.copies, np.int32)),
    ]
    batch = pa.record_batch(columns, ["_h", "c0", "c1", "c2", "c3"])
    return RunData(batch.take(pa.array(order)), 1)


def visitors() -> Combinations:
    random = np.random.default_rng(1)
    times = random.integers(WINDOW_US // 2, WINDOW_US * 3 // 2, VISITORS)
    columns = [
        pa.array(random.random(VISITORS)),
        pa.array(times, pa.timestamp("us")),
        pa.array(range(VISITORS)),
    ]
    return combinations(0, {0: columns}, STREAMS)


def pieces(run: RunData, groups: list[int]) -> list[Segment]:
    cut = (Segment(run, *run.rows_in(one), one) for one in group_ranges(groups, GROUPS))
    return [one for one in cut if one.rows]


def found(slicing: Slicing, segments: list[Segment], condition: str) -> list[tuple[int, int]]:
    asked = [bound(condition, (), KINDS)]
    wanted = [range(3)] * 2
    step = Search(STREAMS, slicing, asked, 1, segments, 512, wanted)
    blocks = Visit(step, visitors(), OperatorStats(GROUPS)).blocks()
    ids = [[some[n][2].to_pylist() for n in (0, 1)] for some in blocks]
    return sorted(pair for some in ids for pair in zip(*some, strict=True))


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pairs have been looked at, each time."""
    seen: list[int] = []
    expand = visits.expand_within

    def counted(*how):
        result = expand(*how)
        seen.append(result[4])
        return result

    monkeypatch.setattr(visits, "expand_within", counted)
    return seen


def test_run_is_searched_once_however_often_it_was_cut(candidates: list[int]) -> None:
    slicing = slicing_for([WINDOW_US] * 2, [0, 0], GROUPS)
    run = stored(slicing)
    whole = found(slicing, [Segment(run, 0, run.rows)], BAND)
    in_one = sum(candidates)
    candidates.clear()
    every = pieces(run, list(range(0, GROUPS, 2)))
    assert len(every) > 10
    some = found(slicing, every, BAND)
    assert sum(candidates) <= in_one
    kept = {n for one in every for n in run.payload.column(2)[one.begin : one.end].to_pylist()}
    assert some == [pair for pair in whole if pair[1] in kept]
    assert 0 < len(some) < len(whole)


@pytest.mark.parametrize("condition", [BAND, WIDE], ids=["band", "time"])
def test_pieces_of_a_run_give_what_the_run_gives(condition: str) -> None:
    slicing = slicing_for([WINDOW_US] * 2, [0, 0], GROUPS)
    run = stored(slicing)
    halves = [*pieces(run, list(range(1, GROUPS, 2))), *pieces(run, list(range(0, GROUPS, 2)))]
    assert found(slicing, halves, condition) == found(
        slicing, [Segment(run, 0, run.rows)], condition
    )


@pytest.mark.parametrize("condition", [BAND, WIDE], ids=["band", "time"])
def test_copies_of_slices_in_one_run_give_every_pair_once(condition: str) -> None:
    once = slicing_for([WINDOW_US] * 2, [0, 0], GROUPS)
    twice = slicing_for([WINDOW_US] * 2, [0, 0], GROUPS, 2)
    whole = stored(once)
    chosen = [at + GROUPS // 2 * (at % 3 == 0) for at in range(GROUPS // 2)]
    assert found(twice, pieces(stored(twice), sorted(chosen)), condition) == found(
        once, [Segment(whole, 0, whole.rows)], condition
    )


def test_band_is_left_where_the_pieces_have_fewer_rows_than_it_finds(candidates: list[int]) -> None:
    slicing = slicing_for([WINDOW_US] * 2, [0, 0], GROUPS)
    run = stored(slicing)
    few = pieces(run, [3, 9])
    found(slicing, few, "abs(a.x - b.x) < 0.2")
    assert sum(candidates) <= VISITORS * sum(one.rows for one in few)
