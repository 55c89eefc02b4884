"""What groups have decided: every row once, whatever step comes first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.codec import decode, encode
from spillway.metrics.groups import UNDECIDED, GroupTable
from spillway.routing.routing import HashRange
from spillway.state.layout.layers import Layer
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import WHOLE, Segment
from spillway.state.runs.run import Run, RunData, Slice
from spillway.state.slot.decided import Decided

GROUPS, WINDOW = 4, 10


@dataclass
class Runs:
    """Runs in memory, in place of those of a slot."""

    groups: int = GROUPS
    layouts: tuple[StreamLayout, ...] = (StreamLayout("a", 0, 2 * WINDOW, decided_after_us=WINDOW),)
    known: dict[str, RunData] = field(default_factory=dict)

    def segment(self, _: int, piece: Slice) -> Segment:
        data = self.known[piece.run.name]
        return Segment(data, *data.rows_in(piece.range), piece.range)

    def layer(self, *rows: tuple[int, int], range_: HashRange = WHOLE) -> Layer:
        """A run of rows (group, time)."""
        found = sorted(rows)
        h = np.array([group << 30 for group, _ in found], np.uint32)
        times = pa.array([time for _, time in found], pa.timestamp("us"))
        batch = pa.RecordBatch.from_arrays([pa.array(h), times], names=["_h", "c0"])
        data, name = RunData(batch, 0), f"run {len(self.known)}"
        self.known[name] = data
        span = [time for _, time in rows]
        run = Run(name, data.rows, 1, "", min(span), max(span))
        return Layer(0, (Slice(run, range_),))


def times(decided: Decided, layers: list[Layer], watermark: int, *kept: int) -> list[int]:
    """The times of the rows that a step decides."""
    found = [
        segment.data.times[segment.begin : segment.end].tolist()
        for due in decided.due(watermark, kept)
        for segment in decided.rows(0, layers, due, watermark)
    ]
    decided.advance(watermark, kept)
    return sorted(time for some in found for time in some)


def fresh(runs: Any) -> Decided:
    return Decided(runs, GroupTable.empty(GROUPS, 1))


def test_each_row_is_decided_by_the_step_that_passes_its_window() -> None:
    runs = Runs()
    layers = [runs.layer((0, 0), (1, 3), (3, 9)), runs.layer((0, 2), (2, 30))]
    decided = fresh(runs)
    assert times(decided, layers, 9) == []
    assert times(decided, layers, 10) == [0]
    assert times(decided, layers, 13) == [2, 3]
    assert times(decided, layers, 13) == []
    assert times(decided, layers, 100) == [9, 30]


@pytest.mark.parametrize("steps", [(100,), (11, 12, 13, 100), (5, 50, 100), (40, 30, 100)])
def test_steps_of_any_size_decide_every_row_once(steps: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    rows = list(
        zip(rng.integers(0, GROUPS, 60).tolist(), rng.integers(0, 80, 60).tolist(), strict=True)
    )
    runs = Runs()
    layers, decided = [runs.layer(*rows[:20]), runs.layer(*rows[20:])], fresh(runs)
    found = [time for step in steps for time in times(decided, layers, step)]
    assert sorted(found) == sorted(time for _, time in rows)


def test_group_that_is_left_out_decides_later() -> None:
    runs = Runs()
    layers, decided = [runs.layer((0, 0), (1, 1), (2, 2))], fresh(runs)
    assert times(decided, layers, 50, 1) == [0, 2]
    assert decided.left_out
    assert times(decided, layers, 51) == [1]
    assert not decided.left_out


def test_only_rows_inside_a_slice_count() -> None:
    runs = Runs()
    cut = runs.layer((0, 0), (1, 1), (2, 2), range_=HashRange(1 << 30, 2 << 30))
    assert times(fresh(runs), [cut], 50) == [1]


def test_group_takes_along_what_it_has_decided() -> None:
    runs = Runs()
    layers, here = [runs.layer((0, 0), (1, 1))], fresh(runs)
    table = GroupTable.empty(GROUPS, 1)
    told = replace(table, decided_us=np.array([0, 20, 0, 0]), last_insert=np.array([-1, 3, -1, -1]))
    here.take_over(told)
    assert times(here, layers, 50) == [0]


def test_table_keeps_the_number_only_of_groups_with_rows() -> None:
    decided = fresh(Runs())
    decided.advance(7, ())
    held = np.array([True, False, False, True])
    table = replace(GroupTable.empty(GROUPS, 1), disk_rows=held.astype(np.int64))
    found = decided.in_table(table, [2]).decided_us
    assert found.tolist() == [7, UNDECIDED, 7, 7]
    assert decided.least(table, ()) == 7
    assert decided.least(table, (0, 3)) is None


def test_written_table_says_nothing_where_nothing_is_decided() -> None:
    table = replace(GroupTable.empty(GROUPS, 1), last_insert=np.array([1, -1, 2, -1]))
    assert b"decided_us" not in encode(table)
    again = decode(GroupTable, encode(table))
    assert again.decided_us.tolist() == [UNDECIDED] * GROUPS
    some = replace(table, decided_us=np.array([5, UNDECIDED, -3, UNDECIDED]))
    assert decode(GroupTable, encode(some)).decided_us.tolist() == [5, UNDECIDED, -3, UNDECIDED]
    assert some.only([0]).merged(table.only([2])).decided_us.tolist() == [5, *[UNDECIDED] * 3]
