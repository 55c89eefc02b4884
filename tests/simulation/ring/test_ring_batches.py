"""A join in micro-batches: what is true of every run, and how long batches take where that is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway_lab.simulator.ring.batches import makespan
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.simulation import simulate_ring
from tier import examples

#: Work is comparing pairs, and all of it is pairs: a row costs nothing on its way.
PAIRS = RingScenario(
    seconds=24.0,
    rate=32.0,
    window_s=10.0,
    found=2.0,
    groups=64,
    slots=1,
    pair_s=10e-6,
    send_s=0.0,
    hop_s=0.0,
    insert_s=0.0,
    purge_s=0.0,
    batch_s=2.0,
)
FULL = slice(6, None)


def took(scenario: RingScenario) -> np.ndarray:
    found = simulate_ring(scenario)
    assert found.violations == ()
    return np.array(found.series["response_s"])[FULL]


def scenarios() -> st.SearchStrategy[RingScenario]:
    return st.builds(
        PAIRS.changed,
        slots=st.integers(2, 5),
        streams=st.integers(2, 4),
        found=st.sampled_from([0.0, 0.3, 2.0]),
        distribution=st.sampled_from(["psp", "atr", "ctr"]),
        interval_s=st.sampled_from([3.0, 9.0, 20.0]),
        send_s=st.sampled_from([0.0, 1e-4]),
        batch_s=st.sampled_from([0.7, 2.0, 30.0]),
        cores=st.sampled_from([None, 1, 2]),
        rate=st.just(12.0),
        seed=st.integers(0, 99),
    )


@given(scenarios())
@settings(max_examples=examples(40), deadline=None)
def test_every_row_meets_its_whole_window_in_every_distribution(scenario: RingScenario) -> None:
    found = simulate_ring(scenario)
    assert found.violations == ()
    assert len(found.series["second"]) == int(np.ceil(24.0 / (scenario.batch_s or 1.0)))
    assert found.totals["pairs"] == sum(found.series["pairs"])


def test_a_batch_takes_its_fixed_time_and_its_pairs() -> None:
    found = simulate_ring(PAIRS.changed(batch_fixed_s=0.4))
    pairs = np.array(found.series["pairs"])
    assert np.array(found.series["response_s"]) == pytest.approx(0.4 + pairs * 10e-6)
    # Each of 64 rows of three streams meets 320 of the next stream, and 2 of them 320 of the third.
    assert pairs[FULL].mean() == pytest.approx(3 * 64 * 320 * (1 + 2.0), rel=0.1)
    assert found.totals["response_s"] == pytest.approx(0.4 + pairs[FULL].mean() * 10e-6, rel=0.3)


def test_slots_share_the_pairs_of_a_batch() -> None:
    alone = np.median(took(PAIRS))
    assert np.median(took(PAIRS.changed(slots=2))) == pytest.approx(alone / 2, rel=0.08)
    assert np.median(took(PAIRS.changed(slots=4))) == pytest.approx(alone / 4, rel=0.12)


def test_a_third_slot_waits_for_one_of_two_cores() -> None:
    three = PAIRS.changed(slots=3)
    alone, free, shared = (np.median(took(one)) for one in (PAIRS, three, three.changed(cores=2)))
    assert free == pytest.approx(alone / 3, rel=0.1)
    assert shared == pytest.approx(alone * 2 / 3, rel=0.1)
    assert np.median(took(three.changed(cores=1))) == pytest.approx(alone, rel=0.05)


def test_tasks_take_the_core_that_is_free_first() -> None:
    assert makespan([1.0, 3.0, 1.0, 1.0], 2) == 3.0
    assert makespan([3.0, 1.0, 1.0, 3.0], 2) == 5.0
    assert makespan([], 2) == 0.0


def test_two_slots_of_ctr_have_two_streams_and_one_of_every_batch() -> None:
    """Either has all slices, so a stream is with one of them, and with three of them one has two."""
    ctr = PAIRS.changed(distribution="ctr", slots=2, copies=2)
    alone = np.median(took(PAIRS))
    assert np.median(took(ctr)) == pytest.approx(alone * 2 / 3, rel=0.08)
    assert np.median(took(ctr.changed(cores=1))) == pytest.approx(alone, rel=0.05)


def test_segments_do_not_share_the_work_of_a_batch() -> None:
    """Until the second segment begins at 20 s, its slot has only copies that wait."""
    atr = PAIRS.changed(distribution="atr", interval_s=20.0)
    one, two = (took(atr.changed(slots=slots)) for slots in (1, 2))
    assert one[:4] == pytest.approx(two[:4])
    assert two[4:].mean() < 0.95 * one[4:].mean()
    assert np.median(one) == pytest.approx(np.median(took(PAIRS)), rel=0.1)


def test_receiving_a_row_costs_every_slot_that_it_comes_to() -> None:
    """192 rows, and END twice for each, whether there is another slot or not."""
    nothing = PAIRS.changed(pair_s=0.0, found=0.0, send_s=1e-3)
    for slots in (1, 2):
        assert np.median(took(nothing.changed(slots=slots))) == pytest.approx(0.192 * 3, rel=0.1)


def test_slots_keep_the_rows_of_the_windows_and_their_copies() -> None:
    psp, ctr, atr = (
        simulate_ring(PAIRS.changed(slots=2, distribution=how)).series
        for how in ("psp", "ctr", "atr")
    )
    assert np.mean(psp["rows"][FULL]) == pytest.approx(3 * 320, rel=0.05)
    assert ctr["rows"] == tuple(2 * rows for rows in psp["rows"])
    assert all(more > rows for more, rows in zip(atr["rows"][FULL], psp["rows"][FULL], strict=True))
    assert max(psp["fullest_rows"]) < 0.6 * max(psp["rows"])


def test_the_same_seed_gives_the_same_batches() -> None:
    one, again, other = (simulate_ring(PAIRS.changed(seed=seed)).to_json() for seed in (1, 1, 2))
    assert one == again
    assert one["totals"] != other["totals"]
