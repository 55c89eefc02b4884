"""Join trees: what is stored, when it goes, and how much is held at a time."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from one_slot import NAMES, Slot, streams

from spillway.errors import QueryError
from spillway.metrics.counts import Sampled
from spillway.operators.equi import ascent
from spillway.operators.equi import tree as tree_module
from spillway.operators.equi.filling import Effort, Filling
from spillway.operators.equi.intermediate import combined_stored
from spillway.operators.equi.join import JoinOperator
from spillway.operators.equi.tree import TreeOperator
from spillway.plan.shape import flat, parse
from spillway.policies.shape.costs import join_rates
from spillway.routing.routing import HashRange, group_ranges, outside
from spillway.slot import limits
from spillway.slot.limits import Limits
from spillway.state.layout.generations import cut_layers
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_combination_is_stored_with_its_keys_once_and_what_is_seen_of_the_others() -> None:
    state = combined_stored([2, 0], streams([9, 9, 5]))
    assert state.name == "A+C"
    # Of A value, key, time; of C value, time; then the time by which it expires.
    assert state.at == {0: {0: 0, 1: 1, 2: 2}, 2: {0: 3, 2: 4}}
    assert state.side.keys == (1,)
    assert state.side.times == (2, 4)
    assert (state.layout.time_column, state.layout.window_us, state.layout.made) == (5, 5, True)


def test_every_shape_gives_what_the_n_way_join_gives(folder: Path) -> None:
    rng = np.random.default_rng(3)
    columns = streams([30, 20, 40, 30])
    shapes = [flat(NAMES), parse("((A B) (C D))"), parse("(((A D) B) C)"), parse("((A B D) C)")]
    operators = [JoinOperator(columns), *(TreeOperator(columns, shape) for shape in shapes)]
    slots = [Slot(folder / str(at), columns) for at in range(len(operators))]
    for clock in range(12):
        drawn = rng.integers(0, 4, 40), rng.integers(0, 6, 40), clock * 10 + rng.integers(0, 10, 40)
        rows = list(zip(*(column.tolist() for column in drawn), strict=True))
        found = [
            slot.batch(operator, rows) for slot, operator in zip(slots, operators, strict=True)
        ]
        assert found.count(found[0]) == len(found)
        for slot in slots:
            slot.watermark = clock * 10 - 20
    assert sum(found[0].values()) > 0


def test_an_intermediate_state_expires_with_the_first_of_its_rows(folder: Path) -> None:
    columns = streams([100, 10, 100])
    slot, tree = Slot(folder, columns), TreeOperator(streams([100, 10, 100]), parse("((A B) C)"))
    slot.batch(tree, [(0, 1, 0), (0, 2, 0), (1, 1, 5)])
    assert slot.made() == {"A+B": 1}
    slot.watermark = 14
    slot.batch(tree, [(0, 3, 14)])
    assert slot.made() == {"A+B": 1}
    slot.watermark = 15
    assert slot.batch(tree, [(2, 1, 15)]) == Counter()
    assert slot.made() == {"A+B": 0}
    assert slot.record.state_rows == (3, 0, 1, 0)


def test_layers_of_an_intermediate_state_stay_few_and_expired_rows_go(folder: Path) -> None:
    """Combinations of a batch expire at any time in the window, so they are merged without it."""
    rng = np.random.default_rng(1)
    columns = streams([200, 200, 200])
    slot, tree = Slot(folder, columns), TreeOperator(columns, parse("((A B) C)"))
    for clock in range(60):
        keys = rng.integers(0, 40, 60)
        rows = [(at % 2, int(key), clock * 10 + at % 10) for at, key in enumerate(keys)]
        slot.watermark = clock * 10 - 1
        slot.batch(tree, rows)
    # 20 batches of 30 rows each live; of the pairs, half of those that the window has seen.
    living = 600 * 600 / 40
    assert living / 2 < slot.made()["A+B"] < 2.5 * living
    assert slot.record.layers[3] <= 24


def test_a_hot_key_is_kept_in_pieces_and_joined_in_blocks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ascent, "PIECE_BYTES", 20_000)
    columns = streams([None] * 3)
    slot, tree = Slot(folder, columns), TreeOperator(columns, parse("((A B) C)"), block_rows=128)
    found = slot.batch(tree, [(stream, 7, 0) for stream in (0, 1, 2) for _ in range(30)])
    assert sum(found.values()) == len(found) == 30**3
    assert slot.largest <= 128
    assert slot.made() == {"A+B": 900}
    sizes = [piece.run.size_bytes for layer in slot.manifest.streams[3] for piece in layer.slices]
    assert len(sizes) > 1
    assert max(sizes) < 40_000


def test_intermediate_states_are_accounted_like_any_other(folder: Path) -> None:
    columns = streams([None] * 3)
    slot, tree = Slot(folder, columns), TreeOperator(columns, parse("((A B) C)"))
    slot.batch(tree, [(stream, key, 0) for stream in (0, 1) for key in range(10)])
    assert slot.record.state_rows == (10, 10, 0, 10)
    # The hash, the three columns of A, and the value of B.
    assert slot.record.state_bytes[3] == 10 * (4 + 3 * 8 + 8)
    assert slot.manifest.groups.rows[3].sum() == 10
    assert slot.manifest.groups.load.sum() > 0


def test_partners_in_all_streams_are_sampled_whatever_is_joined(folder: Path) -> None:
    columns = streams([None] * 3)
    slot, tree = Slot(folder, columns), TreeOperator(columns, parse("((A B) C)"))
    slot.batch(tree, [(2, key % 5, 0) for key in range(10)])
    slot.batch(tree, [(1, key, 0) for key in range(10)])
    assert slot.record.sampled[Sampled("1", "2")] == (100.0, 10.0)
    assert slot.record.sampled[Sampled("1", "0")] == (0.0, 0.0)
    rates = join_rates("ABC", slot.record, 2.0)
    assert [(s.rate, s.rows) for s in rates.streams] == [(0.0, 0.0), (5.0, 10.0), (0.0, 10.0)]
    assert rates.streams[1].row_bytes == 4 + 3 * 8
    assert rates.selectivity["B", "C"] == pytest.approx(10.5 / 100)


def test_the_record_names_states_and_those_that_are_still_being_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "FILL_ROWS", 4)
    columns = streams([None] * 3)
    slot = Slot(folder, columns)
    slot.batch(TreeOperator(columns, flat("ABC")), [(s, k, 0) for s in (0, 1) for k in range(20)])
    assert (slot.record.made, slot.record.lacking) == ((), ())
    tree = TreeOperator(columns, parse("((A B) C)"))
    slot.batch(tree, [])
    assert (slot.record.made, slot.record.lacking) == (("A+B",), ("A+B",))
    while slot.record.lacking:
        slot.batch(tree, [])
    assert slot.made() == {"A+B": 20}


def test_memory_holds_while_the_combinations_of_one_piece_are_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEAST_MADE_BYTES", 1 << 14)
    columns = streams([None] * 3)
    slot, tree = Slot(folder, columns), TreeOperator(columns, parse("((A B) C)"), block_rows=512)
    slot.limits = Limits(memory_bytes=200_000)
    slot.batch(tree, [(stream, key, 0) for stream in (0, 1) for key in range(8) for _ in range(70)])
    combinations = 8 * 70 * 70
    assert slot.record.disk_rows[3] + slot.record.state_rows[3] == combinations
    # Memory is checked after each eighth of the limit that is made.
    assert combinations * 36 > 5 * 200_000
    assert slot.record.peak_bytes < 1.25 * 200_000
    slot.limits = Limits()
    found = slot.batch(tree, [(2, key, 0) for key in range(8)], cleanup=range(8))
    found += slot.batch(tree, [], cleanup=range(8))
    assert sum(found.values()) == len(found) == combinations


def test_groups_whose_combinations_have_no_room_end_on_disk_when_they_are_cleaned_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEAST_MADE_BYTES", 1 << 14)
    columns = streams([None] * 3)
    slot, tree = Slot(folder, columns), TreeOperator(columns, parse("((A B) C)"), block_rows=512)
    slot.limits = Limits(memory_bytes=1)
    slot.batch(tree, [(0, key, 0) for key in range(8) for _ in range(70)])
    slot.batch(tree, [(1, key, 0) for key in range(8) for _ in range(70)])
    # Room for all that is there, and not for what it makes.
    slot.limits = Limits(memory_bytes=200_000)
    slot.batch(tree, [], cleanup=range(8))
    assert slot.record.disk_rows[3] + slot.record.state_rows[3] == 8 * 70 * 70
    assert slot.record.peak_bytes <= 200_000
    assert {event.kind for event in slot.record.events} <= {"cleaned-up", "reloaded"}
    found = slot.batch(tree, [(2, key, 0) for key in range(8)])
    found += slot.batch(tree, [], cleanup=range(8))
    assert sum(found.values()) == len(found) == 8 * 70 * 70


@pytest.mark.parametrize("per_key", [1, 20, 300])
def test_a_batch_makes_no_more_of_a_lacking_state_than_it_may(
    folder: Path, monkeypatch: pytest.MonkeyPatch, per_key: int
) -> None:
    monkeypatch.setattr(tree_module, "FILL_ROWS", 2000)
    columns = streams([None] * 3)
    slot, count = Slot(folder, columns), 20
    rows = [(s, k, 0) for s in (0, 1) for k in range(count) for _ in range(per_key)]
    slot.batch(TreeOperator(columns, flat("ABC")), rows)
    tree, before = TreeOperator(columns, parse("((A B) C)")), 0
    while before < count * per_key**2:
        slot.batch(tree, [])
        made = slot.made()["A+B"] - before
        # One hash may be more than that, and is then alone.
        assert 0 < made <= max(2000, per_key**2)
        before += made
    assert slot.record.lacking == ()


def test_gaps_that_are_scattered_are_filled_in_one_step(folder: Path) -> None:
    columns = streams([None] * 3)
    rows = [(s, k, 0) for s in (0, 1) for k in range(500)]
    slot, tree = Slot(folder, columns), TreeOperator(columns, parse("((A B) C)"))
    slot.batch(TreeOperator(columns, flat("ABC")), rows)
    odd = group_ranges(range(1, 8, 2), 8)
    there = slot.batch(tree, [])
    assert not there
    whole = slot.made()["A+B"]
    gapped = replace(
        slot.manifest,
        gaps=(odd,),
        streams=(*slot.manifest.streams[:3], cut_layers(slot.manifest.streams[3], outside(odd))),
    )
    slot.manifest = gapped
    assert len(gapped.gaps[0]) == 4
    slot.batch(tree, [])
    assert (slot.made()["A+B"], slot.record.lacking) == (whole, ())
    # What was there, and one more run for all four gaps.
    assert len(slot.manifest.streams[3]) <= len(gapped.streams[3]) + 1


def test_work_is_counted_before_it_is_done() -> None:
    """Three rows of A and two of B with one hash are six combinations; C makes twelve of them."""

    def run(*h: int) -> list[Segment]:
        rows = RunData(
            pa.RecordBatch.from_arrays([pa.array(h, pa.uint32()), pa.array(h)], ["_h", "c0"])
        )
        return [Segment(rows, 0, rows.rows)]

    shape = parse("(((A B) C) D)")
    filling = Filling(tuple(shape.inner()), (HashRange(0, 100), HashRange(200, 300)))
    assert filling.needed == ["A", "B", "C"]
    there = {"A": run(5, 5, 5, 150, 250), "B": run(5, 5, 250), "C": run(5, 5, 250)}
    first = 3 + 2 + 2 + 6 + 12
    whole = filling.portion([there], Effort(1000, 1 << 30), 1.0)
    assert whole.ranges == filling.ranges
    assert whole.share == pytest.approx((first + 3 + 1 + 1) / 1000)
    part = filling.portion([there], Effort(first, 1 << 30), 1.0)
    assert (part.ranges, part.share) == ((HashRange(0, 100), HashRange(200, 250)), 1.0)
    assert {name: rows.rows for name, rows in part.given[0].items()} == {"A": 3, "B": 2, "C": 2}
    none = filling.portion([there], Effort(first, 1 << 30), 0.5)
    assert (none.ranges, none.given) == ((), [])
    # Whether rows are old or new, the work is the same.
    apart = [
        {"A": run(5, 150), "B": run(5, 5, 250), "C": run(250)},
        {"A": run(5, 5, 250), "C": run(5, 5)},
    ]
    same = filling.portion(apart, Effort(first, 1 << 30), 1.0)
    assert (same.ranges, same.share) == (part.ranges, part.share)
    rows = [{name: run.rows for name, run in kind.items() if run.rows} for kind in same.given]
    assert rows == [{"A": 1, "B": 2}, {"A": 2, "C": 2}]


def test_a_shape_of_other_streams_is_refused() -> None:
    with pytest.raises(QueryError, match=r"\(A B\) joins A, B, but the streams are A, B, C"):
        TreeOperator(streams([None] * 3), parse("(A B)"))
