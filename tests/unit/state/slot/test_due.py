"""Rows that expire are due once, wherever they are, and no other row is read for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillway.codec import decode, encode
from spillway.ids import HASH_END, SlotId, Version
from spillway.metrics.groups import NOT_FINAL, GroupTable
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.closing import ClosingOperator
from spillway.operators.grouping.marks import Spans
from spillway.operators.input import StreamColumns
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.run import RunData
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot.due import DueRows
from spillway.state.slot.state import SlotState

GROUPS, WINDOW = 8, 10
STREAM = StreamColumns("s", ("k", "t"), (0, 1), (0,), 1, WINDOW)
COUNTS = ClosingOperator(STREAM, ["k"], [Aggregate("n", "count")], marks=Spans(WINDOW, WINDOW))


class Slot:
    """A slot whose batches a test runs by hand."""

    def __init__(self, folder: Path) -> None:
        tiers = [LocalTier(kind, folder / kind) for kind in ("memory", "disk")]
        self.store = Store(*tiers, open_durable(str(folder / "durable")), OpenRuns(), 0)
        self.manifest: Manifest = empty_manifest(SlotId(0), 1)
        self.version = 0

    def open(self) -> SlotState:
        self.version += 1
        return SlotState(
            self.manifest,
            self.store,
            COUNTS.layouts,
            groups=GROUPS,
            version=Version(self.version),
            attempt=f"a{self.version}",
        )

    def close(self, state: SlotState) -> None:
        self.manifest = state.next_manifest({}, 0)

    def add(self, rows: list[tuple[int, int]], spill: tuple[int, ...] = ()) -> None:
        """Adds (group, time) rows, and spills groups."""
        state, rows = self.open(), sorted(rows)
        h = np.array([group * (HASH_END // GROUPS) + 1 for group, _ in rows], np.uint32)
        times = pa.array([time for _, time in rows], pa.timestamp("us"))
        columns = [pa.array(h), pa.array([group for group, _ in rows]), times]
        batch = pa.RecordBatch.from_arrays(columns, ["_h", "c0", "c1"])
        state.add(0, COUNTS.stored([RunData(batch, 1)], self.version)[0])
        state.parts.spill(spill)
        self.close(state)

    def due(self, watermark: int, spooled: tuple[int, ...] = ()) -> tuple[DueRows, list[int]]:
        """What is due at a watermark, and the groups of its rows; the slot gives the results."""
        state = self.open()
        for group in spooled:
            state.spooler._since_s[group] = 0.0
        due = state.due(0, watermark, ())
        assert due is not None
        groups = [g for rows in due.take() for g in rows.payload.column(0).to_pylist()]
        state.finish(due)
        for group in spooled:
            del state.spooler._since_s[group]
        state.expire(watermark)
        self.close(state)
        return due, groups


def test_window_is_due_when_the_watermark_reaches_its_end_and_never_again(tmp_path) -> None:
    slot = Slot(tmp_path)
    slot.add([(1, 3), (1, 4), (2, 3), (2, 12)])
    assert slot.due(9)[1] == []
    assert slot.due(10)[1] == [1, 2]
    assert slot.due(10)[1] == slot.due(19)[1] == []
    slot.add([(1, 25)])
    assert slot.due(20)[1] == [2]
    assert slot.due(30)[1] == [1]
    assert slot.manifest.runs() == {}


def test_parts_in_memory_and_on_disk_are_due_together(tmp_path) -> None:
    slot = Slot(tmp_path)
    slot.add([(1, 3), (2, 3), (2, 15)], spill=(1, 2))
    slot.add([(1, 4), (5, 4)])
    due, groups = slot.due(10)
    assert (due.rows, groups) == (4, [1, 2, 5])
    # The part on disk still has the window that goes on.
    assert [one.groups for one in slot.manifest.generations] == [(1, 2)]
    assert slot.due(20)[1] == [2]


def test_groups_whose_rows_wait_keep_theirs(tmp_path) -> None:
    slot = Slot(tmp_path)
    slot.add([(1, 3), (2, 3)])
    due, groups = slot.due(10, spooled=(2,))
    assert (groups, due.withheld.sum()) == ([1], 1)
    due, groups = slot.due(10)
    assert (groups, due.withheld.sum()) == ([2], 0)


def test_merging_drops_rows_that_are_gone(tmp_path) -> None:
    slot = Slot(tmp_path)
    slot.add([(1, 3), (1, 15)])
    slot.due(10)
    state = slot.open()
    assert [segment.rows for segment in state.segments(0)] == [2]
    state.parts.spill([1])
    state.parts.seal()
    assert state.parts.part_sizes()[0][1] > 0
    slot.close(state)
    assert slot.manifest.disk_rows == (1,)
    assert slot.due(20)[1] == [1]


@pytest.mark.parametrize("final", [False, True])
def test_time_of_final_results_is_in_the_manifest_if_there_is_one(final: bool) -> None:
    table = GroupTable.empty(GROUPS, 1)
    table.last_insert[3] = 7
    if final:
        table = replace(table, final_us=np.where(np.arange(GROUPS) == 3, -5, NOT_FINAL))
    written = encode(table)
    assert (b"final_us" in written) == final
    assert decode(GroupTable, written).final_us.tolist() == table.final_us.tolist()
