"""A task knows its slot from its rows, whatever number Spark gives the task."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spillway.operators.input import MARKER, null_number
from spillway.routing.routing import Routing
from spillway.slot.identity import COPY, find_slot, find_visited

ROUTING = Routing.even(8, 4)
#: Hashes of group 7, as Spark has them (signed).
LAST = -1


def batch(*rows: tuple[int, int]) -> pa.RecordBatch:
    streams, hashes = ([row[at] for row in rows] for at in (0, 1))
    columns = [pa.array(streams, pa.int16()), pa.array(hashes, pa.int32())]
    return pa.RecordBatch.from_arrays(columns, names=["_stream", "_h"])


def told(rows) -> list[int]:
    return [stream for one in rows for stream in one.column(0).to_pylist()]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_any_row_tells_the_slot(order) -> None:
    rows = [(0, LAST), (MARKER, 3)]
    slot, mine = find_slot([batch(*(rows[at] for at in order))], ROUTING, {})
    assert slot == 3
    assert told(mine) == [0]


def test_slot_without_rows_has_its_marker() -> None:
    slot, mine = find_slot([batch(), batch((MARKER, 2))], ROUTING, {})
    assert (slot, told(mine)) == (2, [])


def test_copy_belongs_to_the_other_slot_and_becomes_a_row_of_its_stream() -> None:
    slot, mine = find_slot([batch((1 + COPY, LAST)), batch((0 + COPY, LAST))], ROUTING, {7: 1})
    assert (slot, told(mine)) == (1, [1, 0])


def test_row_with_a_null_tells_the_slot_that_counts_it() -> None:
    slot, mine = find_slot([batch((null_number(0), 0))], ROUTING, {})
    assert (slot, told(mine)) == (0, [null_number(0)])


def test_nothing_at_all_is_no_slot() -> None:
    assert find_slot([batch()], ROUTING, {}) == (None, ())
    assert find_visited([], first_visit=True) == (None, ())


def test_visiting_rows_name_their_slot() -> None:
    rows = batch((MARKER, 2), (1, 5))
    columns = [pa.array([2, 2], pa.int32()), *rows.columns]
    came = pa.RecordBatch.from_arrays(columns, names=["_slot", *rows.schema.names])
    slot, mine = find_visited([came], first_visit=True)
    assert (slot, told(mine)) == (2, [1])
    slot, later = find_visited([came], first_visit=False)
    assert (slot, list(later)) == (2, [came])
