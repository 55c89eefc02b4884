"""The flow of rows, against the same written plainly in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from spillway_lab.simulator.cluster import flow

SLOTS, GROUPS = 5, 40


@pytest.fixture
def rows():
    rng = np.random.default_rng(7)
    share = rng.random(GROUPS)
    return flow.Groups(
        slot=rng.integers(0, SLOTS, GROUPS),
        share=share / share.sum(),
        held=rng.random(GROUPS) * 50,
        stalled=rng.random(GROUPS) < 0.2,
        on_disk=rng.random(GROUPS) < 0.3,
        spooled=np.ones(GROUPS),
        spool_moment=np.zeros(GROUPS),
        done=np.zeros(GROUPS),
        state_rows=np.full(GROUPS, 5.0),
    )


COSTS = {"row_cost": np.full(SLOTS, 2.0), "spool_cost": np.arange(1.0, SLOTS + 1)}
TIME = np.full(SLOTS, 300.0)


def by_slot(rows, values):
    return np.bincount(rows.slot, weights=values, minlength=SLOTS)


def test_what_waits_for_a_slot_is_the_sum_over_its_groups(rows):
    table = flow.waiting(rows, *COSTS.values())
    cost = np.where(rows.on_disk, COSTS["spool_cost"][rows.slot], 2.0)
    served = ~rows.stalled
    for at, value in (
        (flow.ROWS, rows.held * served),
        (flow.WORK, rows.held * served * cost),
        (flow.STUCK, rows.held * ~served),
        (flow.MORE_ROWS, rows.share * served),
        (flow.MORE_WORK, rows.share * served * cost),
        (flow.MORE_STUCK, rows.share * ~served),
    ):
        assert np.allclose(table[at], by_slot(rows, value))


def left_plainly(table, given):
    rows = table[flow.ROWS] + given * table[flow.MORE_ROWS]
    work = table[flow.WORK] + given * table[flow.MORE_WORK]
    left = rows * np.maximum(0, 1 - TIME / np.maximum(work, 1e-300))
    return left, table[flow.STUCK] + given * table[flow.MORE_STUCK]


@pytest.mark.parametrize("room", [350.0, 500.0])
def test_sources_give_what_the_shared_buffer_has_room_for_and_no_more(rows, room):
    table = flow.waiting(rows, *COSTS.values())
    given = flow.admitted(table, 1e9, TIME, 20.0, room, True)
    left, stuck = left_plainly(table, given)
    assert given > 0
    assert np.maximum(left - 20, 0).sum() + stuck.sum() == pytest.approx(room)


@pytest.mark.parametrize("room", [100.0, 400.0])
def test_first_full_queue_of_an_exchange_stops_the_sources(rows, room):
    table = flow.waiting(rows, *COSTS.values())
    given = flow.admitted(table, 1e9, TIME, 20.0, room, False)
    left, stuck = left_plainly(table, given)
    assert given > 0
    assert (left + stuck).max() == pytest.approx(room + 20)


def test_sources_that_have_little_give_all_of_it(rows):
    table = flow.waiting(rows, *COSTS.values())
    assert flow.admitted(table, 3.0, TIME, 20.0, 1e6, True) == 3.0


def test_sources_give_nothing_where_there_is_no_room(rows):
    table = flow.waiting(rows, *COSTS.values())
    assert flow.admitted(table, 100.0, TIME, 0.0, 0.0, True) == pytest.approx(0, abs=1e-9)


def test_served_rows_are_processed_or_written_and_the_others_wait(rows):
    part = np.linspace(0, 1, SLOTS)
    spooled, done = rows.spooled, rows.done
    before = rows.held.copy()
    processed, written = flow.serve(rows, part, 100.0, 3.0, 20.0)
    there = before + 100 * rows.share
    moved = np.where(rows.stalled, 0, there * part[rows.slot])
    assert np.allclose(rows.held, there - moved)
    assert np.allclose(done, np.where(rows.on_disk, 0, moved))
    assert np.allclose(spooled - 1, np.where(rows.on_disk, moved, 0))
    assert np.allclose(rows.spool_moment, (spooled - 1) * 3.0)
    assert np.allclose(rows.state_rows, np.minimum(20, 5 + done))
    assert np.allclose(processed, by_slot(rows, done))
    assert np.allclose(written, by_slot(rows, spooled - 1))
