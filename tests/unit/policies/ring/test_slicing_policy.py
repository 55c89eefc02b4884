"""Where slices to come go, when a ring changes its length, and which distribution is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.policies.ring.model import HopCosts, ProbeStep, Source, utilisation
from spillway.policies.ring.slicing import (
    ATR,
    CTR,
    PSP,
    DistributionTerms,
    RingRules,
    distribution,
    emptied,
    offers,
    resize,
    smoothed,
)

COSTS = HopCosts(send_s=10e-6, hop_s=70e-6)


def join(pair_s: float = 30e-6, rate: float = 50.0, rows: float = 500.0) -> tuple[Source, ...]:
    step = ProbeStep("", rows, 0.0002, pair_s)
    return tuple(
        Source(name, rate, tuple(replace(step, stream=other) for other in "abc" if other != name))
        for name in "abc"
    )


def test_slices_to_come_are_routed_to_the_slot_with_the_least_work() -> None:
    found = smoothed((0, 1, 0, 1), (9.0, 2.0, 0.0, 0.0), [2, 3], 2.0, 2)
    assert found is not None
    assert found.to == {2: 1}
    assert found.reason == "1 future slices, 2 rows each: slots will have 6 to 9 work each"


def test_nothing_is_rerouted_where_slots_are_even() -> None:
    assert smoothed((0, 1, 0, 1), (5.0, 5.0, 0.0, 0.0), [2, 3], 5.0, 2) is None


def test_slice_with_rows_stays() -> None:
    assert smoothed((0, 0, 0), (9.0, 9.0, 9.0), [0, 1, 2], 9.0, 2) is None


def test_slice_takes_the_place_of_the_one_that_expires() -> None:
    found = smoothed((0, 1, 1, 1), (4.0, 4.0, 0.0, 0.0), [2, 3], 4.0, 2, behind=[0, 1])
    assert found is not None
    assert found.to == {2: 0}


def test_slow_slot_gets_fewer_slices() -> None:
    found = smoothed((0, 1, 0, 1, 0, 1), (0.0,) * 6, range(6), 1.0, 2, slowness=(3.0, 1.0))
    assert found is not None
    taken = [found.to.get(group, slot) for group, slot in enumerate((0, 1, 0, 1, 0, 1))]
    assert taken.count(1) > taken.count(0)


def test_passive_adjustment_fills_new_slots_and_empties_those_that_go() -> None:
    table, rows = (0, 1, 2, 0, 1, 2), (4.0, 4.0, 4.0, 0.0, 0.0, 0.0)
    fewer = smoothed(table, rows, [3, 4, 5], 4.0, 2)
    assert fewer is not None
    assert set(fewer.to) == {5}
    assert not emptied(table, 2)
    assert emptied((0, 1, 1, 0, 1, 0), 2)
    more = smoothed((0, 1, 0, 1), (4.0, 4.0, 0.0, 0.0), [2, 3], 4.0, 4)
    assert more is not None
    assert more.to == {2: 2, 3: 3}


def test_ring_that_falls_behind_is_made_longer_at_once() -> None:
    doubled = join(rate=100.0, rows=1000.0)
    found = resize(doubled, COSTS, 9, RingRules(most=19))
    assert found is not None
    assert (found.slots, found.aggressive) == (16, True)
    assert found.reason == "9 slots are 120% busy, the best length is 16"
    assert utilisation(doubled, COSTS, found.slots) <= 0.8


@pytest.mark.parametrize(
    ("adjustment", "aggressive"), [("passive", False), ("aggressive", True), ("auto", True)]
)
def test_adjustment_says_whether_slices_move(adjustment: str, aggressive: bool) -> None:
    doubled = join(rate=100.0, rows=1000.0)
    found = resize(doubled, COSTS, 9, RingRules(19, adjustment=adjustment))
    assert found is not None
    assert found.aggressive is aggressive


def test_length_near_the_best_one_is_kept() -> None:
    assert resize(join(), COSTS, 9, RingRules(19)) is None
    assert resize(join(), COSTS, 10, RingRules(19)) is None


def test_ring_that_is_far_too_long_is_made_shorter() -> None:
    found = resize(join(), COSTS, 19, RingRules(19))
    assert found is not None
    assert (found.slots, found.aggressive) == (9, False)


def test_expensive_predicate_takes_the_ring() -> None:
    best, reason = distribution(join(), COSTS, 12, window_s=10.0)
    assert best.distribution == PSP
    assert reason.startswith("psp: psp 2.17 ms, atr ")


def test_cheap_predicate_takes_one_hop() -> None:
    best, _ = distribution(join(pair_s=10e-9), HopCosts(10e-6, 5e-3), 12, window_s=10.0)
    assert best.distribution == ATR


def test_copies_cost_rows() -> None:
    psp, atr, ctr = offers(join(), COSTS, 12, window_s=10.0)
    assert (psp.rows, ctr.rows) == (1500, 3000)
    # Two windows of rows are copied at the ends of every segment, which is three windows long.
    assert atr.rows == pytest.approx(500 + 2 * (1 + 2 / 3) * 500)
    assert [one.distribution for one in offers(join(), COSTS, 3, 10.0)] == [PSP, ATR]
    assert ctr.distribution == CTR


def test_offers_are_of_the_terms_that_a_query_has() -> None:
    _, atr, ctr = offers(join(), COSTS, 12, 10.0, DistributionTerms(segment_windows=2, copies=3))
    assert (atr.rows, ctr.rows) == (500 + 2 * 2 * 500, 4500)
    none = offers(join(), COSTS, 12, 10.0, DistributionTerms(copies=None))
    assert [one.distribution for one in none] == [PSP, ATR]


def test_stream_with_the_most_rows_is_the_one_to_be_cut() -> None:
    slow, fast, _ = join()
    _, atr = offers([slow, replace(fast, rate=70.0)], COSTS, 3, 10.0)
    assert atr.master == "b"


def test_slots_that_are_visited_at_once_are_a_hop_for_each_step() -> None:
    costs, at_once = HopCosts(0.0, 0.5), DistributionTerms(at_once=True)
    psp, atr, _ = offers(join(pair_s=0.0), costs, 12, 10.0, at_once)
    assert (psp.response_s, atr.response_s) == (1.0, 0.5)
    two = [replace(one, steps=one.steps[:1]) for one in join(pair_s=1e-6)[:2]]
    best, _ = distribution(two, costs, 12, 10.0, at_once)
    # With two streams nothing is gained by copies.
    assert (best.distribution, best.slots) == (PSP, 12)


def test_what_is_chosen_for_good_has_room_for_higher_rates() -> None:
    costs, at_once = HopCosts(0.0, 0.5), DistributionTerms(at_once=True)
    # One slot has a fifth of its time to do, or half of it: three times that is more than it has.
    taken = [
        distribution(join(pair_s=pair_s), costs, 12, 10.0, at_once)[0].distribution
        for pair_s in (2.4e-6, 6e-6)
    ]
    assert taken == [ATR, PSP]


def test_where_nothing_keeps_up_the_least_busy_is_taken() -> None:
    best, reason = distribution(join(rate=5000.0), COSTS, 4, window_s=10.0)
    assert best.utilisation > 0.9
    assert reason.startswith("no distribution keeps up; ")
