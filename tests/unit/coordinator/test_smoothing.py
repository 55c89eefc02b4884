"""Slices to come are routed to the slots that have the least to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.coordinator.batch.committed import initial
from spillway.coordinator.decisions.adaptation import begin, rescale
from spillway.coordinator.decisions.smoothing import smooth
from spillway.metrics.record import SlotRecord
from spillway.policies.cluster.decision import Move
from spillway.routing.routing import Routing
from spillway.routing.slices import Slicing, interleaved

GROUPS, SLOTS = 32, 2
SLICING = Slicing((10, 10), GROUPS)


def record(slot: int, rows: int, busy_s: float = 1.0, disk: int = 0) -> SlotRecord:
    return SlotRecord(
        batch=3,
        slot=slot,
        manifest="m",
        rows_in=(5, 5),
        rows_late=(0, 0),
        rows_out=0,
        max_times=(100, 100),
        state_rows=(rows, rows),
        state_bytes=(8, 8),
        layers=(1, 1),
        worker="here/1/1",
        busy_s=busy_s,
        disk_rows=(disk, disk),
    )


def state_at(*times: int | None):
    routing = Routing(0, SLOTS, interleaved(GROUPS, SLOTS))
    return replace(initial(routing, 2), batch=3, max_times=times)


def test_slices_to_come_go_to_the_slot_with_fewer_rows() -> None:
    state = state_at(100, 100)
    records = {0: record(0, 300), 1: record(1, 100)}
    changed = smooth(state, records, SLICING).routing
    ahead = [group % GROUPS for group in range(11, 19)]
    before, after = (
        [table[group] for group in ahead] for table in (state.routing.table, changed.table)
    )
    assert before.count(1) == 4
    assert after[:6] == [1] * 6
    behind = set(range(GROUPS)) - set(ahead)
    assert all(changed.table[group] == state.routing.table[group] for group in behind)


def test_even_slots_stay_as_they_are() -> None:
    state = state_at(100, 100)
    records = {0: record(0, 200), 1: record(1, 200)}
    assert smooth(state, records, SLICING) is state


def test_slow_slot_counts_as_fuller() -> None:
    state = state_at(100, 100)
    records = {0: record(0, 200, busy_s=3.0), 1: record(1, 200, busy_s=1.0)}
    counts = smooth(state, records, SLICING).routing.counts()
    assert counts[1] > counts[0]


def test_rows_on_disk_are_work_as_well() -> None:
    state = state_at(100, 100)
    records = {0: record(0, 50, disk=250), 1: record(1, 100)}
    counts = smooth(state, records, SLICING).routing.counts()
    assert counts[1] > counts[0]
    assert smooth(state, {0: record(0, 50, disk=150), 1: record(1, 200)}, SLICING) is state


def test_slot_whose_rows_are_on_disk_is_not_slow() -> None:
    state = state_at(100, 100)
    records = {0: record(0, 20, busy_s=2.0, disk=180), 1: record(1, 200, busy_s=1.9)}
    assert smooth(state, records, SLICING) is state


@pytest.mark.parametrize(
    ("times", "slicing"),
    [((100, None), SLICING), ((100, 100), Slicing((10, 10), GROUPS, copies=2))],
)
def test_nothing_is_placed_before_all_streams_came_or_where_there_are_copies(
    times: tuple[int | None, ...], slicing: Slicing
) -> None:
    state = state_at(*times)
    assert smooth(state, {0: record(0, 300), 1: record(1, 100)}, slicing) is state


def test_streams_that_are_apart_share_few_slices_to_come() -> None:
    state = state_at(100, 140)
    records = {0: record(0, 300), 1: record(1, 100)}
    changed = smooth(state, records, SLICING).routing
    moved = {g for g in range(GROUPS) if changed.table[g] != state.routing.table[g]}
    assert moved <= set(range(15, 19))


@pytest.mark.parametrize("times", [(100, 100), (100, 230), (100, None)])
def test_new_slots_of_a_passive_change_build_slices_whatever_streams_have_come(
    times: tuple[int | None, ...],
) -> None:
    state = rescale(state_at(*times), 4, passive=True)
    records = {0: record(0, 300), 1: record(1, 300)}
    changed = smooth(state, records, SLICING).routing
    assert min(changed.counts()[2:]) >= GROUPS // 4
    assert min(changed.counts()) > 0
    if times == (100, 100):
        # They have the least to do, so all that comes next is theirs.
        assert {changed.table[group % GROUPS] for group in range(11, 19)} == {2, 3}


def test_slot_without_groups_gets_its_share() -> None:
    """Such as one that was new when the query died, before the log knew of it."""
    state = replace(rescale(state_at(100, None), 3), scaling=None)
    assert smooth(state, {0: record(0, 9), 1: record(1, 9)}, SLICING).routing.counts()[2] == 10


def test_change_by_moves_leaves_slices_to_the_moves() -> None:
    records = {0: record(0, 300), 1: record(1, 300)}
    assert smooth(rescale(state_at(100, 100), 4), records, SLICING).routing.counts()[2:] == (0, 0)


def test_slots_that_are_to_go_build_nothing_from_the_next_batch_on() -> None:
    state = rescale(replace(rescale(state_at(100, 100), 4), scaling=None), 1, passive=True)
    records = {slot: record(slot, 100) for slot in range(4)}
    changed = smooth(state, records, SLICING)
    assert changed.routing.counts() == (GROUPS, 0, 0, 0)
    assert changed.routing.slots == 4
    assert changed.manifests == state.manifests


@pytest.mark.parametrize("times", [(100, None), (100, 180)])
def test_slots_go_whatever_streams_have_come(times: tuple[int | None, ...]) -> None:
    state = rescale(state_at(*times), 1, passive=True)
    changed = smooth(state, {0: record(0, 9), 1: record(1, 9)}, SLICING)
    assert changed.routing.counts() == (GROUPS, 0)


def test_passive_change_waits_for_moves_to_end() -> None:
    moving = begin(state_at(100, 100), [Move(0, 1, 10, "a test")])
    state = rescale(moving, 1, passive=True)
    assert smooth(state, {0: record(0, 9), 1: record(1, 9)}, SLICING) is state
