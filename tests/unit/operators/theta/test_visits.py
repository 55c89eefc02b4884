"""Steps of a time-sliced join: what travels between visits, and in which order predicates are asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.coordinator.decisions.visiting import (
    explained_visits,
    most_rate,
    probing_of,
    sources_now,
)
from spillway.ids import SlotId, Version
from spillway.metrics.counts import Judged, Spent
from spillway.metrics.record import SlotRecord
from spillway.operators.input import StreamColumns
from spillway.operators.predicates.binding import bound
from spillway.operators.stats import OperatorStats
from spillway.operators.theta import sliced as sliced_module
from spillway.operators.theta.combinations import of_batch, of_rows
from spillway.operators.theta.sliced import Probing, SlicedJoin
from spillway.operators.theta.visit import Visit
from spillway.routing.slices import Slicing
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.run import RunData
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot.state import SlotState

NAMES = ("x", "t", "image")
TYPES = (pa.int64(), pa.timestamp("us"), pa.binary())
COLUMNS = {key: dict(zip(NAMES, ("bigint", "timestamp", "binary"), strict=True)) for key in "abc"}
ROWS, IMAGE_BYTES = 20, 1000
ORDERS = ((1, 2), (0, 2), (1, 0))
SAID = SlotRecord(
    0, 0, "m", (1,) * 3, (0,) * 3, 0, (None,) * 3, (1,) * 3, (1,) * 3, (1,) * 3, worker="w"
)


def sliced(
    *conditions: tuple[Any, str],
    read: tuple[int, ...] | None = (0,),
    interleave: int = 65_536,
    copies: int = 1,
) -> SlicedJoin:
    """A join of three streams with these conditions, whose results have some columns."""
    streams = [StreamColumns(name, NAMES, (0, 1, 2), (), 1, 1000, read) for name in "abc"]
    predicates = [
        bound(test, tuple(over), COLUMNS, number) for number, (test, over) in enumerate(conditions)
    ]
    slicing = Slicing((100,) * 3, 16, copies)
    return SlicedJoin(streams, [TYPES] * 3, predicates, slicing, interleave=interleave)


def given(join: SlicedJoin, stream: int) -> RunData:
    """Rows of one time, all with their images."""
    columns = [
        pa.array(join.slicing.places(stream, np.zeros(ROWS, np.int64))),
        pa.array(range(ROWS), TYPES[0]),
        pa.array([0] * ROWS, TYPES[1]),
        pa.array([bytes([n]) * IMAGE_BYTES for n in range(ROWS)], TYPES[2]),
    ]
    return RunData(pa.RecordBatch.from_arrays(columns, names=["_h", "c0", "c1", "c2"]), 1)


@pytest.fixture
def opened(tmp_path):
    def make(join: SlicedJoin) -> SlotState:
        """A slot that has stored rows of all streams, in an earlier batch."""
        tiers = (LocalTier(kind, tmp_path / kind) for kind in ("memory", "disk"))
        store = Store(*tiers, open_durable(str(tmp_path / "durable")), OpenRuns(), 1)
        manifest = empty_manifest(SlotId(0), 3)
        state = SlotState(
            manifest, store, join.layouts, groups=16, version=Version(1), attempt="one"
        )
        for stream, rows in enumerate(join.stored([given(join, n) for n in range(3)], 0)):
            state.add(stream, rows)
        return state

    return make


def went_round(join: SlicedJoin, state: SlotState, measured=None):
    """New rows of the first stream in both visits: what travels, and what comes of it."""
    probing, stats = Probing(ORDERS, measured=measured or {}), OperatorStats(16)
    first = of_rows(0, given(join, 0), join.streams)
    travelled = list(join.step(first, state, probing, stats))
    lefts = [left for batch in travelled for left in of_batch(batch, join.streams)]
    results = [one for left in lefts for one in join.step(left, state, probing, stats)]
    return travelled, sorted(
        tuple(row[n]["x"] for n in "abc") for b in results for row in b.to_pylist()
    )


@pytest.mark.parametrize("interleave", [1, 3, 65_536])
def test_so_many_rows_visit_at_a_time_and_find_the_same(opened, monkeypatch, interleave) -> None:
    sizes = []

    class Counted(Visit):
        def __init__(self, *given: Any) -> None:
            sizes.append(given[1].count)
            super().__init__(*given)

    monkeypatch.setattr(sliced_module, "Visit", Counted)
    join = sliced(("a.x = b.x", "ab"), ("b.x = c.x", "bc"), interleave=interleave)
    assert went_round(join, opened(join))[1] == WANTED
    assert max(sizes) == min(interleave, ROWS)
    assert sum(sizes) == 2 * ROWS


def alike(a, b):
    return (a.matrix("image") == b.matrix("image")).all(axis=1)


WANTED = [(n, n, n) for n in range(ROWS)]


def test_images_that_nothing_reads_any_more_do_not_travel(opened) -> None:
    join = sliced((alike, "ab"), ("b.x = c.x", "bc"))
    travelled, results = went_round(join, opened(join))
    assert results == WANTED
    assert sum(batch.num_rows for batch in travelled) == ROWS
    assert sum(batch.nbytes for batch in travelled) < ROWS * IMAGE_BYTES / 4


def test_image_that_a_function_may_read_later_travels_alone(opened) -> None:
    join = sliced((alike, "ab"), (alike, "bc"))
    travelled, results = went_round(join, opened(join))
    assert results == WANTED
    size = sum(batch.nbytes for batch in travelled)
    assert ROWS * IMAGE_BYTES < size < 1.5 * ROWS * IMAGE_BYTES


def test_images_that_results_have_travel(opened) -> None:
    join = sliced((alike, "ab"), ("b.x = c.x", "bc"), read=None)
    travelled, results = went_round(join, opened(join))
    assert results == WANTED
    assert sum(batch.nbytes for batch in travelled) > 2 * ROWS * IMAGE_BYTES


def test_conjunction_over_three_streams_lets_no_more_travel_than_its_parts(opened) -> None:
    parts = ["abs(a.x - b.x) < 0.5", "abs(b.x - c.x) < 0.5"]
    for join in (sliced((" and ".join(parts), "")), sliced(*((part, "") for part in parts))):
        travelled, results = went_round(join, opened(join))
        assert results == WANTED
        assert sum(batch.num_rows for batch in travelled) == ROWS


def test_predicate_over_all_streams_is_asked_when_its_measured_cost_says(opened) -> None:
    seen: list[int] = []

    def dear(a, b, c):
        seen.append(len(a))
        return a.x == b.x

    cheap = "b.x = c.x or a.x is null"
    join = sliced((dear, "abc"), (cheap, "abc"))
    counts = {
        name: (1000.0, of)
        for label, seconds in (("0:dear", 1.0), (f"1:{cheap}", 1e-5))
        for name, of in ((Judged(label), 50.0), (Spent(label), seconds))
    }
    # A later visit tells the driver alone what it has measured.
    said = replace(SAID, sampled=counts)
    plan: Any = None
    probing = probing_of(join, plan, {0: said}, 1.0)
    assert went_round(join, opened(join))[1] == WANTED
    unmeasured = sum(seen)
    assert went_round(join, opened(join), probing.measured)[1] == WANTED
    assert 0 < sum(seen) - unmeasured < unmeasured


def test_rows_on_disk_are_visited_and_count_as_those_in_memory() -> None:
    join = sliced(("a.x < b.x", "ab"), ("b.x < c.x", "bc"))
    said = replace(SAID, rows_in=(10,) * 3, state_rows=(100, 5, 100), disk_rows=(0, 895, 0))
    steps = {
        (source.name, step.stream): step.rows
        for source in sources_now(join, {0: said, 1: said}, 1.0)
        for step in source.steps
    }
    assert steps["a", "b"] == steps["c", "b"] == 1800.0
    assert steps["b", "a"] == 200.0


def test_rows_on_disk_are_as_wide_on_the_way_as_those_in_memory() -> None:
    join = sliced(("a.x = b.x", "ab"))
    memory = replace(SAID, busy_s=1.0, state_rows=(50,) * 3, state_bytes=(5000,) * 3)
    disk = replace(SAID, busy_s=1.0, state_rows=(0,) * 3, state_bytes=(0,) * 3)
    disk = replace(disk, disk_rows=(50,) * 3, disk_bytes=(5000,) * 3)
    assert explained_visits(join, {0: disk}, 2.0) == explained_visits(join, {0: memory}, 2.0)


def test_results_a_second_are_those_of_slots_that_are_busy_all_the_time() -> None:
    # Two hundred results, in a second of each slot.
    first, second = replace(SAID, rows_out=150, busy_s=1.5), replace(SAID, rows_out=50, busy_s=0.5)
    assert most_rate({0: first, 1: second}) == 200.0
    assert most_rate({0: SAID}) is None
    lines = explained_visits(sliced(("a.x = b.x", "ab")), {0: first, 1: second}, 2.0)
    assert "results/s" in lines[0]
    [in_use] = [line.split() for line in lines if "in use" in line]
    assert in_use[0] == "2"
    assert in_use[3] == "200"


def test_numbers_of_slots_are_told_where_rows_visit_all_and_not_where_there_are_copies() -> None:
    last = {slot: replace(SAID, busy_s=1.0) for slot in range(2)}
    conditions = (("a.x = b.x", "ab"), ("b.x < c.x", "bc"))
    psp, ctr = (explained_visits(sliced(*conditions, copies=n), last, 2.0) for n in (1, 2))
    assert "response ms" in psp[0]
    assert ctr == [line for line in psp if line.startswith(("probe orders", "predicate"))]
    assert len(ctr) == 3


def test_one_length_for_all_streams_is_told_with_the_stream_that_decides_it() -> None:
    last = {slot: replace(SAID, rows_in=(90, 5, 5), busy_s=1.0) for slot in range(2)}
    lines = explained_visits(sliced(("a.x = b.x", "ab"), ("b.x = c.x", "bc")), last, 2.0)
    [by_stream] = [line for line in lines if "best slot count of each stream" in line]
    assert by_stream.startswith("best slot count of each stream alone: a ")
    assert lines[lines.index(by_stream) + 1] == (
        "a group has a slice of every stream, so all have one slot count: a dominates the choice, with "
        "90% of the comparisons"
    )
