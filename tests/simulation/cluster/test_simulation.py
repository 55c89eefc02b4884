"""A seed in, a journal out: what a simulated cluster does, and what it never does."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.metrics.events import STEPS, MoveEvent, Spilled
from spillway.slot.orders import Force
from spillway_lab.simulator.cluster.presets import EXTERNAL, preset
from spillway_lab.simulator.cluster.scenario import MB, Disturbance, Exchange, Machine, Workload
from spillway_lab.simulator.cluster.simulation import Simulation, simulate

LAZY = {"strategy": "lazy-disk", "relocation_interval": "2 seconds"}


def crowded(small, **changes):
    """Groups of 8 MB, of which the first slot has memory for few."""
    pressure = Disturbance((0,), memory_bytes=950 * MB, since_s=1)
    return small(
        seconds=30,
        batch_s=0.1,
        disturbances=(pressure,),
        workload=Workload(history_rows=100_000),
        adapt=LAZY,
        **changes,
    )


def test_throughput_is_what_the_processors_allow(small):
    found = simulate(small())
    machine = found.scenario.machine
    assert found.totals["rows_per_s"] == pytest.approx(
        4 / (machine.row_s + machine.produce_s), rel=1e-3
    )
    assert found.mean("utilisation") == pytest.approx(1, abs=1e-3)


def test_sources_that_cost_nothing_give_what_the_slots_can_take(small):
    found = simulate(small(machine=Machine(row_s=1e-6, produce_s=0.0)))
    assert found.violations == ()
    assert found.totals["rows_per_s"] == pytest.approx(4e6, rel=1e-3)


def test_offered_rows_are_all_processed_where_slots_have_time(small):
    found = simulate(small(workload=Workload(rows_per_s=20_000)))
    assert found.totals["rows_per_s"] == pytest.approx(20_000, rel=1e-3)
    used = 5000 * (45e-6 + 0.5e-6)
    assert found.mean("utilisation") == pytest.approx(used, rel=1e-2)


def test_throttled_rows_are_kept_at_the_source_and_not_dropped(small):
    found = simulate(small(workload=Workload(rows_per_s=200_000)))
    totals = found.totals
    assert totals["rows_behind"] > 0
    assert totals["rows_given"] + totals["rows_behind"] == pytest.approx(400_000)


def test_one_slow_slot_holds_up_all_without_a_skew_buffer(small):
    slow = (Disturbance((2,), cpu=EXTERNAL),)
    exchange = Exchange("exchange", buffer_rows=0)
    found = simulate(small(seconds=10, disturbances=slow, exchange=exchange))
    free = simulate(small(seconds=10)).totals["rows_per_s"]
    assert found.totals["rows_per_s"] / free == pytest.approx(1 - EXTERNAL, abs=0.02)


def test_skew_buffer_absorbs_what_goes_round_and_an_exchange_does_not():
    free = 32 / (45e-6 + 0.5e-6)
    assert simulate("rotating").totals["rows_per_s"] > 0.95 * free
    assert simulate("blocked").totals["rows_per_s"] < 0.75 * free


def test_same_seed_gives_the_same_and_another_seed_another(small):
    one, again, other = (simulate(crowded(small, seed=seed)).to_json() for seed in (1, 1, 2))
    assert one == again
    assert one["journal"] == again["journal"]
    assert one["series"] != other["series"]


def test_rows_come_at_random_with_the_spread_of_counts(small):
    cluster = Simulation(small()).cluster
    for mean in (3.0, 50.0):
        drawn = cluster._drawn(np.full(20_000, mean))
        assert drawn.min() >= 0
        assert drawn.mean() == pytest.approx(mean, rel=0.02)
        assert drawn.var() == pytest.approx(mean, rel=0.05)


def test_without_noise_every_group_gets_its_share(small):
    noisy, even = (
        simulate(small(noise=noise, workload=Workload(rows_per_s=50_000)))
        for noise in (True, False)
    )
    assert noisy.totals["rows_processed"] == pytest.approx(even.totals["rows_processed"], rel=1e-3)
    assert even.series["utilisation_least"][0] == pytest.approx(even.series["utilisation_most"][0])
    assert noisy.series["utilisation_least"][0] < noisy.series["utilisation_most"][0]


def test_moves_go_through_all_steps_of_the_protocol_in_order(small):
    found = simulate(crowded(small))
    moves: dict[int, list[type]] = {}
    times: dict[int, list[float]] = {}
    for at, event in found.journal:
        if isinstance(event, MoveEvent):
            moves.setdefault(event.move, []).append(type(event))
            times.setdefault(event.move, []).append(at)
    whole = [kinds for kinds in moves.values() if len(kinds) == len(STEPS)]
    assert whole
    assert all(kinds == list(STEPS) for kinds in whole)
    assert all(sorted(at) == at for at in times.values())
    assert found.totals["moves"] == len(whole)


def test_slot_without_memory_spills_and_nothing_is_violated(small):
    found = simulate(crowded(small))
    assert found.violations == ()
    spilled = [event for _, event in found.journal if isinstance(event, Spilled)]
    assert spilled
    assert all(event.slot == 0 and "least-productive" in event.reason for event in spilled)
    assert found.series["disk_bytes"][-1] > 0


def test_forced_spill_waits_for_a_disk_that_is_at_work(small):
    simulation = Simulation(crowded(small))
    simulation.run(lambda _: None)
    disks, cluster = simulation.disks, simulation.cluster
    for order in (Force(1, "first"), Force(1, "second")):
        disks.force([(1, order)])
    for _ in range(3):
        disks.begin(30.0)
        cluster.disk_left_s[:] = 0
        disks.end()
    first, second = simulation.control._events[1]
    assert first.reason.startswith("first")
    assert second.reason.startswith("second")
    assert first.groups != second.groups


def test_slot_at_its_disk_processes_nothing(small):
    found = simulate(crowded(small, exchange=Exchange("exchange", buffer_rows=0)))
    assert min(found.series["rows_per_s"]) == 0


def test_moved_state_takes_the_time_of_its_bytes(small):
    slow = Machine(link_bytes_per_s=4e6)
    fast = Machine(link_bytes_per_s=40e6)
    took = []
    for machine in (slow, fast):
        found = simulate(crowded(small, machine=machine))
        received = [e for _, e in found.journal if e.kind == "groups-received"]
        took.append(received[0].seconds)
        assert received[0].seconds == pytest.approx(
            received[0].bytes / machine.link_bytes_per_s, abs=0.02
        )
    assert took[0] > 5 * took[1]


def test_steps_of_another_length_give_about_the_same(small):
    coarse, fine = (
        simulate(crowded(small, tick_s=tick_s)).totals["rows_per_s"] for tick_s in (0.05, 0.01)
    )
    assert coarse == pytest.approx(fine, rel=0.1)


def test_large_cluster_is_simulated_without_violation():
    scenario = preset("large").changed(slots=100, groups=10_000, seconds=20)
    found = simulate(scenario)
    assert found.violations == ()
    assert found.totals["rows_processed"] > 0
