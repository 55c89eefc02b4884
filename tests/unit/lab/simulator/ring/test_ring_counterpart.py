"""A described ring and its simulation: costs of one slot foretell the batches of more, or do not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spillway.errors import SettingsError, SpillwayError
from spillway_lab.simulator.ring.counterpart import (
    RealRing,
    RingBatch,
    RingComparison,
    RingCosts,
    compared,
    costs_of,
    scenario_of,
)
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.simulation import RingResult, simulate_ring
from spillway_lab.workloads.images import Images

ONE = RealRing(32.0, 150, 10.0, 2.0, batches=12, first=6)
COSTS = RingCosts(pair_s=9e-6, send_s=5e-5, insert_s=2e-5, fixed_s=0.7)
TWO = replace(ONE, slots=2)


def batch(seconds: float, *busy_s: float) -> RingBatch:
    return RingBatch(seconds, 192, busy_s, received_s=192 * 5e-5, stored_s=192 * 2e-5)


def simulated(run: RealRing, costs: RingCosts = COSTS) -> list[float]:
    return list(simulate_ring(scenario_of(run, costs)).series["response_s"][run.first :])


def test_costs_of_a_simulated_run_are_those_it_was_given() -> None:
    """What is taken from batches with one slot makes the same batches again."""
    batches = [batch(took, took - 0.7) for took in simulated(ONE)]
    found = costs_of(ONE, batches)
    assert found.pair_s == pytest.approx(9e-6, rel=0.02)
    assert (found.send_s, found.insert_s) == pytest.approx((5e-5, 2e-5))
    assert found.fixed_s == pytest.approx(0.7)
    assert compared(ONE, found, batches).ratio == pytest.approx(1, abs=0.01)


def test_a_slow_slot_makes_pairs_dear_and_a_slow_batch_makes_it_fixed() -> None:
    batches = [batch(took, took - 0.7) for took in simulated(ONE)]
    slow = [replace(one, busy_s=(2 * one.busy_s[0],), seconds=one.busy_s[0] * 2) for one in batches]
    assert costs_of(ONE, slow).pair_s > 1.9 * costs_of(ONE, batches).pair_s
    assert costs_of(ONE, slow).fixed_s == 0.0
    late = [replace(one, seconds=one.seconds + 1.0) for one in batches]
    assert costs_of(ONE, late).pair_s == costs_of(ONE, batches).pair_s
    assert costs_of(ONE, late).fixed_s == pytest.approx(1.7)


def test_a_single_slow_batch_changes_no_cost() -> None:
    batches = [batch(2.0, 1.5) for _ in range(5)]
    assert costs_of(ONE, [*batches, batch(9.0, 1.5)]) == costs_of(ONE, batches)


@pytest.mark.parametrize("run", [TWO, replace(ONE, distribution="atr")])
def test_costs_come_from_one_slot_of_psp_alone(run: RealRing) -> None:
    with pytest.raises(SettingsError, match=r"1 batches with .* give no costs"):
        costs_of(run, [batch(2.0, 1.5)])
    with pytest.raises(SettingsError, match="0 batches with 1 slots and 'psp' give no costs"):
        costs_of(ONE, [])


def test_the_counterpart_has_the_rows_of_the_images() -> None:
    """The same seed gives the streams of images and the simulated ones the same times."""
    images = Images(rate=32.0, seconds=24.0, scenes=150)
    came: list[RingScenario] = []

    def seen(scenario: RingScenario) -> RingResult:
        came.append(scenario)
        return simulate_ring(scenario)

    compared(ONE, COSTS, [batch(2.0, 1.0)], simulate=seen)
    rows = simulate_ring(came[0]).series["rows"][-1]
    assert rows == sum(int((times >= 14.0).sum()) for times in images.times)


def test_slots_share_what_is_not_fixed() -> None:
    """Two have half of it each; a third waits for one of two cores."""
    work = shared_s(ONE)
    assert shared_s(TWO) == pytest.approx(work / 2, rel=0.1)
    assert shared_s(replace(ONE, slots=3)) == pytest.approx(work * 2 / 3, rel=0.1)
    assert shared_s(replace(ONE, slots=3, cores=3)) == pytest.approx(work / 3, rel=0.12)
    atr = [shared_s(replace(ONE, slots=slots, distribution="atr")) for slots in (1, 2, 3)]
    assert atr[0] == pytest.approx(work, rel=0.1)
    # In two of the six batches that are looked at, the next segment has a part of the work.
    assert atr[1] == atr[2] == pytest.approx(0.9 * work, rel=0.1)
    ctr = replace(ONE, slots=2, distribution="ctr")
    assert shared_s(ctr) == pytest.approx(work * 2 / 3, rel=0.1)


def shared_s(run: RealRing) -> float:
    """Seconds of a batch without the fixed ones."""
    return compared(run, COSTS, [batch(1.0, 0.5)]).simulated_s - COSTS.fixed_s


@pytest.mark.parametrize(
    ("times", "agrees"), [(1.0, True), (0.9, True), (0.8, False), (1.3, False)]
)
def test_agreement_is_that_of_the_other_run(times: float, agrees: bool) -> None:
    """The same costs, and batches of two slots that took so many times what is simulated of them."""
    batches = [batch(times * took, 0.1, 0.1) for took in simulated(TWO)]
    found = compared(TWO, COSTS, batches)
    assert found.ratio == pytest.approx(1 / times)
    assert found.agrees is agrees


@pytest.mark.parametrize(
    ("simulated_s", "agrees"), [(1.19, True), (0.81, True), (1.21, False), (0.79, False)]
)
def test_agreement_is_a_fifth(simulated_s: float, agrees: bool) -> None:
    found = RingComparison(1.0, simulated_s)
    assert found.agrees is agrees
    assert found.to_json() == {
        "real_s": 1.0,
        "simulated_s": simulated_s,
        "ratio": simulated_s,
        "agrees": agrees,
    }


def test_costs_are_plain_data_of_few_digits() -> None:
    found = RingCosts(9.123456e-6, 5e-5, 0.0, 0.712345).to_json()
    assert json.loads(json.dumps(found)) == {
        "pair_s": 9.123e-6,
        "send_s": 5e-5,
        "insert_s": 0.0,
        "fixed_s": 0.7123,
    }


def test_a_counterpart_that_fails_its_checks_says_nothing_of_the_run() -> None:
    def failing(scenario: RingScenario) -> RingResult:
        return replace(simulate_ring(scenario), violations=("a row missed its window",))

    with pytest.raises(SpillwayError, match="2 slots and 'psp' failed its checks") as failed:
        compared(TWO, COSTS, [batch(1.0, 0.5, 0.5)], simulate=failing)
    assert failed.value.detail == "a row missed its window"
