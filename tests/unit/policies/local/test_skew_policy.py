"""Which slots have a budget, and which groups are served where a batch is too much for a slot."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.metrics.record import SlotRecord
from spillway.policies.local.skew import Skew, SlotPace, open_groups
from spillway.slot.limits import Budget

ENDLESS = 1 << 40


def opened(
    expected: list[float],
    waiting: list[int],
    since: list[float] | None = None,
    budget: int | None = 10,
    buffer: float = ENDLESS,
) -> list[int]:
    """The groups that are open."""
    since_s = np.array(since if since is not None else [0.0] * len(expected))
    found = open_groups(np.array(expected), np.array(waiting), since_s, budget, buffer)
    return np.flatnonzero(found).tolist()


def test_a_large_group_does_not_keep_smaller_ones_out_of_the_budget() -> None:
    expected, waiting = np.full(4, 10.0), np.array([90, 80, 5, 0])
    since = np.array([1.0, 2.0, 3.0, 0.0])
    assert open_groups(expected, waiting, since, 130, 1e9).tolist() == [True, False, True, True]


def test_without_a_budget_all_groups_are_open() -> None:
    assert opened([9.0, 99.0], [9, 99], budget=None) == [0, 1]


def test_all_groups_are_open_where_all_their_rows_fit() -> None:
    assert opened([3.0, 3.0, 0.0], [0, 4, 0]) == [0, 1, 2]


def test_groups_that_wait_longest_are_served_first() -> None:
    assert opened([0.0, 0.0, 0.0], [6, 6, 4], [3.0, 2.0, 1.0]) == [1, 2]


def test_a_group_is_served_with_the_rows_it_will_get() -> None:
    assert opened([0.0, 5.0], [6, 4], [1.0, 2.0]) == [0]
    assert opened([0.0, 0.0], [6, 4], [1.0, 2.0]) == [0, 1]


def test_one_waiting_group_is_always_served_however_much_it_has() -> None:
    assert opened([50.0, 1.0], [500, 0], budget=0) == [0]
    assert opened([50.0, 1.0], [500, 3], [2.0, 1.0], budget=0) == [1]


def test_groups_without_waiting_rows_come_after_those_that_wait() -> None:
    assert opened([1.0, 8.0], [0, 2]) == [1]


def test_of_groups_without_waiting_rows_the_small_ones_are_served() -> None:
    assert opened([90.0, 4.0, 5.0], [0, 0, 0]) == [1, 2]


def test_one_that_was_passed_over_is_the_first_of_the_next_batch() -> None:
    assert opened([0.0, 0.0, 1.0], [6, 20, 0], [1.0, 2.0, 0.0]) == [0, 2]
    assert opened([0.0, 0.0, 1.0], [0, 20, 0], [0.0, 2.0, 0.0]) == [1]


@pytest.mark.parametrize(
    ("buffer", "groups"), [(35, [0]), (30, [0]), (29, [0, 1]), (20, [0, 1]), (0, [0, 1, 2, 3])]
)
def test_more_groups_are_served_until_the_rest_fits_the_buffer(
    buffer: float, groups: list[int]
) -> None:
    assert opened([5.0] * 4, [5] * 4, [1.0, 2.0, 3.0, 4.0], budget=0, buffer=buffer) == groups


def test_no_groups_are_no_problem() -> None:
    assert opened([], [], budget=0, buffer=0) == []


def record(slot: int, brought: int, processed: int, busy_s: float, spooled: int = 0) -> SlotRecord:
    none = (0,)
    return SlotRecord(
        5,
        slot,
        "",
        none,
        none,
        0,
        (None,),
        none,
        none,
        none,
        "",
        brought_rows=brought,
        processed_rows=processed,
        spooled_rows=spooled,
        busy_s=busy_s,
    )


def after(skew: Skew, *records: SlotRecord) -> Skew:
    return skew.observed({one.slot: one for one in records})


def test_slots_that_are_alike_have_no_budget() -> None:
    skew = after(Skew(100), *(record(slot, 1000, 1000, 1.0 + slot / 10) for slot in range(4)))
    assert skew.budgets() == {}


def test_a_slot_that_is_slower_than_most_has_half_as_long_again_as_they() -> None:
    slow, fast = record(0, 1000, 1000, 4.0), [record(slot, 1000, 1000, 1.0) for slot in (1, 2)]
    assert after(Skew(100), slow, *fast).budgets() == {0: Budget(375, 100)}


def test_of_two_slots_the_faster_one_is_the_measure() -> None:
    skew = after(Skew(100), record(0, 1000, 1000, 4.0), record(1, 1000, 1000, 1.0))
    assert skew.budgets() == {0: Budget(375, 100)}


def test_a_slot_that_gets_more_rows_than_others_has_a_budget_too() -> None:
    skew = after(Skew(100), record(0, 9000, 9000, 9.0), record(1, 1000, 1000, 1.0))
    assert skew.budgets() == {0: Budget(1500, 100)}


def test_a_target_is_for_every_slot() -> None:
    skew = after(Skew(100, target_s=0.5), *(record(slot, 1000, 1000, 1.0) for slot in range(2)))
    assert skew.budgets() == {0: Budget(500, 100), 1: Budget(500, 100)}


def test_what_waits_counts_until_it_is_gone() -> None:
    fast = record(1, 1000, 1000, 1.0)
    skew = after(Skew(100), record(0, 1000, 1000, 1.0, spooled=800), fast)
    assert skew.budgets() == {0: Budget(1500, 100)}
    assert after(skew, record(0, 1000, 1500, 1.5, spooled=300), fast).budgets() == {}


def test_a_slot_that_is_slow_for_a_moment_is_soon_known_to_be_fast_again() -> None:
    fast, slow = record(0, 1000, 1000, 1.0), record(0, 1000, 300, 1.0, spooled=700)
    other = record(1, 1000, 1000, 1.0)
    skew = after(after(Skew(100), fast, other), slow, other)
    assert skew.paces[0] == SlotPace(650.0, 1000.0)
    assert skew.budgets() == {0: Budget(975, 100)}
    for _ in range(4):
        skew = after(skew, fast, other)
    assert skew.budgets() == {}


def test_a_round_tells_what_waits_and_nothing_of_the_pace() -> None:
    skew = after(Skew(100), record(0, 1000, 1000, 1.0, spooled=800), record(1, 1000, 1000, 1.0))
    ended = skew.observed({0: record(0, 0, 800, 9.0), 1: record(1, 0, 0, 0.1)}, is_round=True)
    assert ended.paces == skew.paces
    assert ended.budgets() == {}


def test_slots_that_have_done_nothing_or_are_gone_have_no_budget() -> None:
    skew = after(Skew(100, target_s=0.1), record(0, 1000, 1000, 1.0), record(1, 0, 0, 0.0))
    assert set(skew.budgets()) == {0}
    assert after(skew, record(1, 0, 0, 0.0)).budgets() == {}
    assert Skew(100).budgets() == {}
