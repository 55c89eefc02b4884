"""The simulated ring: what is true of every run, and its times where they can be worked out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import SettingsError
from spillway.policies.ring.model import response_s
from spillway_lab.simulator.ring.arrivals import poisson_times
from spillway_lab.simulator.ring.flow import ring_run
from spillway_lab.simulator.ring.intervals import Jobs, copied, finished, jobs, kept
from spillway_lab.simulator.ring.rows import DONE, MOMENT, RESULTS, Rows, held_by_slot, wrong_rows
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.simulation import simulate_ring
from spillway_lab.simulator.ring.slices import placed
from spillway_lab.simulator.ring.travel import Found, Limits, Paths, Ring, RingRun, WorkTimes
from tier import examples

SHORT = RingScenario(seconds=30.0, window_s=4.0, rate=20.0, found=0.5, most=12, sample_s=1.0)


def scenarios() -> st.SearchStrategy[RingScenario]:
    return st.builds(
        SHORT.changed,
        slots=st.integers(4, 9),
        streams=st.integers(2, 4),
        found=st.sampled_from([0.0, 0.3, 2.0]),
        distribution=st.sampled_from(["psp", "atr", "ctr"]),
        interleave=st.sampled_from([1, 3, 50]),
        interval_s=st.sampled_from([1.5, 4.0, 9.0]),
        adjustment=st.sampled_from(["none", "smoothing", "passive", "aggressive"]),
        rate_after=st.sampled_from([None, 80.0]),
        change_s=st.just(12.0),
        seed=st.integers(0, 99),
    )


@given(scenarios())
@settings(max_examples=examples(40), deadline=None)
def test_every_row_meets_its_whole_window_in_every_distribution(scenario: RingScenario) -> None:
    found = simulate_ring(scenario)
    assert found.violations == ()
    assert found.totals["rows"] > 0


@pytest.mark.parametrize("network", ["links", "shared"])
@pytest.mark.parametrize("interleave", [1, 3, 50])
def test_every_row_meets_its_whole_window_over_any_network(network: str, interleave: int) -> None:
    """Bytes take time, and change nothing else: rows are small enough for all to be done."""
    sent = SHORT.changed(interleave=interleave, row_bytes=3_000)
    packets, found = simulate_ring(sent), simulate_ring(sent.changed(network=network))
    assert found.violations == ()
    assert found.totals["response_s"] > packets.totals["response_s"]
    assert found.totals["rows_waiting"] <= 3


def arrived(scenario: RingScenario) -> list[np.ndarray]:
    rng = np.random.default_rng(scenario.seed)
    return [poisson_times(scenario.rates, scenario.seconds, rng) for _ in range(scenario.streams)]


@given(scenarios())
@settings(max_examples=examples(40), deadline=None)
def test_no_row_is_stored_twice_wherever_slices_go(scenario: RingScenario) -> None:
    times = arrived(scenario)
    place = placed(scenario, times)
    held = held_by_slot(place, times, int(place.ring.max()))
    for stream, one in enumerate(times):
        whole = held[:, stream, : len(one) + 1].sum(axis=2)
        assert (whole == np.arange(len(one) + 1)).all()


def test_row_that_misses_a_slot_is_a_violation() -> None:
    met, found = np.array([[3, 2]]), np.zeros((1, 4))
    found[0, DONE] = 1.0
    assert wrong_rows(met, found, np.array([[3, 2, 1, 1]])) == ()
    [told] = wrong_rows(met, found, np.array([[2, 2, 1, 1]]))
    assert told.startswith("1 rows did not meet their windows: row 0 compared [2 2] pairs")


def one_row(
    slots: int, streams: int = 2, there: int = 6, row_s: float = 0.0, *, shared: bool = False
) -> tuple[float, float]:
    """When a single row of the first stream is done, and when its results are there, on average.

    `row_s` is the time of its bytes on a link, which all slots share or not.
    """
    low, high = np.zeros((1, streams), np.int64), np.full((1, streams), there)
    held = np.zeros((1, streams, there + 1, slots), np.int64)
    for number in range(1, there + 1):
        held[0, :, number] = held[0, :, number - 1]
        held[0, :, number, number % slots] += 1
    order = np.array([[s for s in range(streams) if s != i] for i in range(streams)])
    costs = WorkTimes(pair_s=1.0, send_s=0.01, hop_s=0.1, keep_s=0.0, link_s=row_s)
    run = RingRun(
        Rows(np.zeros(1), np.zeros(1, np.int64), low, high),
        Ring(held, order, 1.0, costs, np.arange(slots) * (not shared)),
        Limits(until_s=1000.0, sample_s=1.0, seed=0),
    )
    path = Paths(np.zeros(1), np.zeros(1, np.int64), np.full(1, slots), np.zeros(1, np.int64))
    whole = Found.empty(run, slots, samples=1001)
    ring_run(run, path, whole)
    found = whole.rows
    return float(found[0, DONE]), float(found[0, MOMENT] / found[0, RESULTS])


def test_slots_of_a_ring_work_at_the_same_time() -> None:
    """Six pairs of a second: alone 6 s; three slots have two each, and pass the row on in 0.11 s."""
    _, alone = one_row(1)
    _, shared = one_row(3)
    assert alone == pytest.approx(0.01 + 6)
    assert shared == pytest.approx(0.01 + 2 + (0 + 0.11 + 0.22) / 3)


def test_ring_is_done_when_end_is_back_behind_all_work() -> None:
    """Alone: the row, and END that comes 0.1 s later. Of three, the second is busy until 2.12 s."""
    assert one_row(1)[0] == pytest.approx(6.01 + 0.11)
    assert one_row(3)[0] == pytest.approx(2.12 + 0.01 + 2 * 0.11)
    assert one_row(3, streams=3)[0] > 2 * one_row(3)[0]


def test_whole_rows_are_on_their_way_for_as_long_as_their_bytes_take() -> None:
    """The second slot begins 0.5 s later, and the third 1 s."""
    _, shared = one_row(3, row_s=0.5)
    assert shared == pytest.approx(0.01 + 2 + (0 + 0.61 + 1.22) / 3)


def test_combination_carries_a_row_more_and_waits_for_the_link() -> None:
    """Two slots have three rows of each stream, so three combinations begin in each of them.

    Those of the first are made at 3.01 s, and six rows take 3 s: at 6.11 s they are at the second. The
    row itself was there at 0.61 s, and what it found, at 3.62 s, is back at 6.72 s. In either slot three
    combinations take 9.03 s, first those of the other slot; in the second END is between them.
    """
    _, took = one_row(2, streams=3, row_s=0.5)
    there, back = 6.11 + 9.03, 6.72 + 9.03
    assert took == pytest.approx((there + back + (back + 9.03) + (there + 0.01 + 9.03)) / 4)


def test_slots_that_share_a_network_wait_for_each_other() -> None:
    """As above, but the six rows of the second slot begin when those of the first are there, at 6.01 s.

    So they are back 3 s later, at 9.11 s. What passes on follows behind: the first slot's combinations
    at 12.11 s, the second's at 15.11 s, when the slots that they come to are not done yet.
    """
    _, took = one_row(2, streams=3, row_s=0.5, shared=True)
    there, back = 6.11 + 9.03, 9.11 + 9.03
    assert took == pytest.approx(
        (there + back + (back + 9.03) + (there + 0.01 + 9.03)) / 4, abs=0.02
    )


def test_end_overtakes_no_bytes() -> None:
    """Two slots of three pairs: the row is in the second at 5.11 s, done at 8.12 s, END behind it."""
    assert one_row(2, row_s=5.0)[0] == pytest.approx(8.12 + 0.01 + 0.11)


def test_free_ring_responds_about_as_the_cost_model_says() -> None:
    """Few rows, so that none waits: Equation 5, less its hops of a last round that no result needs."""
    free = RingScenario(rate=2.0, window_s=250.0, found=0.1, seconds=2000.0)
    for slots in (4, 12):
        took = simulate_ring(free.changed(slots=slots)).totals["response_s"]
        said = response_s(free.sources(2.0)[0], free.costs, slots)
        assert 0.5 * said < took < 2.5 * said


def test_one_row_at_a_time_is_slower_than_many() -> None:
    one, many = (
        simulate_ring(RingScenario(seconds=120.0, slots=8, interleave=n)).totals["response_s"]
        for n in (1, 16)
    )
    assert many < one


def test_longer_ring_is_chosen_when_more_rows_come() -> None:
    base = RingScenario(seconds=120.0, change_s=60.0, rate_after=100.0, interleave=16)
    still, passive, moved = (
        simulate_ring(base.changed(adjustment=how)) for how in ("none", "passive", "aggressive")
    )
    assert set(still.series["slots"]) == {9.0}
    assert passive.series["slots"][-1] == moved.series["slots"][-1] > 9
    assert moved.totals["moves"] > 0 == passive.totals["moves"]
    end = [one.mean("response_s", 100.0) for one in (still, passive, moved)]
    assert end[0] > 100 * max(end[1:])


def test_the_same_seed_gives_the_same_numbers() -> None:
    assert simulate_ring(SHORT).to_json() == simulate_ring(SHORT).to_json()
    assert simulate_ring(SHORT).totals != simulate_ring(SHORT.changed(seed=1)).totals


def test_interval_has_every_slave_row_that_its_master_rows_may_meet() -> None:
    scenario = SHORT.changed(distribution="atr", interval_s=6.0)
    times = arrived(scenario)
    comes, stream, _, interval = copied(scenario, times)
    for q in range(5):
        for slave in (1, 2):
            there = comes[(interval == q) & (stream == slave)]
            wanted = (times[slave] > 6.0 * q - 4.0) & (times[slave] < 6.0 * (q + 1) + 4.0)
            assert (there == times[slave][wanted]).all()


def test_slave_rows_have_fewer_copies_in_longer_intervals() -> None:
    counts = []
    for length in (4.0, 8.0, 20.0):
        scenario = SHORT.changed(distribution="atr", interval_s=length, seconds=400.0)
        times = arrived(scenario)
        counts.append(len(copied(scenario, times)[0]) / sum(map(len, times)))
    assert counts == pytest.approx([(1 + 2 * 3) / 3, (1 + 2 * 2) / 3, (1 + 2 * 1.4) / 3], rel=0.02)


def test_intervals_compare_every_pair_of_brute_force() -> None:
    scenario = SHORT.changed(distribution="atr", interval_s=3.0, streams=2)
    times = arrived(scenario)
    todo = jobs(scenario, times, np.random.default_rng(0))
    apart = times[0][:, None] - times[1][None, :]
    assert todo.pairs.sum() == (np.abs(apart) < scenario.window_s).sum()
    met = Rows.of(scenario, times).met(np.array([[1], [0]]))
    assert met.sum() == todo.pairs.sum()


def test_slot_takes_copies_as_they_come() -> None:
    zeros = np.zeros(4, np.int64)
    todo = Jobs(
        np.array([0.0, 1.0, 9.0, 9.5]),
        zeros,
        zeros,
        zeros,
        zeros,
        np.array([3.0, 2.0, 1.0, 1.0]),
        np.zeros(4),
        zeros[:, None],
        zeros[:, None],
    )
    done = finished(todo, 1)
    assert done.tolist() == [3.0, 5.0, 10.0, 11.0]
    # Rows are in the state when processed, and go when a row that is processed is past their window.
    seconds = np.array([2.0, 3.0, 8.0, 10.0, 12.0])
    assert kept(todo, done, 0, 5.0, seconds).tolist() == [0, 1, 2, 1, 2]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"distribution": "hash"}, "distribution='hash' is not one of 'psp', 'atr', 'ctr'"),
        ({"distribution": "ctr", "copies": 9}, "9 copies need at least 18 slots, not 9"),
        ({"interleave": 0}, "slots=9, streams=3 and interleave=0 are not a valid ring"),
        ({"network": "hub"}, "network='hub' is not one of 'packets', 'links', 'shared'"),
        (
            {"network": "links", "distribution": "atr"},
            "network='links' requires distribution='psp' without batch_s",
        ),
        ({"cores": 2}, "cores=2 requires batch_s"),
        (
            {"batch_s": 2.0, "adjustment": "passive"},
            "batch_s=2 does not work with adjustment='passive' and cores=None",
        ),
        (
            {"batch_s": 2.0, "cores": 0},
            "batch_s=2 does not work with adjustment='none' and cores=0",
        ),
        (
            {"batch_s": 2.0, "distribution": "ctr", "slots": 2, "copies": 3},
            "2 slots and 128 groups cannot hold 3 copies",
        ),
    ],
)
def test_scenario_that_cannot_be_is_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        RingScenario(**changes)
    assert refused.value.message == told


def test_scenario_is_plain_data() -> None:
    assert RingScenario.from_json(SHORT.to_json()) == SHORT
