"""A join tree at the sender of a parallel track: what it gives out, what it counts, what it keeps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from one_slot import NAMES, Rows, Slot, streams

from spillway.operators.equi.join import JoinOperator
from spillway.operators.equi.tree import TreeOperator
from spillway.plan.shape import flat, parse
from spillway.slot.orders import Delete, Duplicate, Order, Rejoin

TRACK = Duplicate(7, (0, 2, 3, 5, 6))
SHAPES = [flat(NAMES), parse("((A B) (C D))"), parse("(((A D) B) C)"), parse("((A B D) C)")]


def drawn(rng: np.random.Generator, clock: int, count: int = 30) -> Rows:
    columns = rng.integers(0, 4, count), rng.integers(0, 9, count), rng.integers(0, 10, count)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(stream, key, clock * 10 + time) for stream, key, time in rows]


def orders(clock: int, end: Order) -> list[Order]:
    """A track from the third batch on, until the tenth."""
    return [TRACK] if 3 <= clock < 10 else [end] if clock == 10 else []


@pytest.mark.parametrize(
    "end", [Rejoin(7), Delete(7, TRACK.groups)], ids=lambda one: type(one).__name__
)
def test_every_shape_gives_on_a_track_what_the_n_way_join_gives(tmp_path: Path, end: Order) -> None:
    rng, columns = np.random.default_rng(8), streams([60, 40, 80, 60])
    operators = [JoinOperator(columns), *(TreeOperator(columns, shape) for shape in SHAPES)]
    slots = [Slot(tmp_path / str(at), columns) for at in range(len(operators))]
    outputs: Counter = Counter()
    for clock in range(14):
        rows = drawn(rng, clock)
        found = [
            slot.batch(operator, rows, orders=orders(clock, end))
            for slot, operator in zip(slots, operators, strict=True)
        ]
        assert found.count(found[0]) == len(found)
        assert {slot.record.rows_out for slot in slots} == {found[0].total()}
        # What is not given out is not counted.
        outputs += found[0]
        if clock < 10:
            assert {slot.manifest.groups.outputs.sum() for slot in slots} == {outputs.total()}
        for slot in slots:
            slot.watermark = clock * 10 - 20
        assert all(slot.record.lacking == () for slot in slots)
    assert found[0].total() > 0


def test_one_new_row_of_each_stream_is_no_result_and_is_kept_for_old_rows(tmp_path: Path) -> None:
    columns = streams([100] * 3)
    slot, tree = Slot(tmp_path, columns), TreeOperator(columns, parse("((A B) C)"))
    everything = Duplicate(7, tuple(range(8)))
    slot.batch(tree, [(0, 1, 0)])
    assert slot.batch(tree, [(1, 1, 1), (2, 1, 1)], orders=[everything]) == Counter([(0, 1, 2)])
    # Of the second A there is a combination with the B that is new, and none with an old C.
    assert slot.batch(tree, [(0, 1, 2)], orders=[everything]) == Counter()
    assert slot.record.state_rows == (2, 1, 1, 2)
    assert slot.manifest.groups.rows[3].sum() == 1
    assert slot.manifest.groups.outputs.sum() == 1
    assert slot.batch(tree, [(2, 1, 3)], orders=[everything]) == Counter([(0, 1, 4)])
    # From here on the slot answers for all rows, those of the last batch included.
    assert slot.batch(tree, [(2, 1, 4)], orders=[Rejoin(7)]) == Counter([(0, 1, 5), (3, 1, 5)])
    assert (slot.made(), slot.manifest.gaps, slot.manifest.track) == ({"A+B": 2}, ((),), None)
    assert slot.manifest.groups.rows[3].sum() == 2


def test_old_and_new_rows_of_a_track_are_found_after_another_plan(tmp_path: Path) -> None:
    columns, everything = streams([100] * 3), Duplicate(7, tuple(range(8)))
    slot = Slot(tmp_path, columns)
    first, second = (TreeOperator(columns, parse(text)) for text in ("((A B) C)", "((A C) B)"))
    slot.batch(first, [(0, key, 0) for key in range(20)])
    slot.batch(first, [(2, key, 1) for key in range(20)], orders=[everything])
    slot.batch(first, [(0, key, 2) for key in range(20)], orders=[everything])
    assert slot.batch(second, [], orders=[everything]) == Counter()
    assert (slot.made(), slot.record.lacking) == ({"A+C": 40}, ())
    assert slot.manifest.groups.rows[3].sum() == 20
    found = slot.batch(second, [(1, key, 3) for key in range(20)], orders=[everything])
    assert found == Counter({(key, 60 + key, 20 + key): 1 for key in range(20)})
    assert slot.manifest.gaps == ((),)
