"""Fates: what becomes of the new rows of each group, and of rows that are inside already."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillway.ids import HASH_END, SlotId, Version
from spillway.operators.equi.join import JoinOperator
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.dedup import DedupOperator
from spillway.operators.grouping.groupby import GroupByOperator
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.slot.admission import Admission, Fate, Fates, admission_of
from spillway.slot.orders import Order, Park, Shadow
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.runs.durable import open_durable
from spillway.state.runs.run import RunData
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot.state import SlotState

GROUPS = 8
STEP = HASH_END // GROUPS
STREAM = StreamColumns("a", ("k", "t"), (0, 1), (0,), 1, 1000)
JOIN = JoinOperator([STREAM, StreamColumns("b", ("k", "t"), (0, 1), (0,), 1, 1000)])
DEDUP = DedupOperator(STREAM, tumbling=True)
COUNTS = GroupByOperator(STREAM, ["k"], [Aggregate("n", "count")])


def rows(groups: list[int]) -> RunData:
    """One row for each of the groups, which ascend."""
    h = np.array([group * STEP + 1 for group in groups], np.uint32)
    return RunData(pa.RecordBatch.from_arrays([pa.array(h), pa.array(groups)], ["_h", "c0"]))


def groups_in(delta: RunData) -> list[int]:
    return delta.batch.column(1).to_pylist()


class At:
    """A slot at the start of a batch."""

    def __init__(self, folder: Path, operator: Operator) -> None:
        self.operator = operator
        tiers = [LocalTier(kind, folder / kind) for kind in ("memory", "disk")]
        self.state = SlotState(
            empty_manifest(SlotId(0), len(operator.layouts)),
            Store(*tiers, open_durable(str(folder / "durable")), OpenRuns(), 0),
            operator.layouts,
            groups=GROUPS,
            version=Version(0),
            attempt="t",
        )

    def admission(self, orders: list[Order], closed: list[int]) -> Admission:
        mask = np.zeros(GROUPS, np.bool_)
        mask[closed] = True
        return admission_of(self.state, self.operator, orders, mask)

    def spill(self, groups: list[int]) -> None:
        """Gives groups a part on disk."""
        self.state.add(0, self.operator.stored([rows(groups)], 0)[0])
        self.state.parts.spill(groups)
        self.state.parts.seal()


def fates(found: Fates) -> str:
    """The first letters of the fates, with a point for those that are processed."""
    return "".join(".KHSTD"[one] for one in found.of_group)


def test_rows_are_cut_once_and_none_is_lost_or_doubled() -> None:
    found = Fates.of(GROUPS, {Fate.PARK: [1, 2], Fate.SPOOL: [2, 5], Fate.TRACK: [7]})
    cut = found.cut([rows(list(range(GROUPS))), rows([2, 3, 7])])
    assert {fate: [groups_in(one) for one in some] for fate, some in cut.items()} == {
        Fate.PROCESS: [[0, 3, 4, 6], [3]],
        Fate.PARK: [[1, 2], [2]],
        Fate.SPOOL: [[5], []],
        Fate.TRACK: [[7], [7]],
    }


def test_rows_of_one_fate_are_not_copied() -> None:
    delta = rows([1, 2])
    [(fate, [same])] = Fates.of(GROUPS, {}).cut([delta]).items()
    assert (fate, same is delta) == (Fate.PROCESS, True)


def test_group_that_is_parked_and_closed_is_parked(tmp_path: Path) -> None:
    found = At(tmp_path, JOIN).admission([Park(1, (1, 2)), Park(2, (4,))], closed=[2, 3])
    assert fates(found.arriving) == ".KKSK..."
    assert [move for move, _ in found.parks] == [1, 2]


def test_rows_that_another_slot_has_are_not_brought_here(tmp_path: Path) -> None:
    found = At(tmp_path, DEDUP).admission([Park(1, (1,)), Shadow(2, (4,))], closed=[3])
    assert fates(found.arriving) == ".K.SH..."
    assert found.brought([rows([0, 1, 3, 4, 7])]).tolist() == [1, 0, 0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("operator", [JOIN, COUNTS])
def test_only_an_operator_that_can_shadow_does(tmp_path: Path, operator: Operator) -> None:
    found = At(tmp_path, operator).admission([Shadow(2, (4,))], closed=[])
    assert fates(found.arriving) == "." * GROUPS


def test_tracked_group_that_is_closed_waits(tmp_path: Path) -> None:
    slot = At(tmp_path, JOIN)
    slot.state.begin_track(1, [2, 3])
    found = slot.admission([], closed=[3])
    assert fates(found.arriving) == "..TS...."
    assert fates(found.admitted) == "..TT...."


def test_staged_rows_of_a_closed_group_with_a_part_on_disk_are_deferred(tmp_path: Path) -> None:
    slot = At(tmp_path, COUNTS)
    slot.spill([2, 3])
    found = slot.admission([], closed=[3])
    assert fates(found.arriving) == "...S...."
    assert fates(found.admitted) == "..DD...."


def test_what_leaves_memory_in_a_batch_changes_no_fate_of_it(tmp_path: Path) -> None:
    slot = At(tmp_path, COUNTS)
    slot.state.add(0, COUNTS.stored([rows([2, 3])], 0)[0])
    slot.state.parts.spill([2])
    assert fates(slot.admission([], closed=[]).admitted) == "." * GROUPS
    slot.state.parts.seal()
    assert fates(slot.admission([], closed=[]).admitted) == "..D....."
