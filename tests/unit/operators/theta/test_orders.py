"""Orders of runs are kept while there is room for them, and go with their runs."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
import pytest

from spillway.operators.input import StreamColumns
from spillway.operators.predicates.binding import bound
from spillway.operators.stats import OperatorStats
from spillway.operators.theta import banded
from spillway.operators.theta.banded import Orders
from spillway.operators.theta.combinations import combinations
from spillway.operators.theta.search import Search
from spillway.operators.theta.visit import Visit
from spillway.routing.slices import Slicing
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData

ROWS = 100
#: A position and a number for each row.
ORDER = 12 * ROWS
SLICING = Slicing((100, 100), 16)
STREAMS = [StreamColumns(name, ("x", "y", "t"), (0, 1, 2), (), 2, 1000) for name in "ab"]
KINDS = {name: {"x": "double", "y": "double", "t": "timestamp_ntz"} for name in "ab"}


def run_of(seed: int, stream: int = 1) -> RunData:
    random, times = np.random.default_rng(seed), np.zeros(ROWS, np.int64)
    arrays = [pa.array(SLICING.places(stream, times)), pa.array(random.normal(size=ROWS))]
    arrays += [pa.array(random.normal(size=ROWS)), pa.array(times, pa.timestamp("us"))]
    arrays += [pa.array([0] * ROWS, pa.int32())]
    return RunData(pa.record_batch(arrays, ["_h", "c0", "c1", "c2", "c3"]), 2)


@pytest.fixture
def sorted_columns(monkeypatch) -> list[pa.Array]:
    """The columns that were put in order since."""
    made, ordered = [], banded.ordered

    def counted(column):
        made.append(column)
        return ordered(column)

    monkeypatch.setattr(banded, "ordered", counted)
    return made


def test_orders_are_made_once_while_there_is_room(sorted_columns) -> None:
    orders, runs = Orders(2 * ORDER), [run_of(seed) for seed in range(2)]
    found = [orders.of(run, 0) for run in (*runs, *runs)]
    assert found[0] is found[2]
    assert found[1] is found[3]
    assert len(sorted_columns) == 2
    assert orders.size_bytes == 2 * ORDER


def test_orders_beyond_the_budget_are_made_again_and_those_before_stay(sorted_columns) -> None:
    orders, runs = Orders(2 * ORDER), [run_of(seed) for seed in range(5)]
    for _ in range(3):
        for run in runs:
            values = run.payload.column(0).to_numpy()
            # Several bands ask for the same order one after the other.
            for _ in range(2):
                found = orders.of(run, 0)
                assert values[found.which].tolist() == sorted(values) == found.numbers.tolist()
            assert orders.size_bytes <= 3 * ORDER
    assert len(sorted_columns) == 2 + 3 * 3


def test_orders_go_with_their_runs_and_leave_room_for_others(sorted_columns) -> None:
    orders, runs = Orders(ORDER), [run_of(seed) for seed in range(2)]
    for run in (*runs, *runs):
        orders.of(run, 0)
    assert orders.size_bytes == 2 * ORDER
    before = len(sorted_columns)
    runs = runs[1:]
    del run
    gc.collect()
    assert orders.size_bytes == ORDER
    orders.of(runs[0], 0)
    assert len(sorted_columns) == before
    more = run_of(7)
    orders.of(more, 0)
    assert orders.of(more, 0) is not None
    assert len(sorted_columns) == before + 1
    assert orders.size_bytes == ORDER


def test_column_without_an_order_takes_nothing() -> None:
    orders = Orders(ORDER)
    none = RunData(pa.record_batch({"_h": pa.array([1], pa.uint32()), "c0": pa.array(["p"])}))
    assert orders.of(none, 0) is None
    assert orders.size_bytes == 0


@pytest.mark.parametrize("budget", [0, 2 * ORDER, banded.ORDER_BYTES])
def test_answers_are_the_same_whatever_is_kept(monkeypatch, budget: int) -> None:
    orders = Orders(budget)
    monkeypatch.setattr(banded, "ORDERS", orders)
    left, runs = run_of(9, 0), [run_of(seed) for seed in range(4)]
    text = "abs(a.x - b.x) < 0.1 and a.y + b.y between -1 and 1"
    segments = [Segment(run, 0, ROWS) for run in runs]
    for _ in range(2):
        mine = combinations(0, {0: left.payload.columns[:3]}, STREAMS)
        how = (1, segments, 9999, [range(3)] * 2)
        step = Search(STREAMS, SLICING, [bound(text, (), KINDS)], *how)
        visit = Visit(step, mine, OperatorStats(16))
        found = sum(len(block[1][0]) for block in visit.blocks())
        (ax, ay), (bx, by) = (
            [np.concatenate([run.payload.column(at) for run in some]) for at in (0, 1)]
            for some in ([left], runs)
        )
        near = np.abs(ax[:, None] - bx) < 0.1
        assert found == int((near & (np.abs(ay[:, None] + by) <= 1)).sum()) > 100
        assert orders.size_bytes <= budget + ORDER
