"""A described run and its simulation: the same throughput, the same fall, the same verdict."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spillway.errors import SettingsError
from spillway_lab.simulator.cluster.calibration import Calibration
from spillway_lab.simulator.cluster.counterpart import (
    Batch,
    Comparison,
    Measured,
    RealRun,
    Slowed,
    compared,
    scenario_of,
)
from spillway_lab.simulator.cluster.simulation import simulate

KNOWN = Calibration(2e-6, 1e-7, 24.5, 3e8, 2e9, 1000, 5)
RUN = RealRun(3, 48, 300_000, fixed_s=0.2, exchange_s=1e-6, row_s=5e-6)
FLUX = {"strategy": "flux-load", "delta_min": "2 seconds"}


def batch(seconds: float, *busy_s: float, rows: int = 300_000, moves: int = 0) -> Batch:
    return Batch(seconds, rows, busy_s, tuple(rows // len(busy_s) for _ in busy_s), moves)


def test_a_batch_takes_its_fixed_time_and_that_of_its_slots():
    # 0.2 s, 0.3 s of exchange, and 100,000 rows of 5 µs in each slot.
    found = simulate(scenario_of(RUN, KNOWN, seconds=40.0))
    assert found.violations == ()
    assert found.totals["rows_per_s"] == pytest.approx(300_000 / 1.0, rel=0.05)
    assert found.mean("utilisation") == pytest.approx(0.5, abs=0.05)


def test_a_slowed_slot_makes_batches_as_long_as_it_takes():
    slowed = replace(RUN, slowed=(Slowed(1, 3.0, 0.0),))
    found = simulate(scenario_of(slowed, KNOWN, seconds=60.0))
    assert found.totals["rows_per_s"] == pytest.approx(300_000 / 2.0, rel=0.07)


def test_a_trigger_gives_the_rows_of_its_interval():
    found = simulate(scenario_of(replace(RUN, interval_s=2.0), KNOWN, seconds=40.0))
    assert found.totals["rows_per_s"] == pytest.approx(150_000, rel=0.05)


def test_groups_leave_a_slowed_slot_and_throughput_comes_back():
    slowed = replace(RUN, slowed=(Slowed(1, 3.0, 10.0),))
    still = simulate(scenario_of(slowed, KNOWN, seconds=120.0))
    moved = simulate(scenario_of(replace(slowed, adapt=FLUX), KNOWN, seconds=120.0))
    assert moved.violations == ()
    assert moved.totals["moves"] > 2
    assert moved.totals["rows_per_s"] > 1.1 * still.totals["rows_per_s"]


def test_a_slot_cannot_be_slowed_by_less_than_nothing():
    with pytest.raises(SettingsError, match=r"factor=0\.5 must be at least 1, to slow a slot down"):
        replace(RUN, slowed=(Slowed(0, 0.5, 1.0),))


def test_measurements_survive_json():
    run = replace(RUN, slowed=(Slowed(0, 2.0, 2.5, 9.0),), adapt=FLUX)
    found = Measured(run, (batch(1.0, 0.5, 0.5, 0.5, moves=2), batch(3.0, 0.5, 0.5, 0.5)))
    assert Measured.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert (found.rows_per_s, found.moves, found.seconds) == (150_000, 2, 4.0)


@pytest.mark.parametrize(
    ("simulated", "moves", "agrees"),
    [(119.0, 11, True), (81.0, 8, True), (121.0, 10, False), (79.0, 10, False), (100.0, 13, False)],
)
def test_agreement_is_a_fifth(simulated: float, moves: int, agrees: bool):
    found = Comparison(100.0, simulated, 10, moves)
    assert found.agrees is agrees
    assert found.to_json()["agrees"] is agrees


def test_a_single_move_makes_no_difference():
    assert Comparison(100.0, 100.0, 0, 1).agrees
    assert not Comparison(100.0, 100.0, 0, 2).agrees


def test_a_run_agrees_with_its_own_simulation():
    batches = tuple(batch(1.0, 0.5, 0.5, 0.5) for _ in range(30))
    found = compared(Measured(RUN, batches), KNOWN)
    assert found.agrees
    assert found.throughput_ratio == pytest.approx(1, abs=0.06)
