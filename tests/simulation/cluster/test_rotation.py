"""Groups that take turns in memory, on the simulated cluster (FLUX 6.1)."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.metrics.events import Reloaded, Spilled
from spillway.policies.local import rotation
from spillway_lab.simulator.cluster.scenario import MB, Disturbance, Workload
from spillway_lab.simulator.cluster.simulation import Simulation, simulate

#: Groups of 6 MB, 16 at each of the four slots.
SIX = Workload(history_rows=6 * MB // 80)


def turning(small, **changes):
    """The first slot has memory for 12 of its 16 groups."""
    adapt = {"strategy": "spill-only", "t_gap": "305 ms", **changes.pop("adapt", {})}
    pressure = Disturbance((0,), memory_bytes=(1024 - 73) * MB)
    known = {
        "seconds": 30,
        "tick_s": 0.02,
        "batch_s": 0.1,
        "workload": SIX,
        "disturbances": (pressure,),
        **changes,
    }
    return small(spill_mode="rotation", adapt=adapt, **known)


@pytest.fixture(scope="module")
def found(small):
    return simulate(turning(small))


def test_as_many_groups_are_on_disk_as_have_no_room(found):
    assert found.violations == ()
    assert set(found.series["groups_on_disk"][5:]) == {4}


def test_every_group_of_the_slot_has_its_turn(found):
    came = {g for _, event in found.journal if isinstance(event, Reloaded) for g in event.groups}
    assert came == set(range(16))


def test_groups_leave_in_the_order_in_which_they_came(found):
    left = [event.groups[0] for _, event in found.journal if isinstance(event, Spilled)]
    assert left[:16] == list(range(16))


def test_rows_of_groups_on_disk_wait_for_a_round_of_turns(found):
    # A turn is a write, a read and t_gap, and four groups take turns on disk.
    turn_s = 3 * 0.305
    assert found.series["latency_p99_s"][-1] == pytest.approx(4 * turn_s / 2, rel=0.5)
    assert found.series["latency_p50_s"][-1] < 1e-3


def test_longer_turns_give_more_rows_and_a_longer_wait(small):
    rows, waits = zip(
        *(
            (run.mean("rows_per_s", 15), run.mean("latency_s", 15))
            for run in (
                simulate(turning(small, adapt={"t_gap": gap})) for gap in ("300 ms", "1200 ms")
            )
        ),
        strict=True,
    )
    assert rows[1] > 1.3 * rows[0]
    assert waits[1] > 1.3 * waits[0]


def test_groups_come_back_when_memory_does(small):
    pressure = Disturbance((0,), memory_bytes=(1024 - 73) * MB, until_s=10)
    found = simulate(turning(small, disturbances=(pressure,)))
    assert found.series["groups_on_disk"][8] == 4
    assert found.series["groups_on_disk"][-1] == 0
    assert found.totals["rows_spooled"] == 0
    assert found.series["latency_s"][-1] < 1e-3


def test_policy_by_memory_brings_all_groups_back_into_memory(small):
    adapt = {"strategy": "flux-memory", "delta_min": "50 ms"}
    found = simulate(turning(small, adapt=adapt))
    assert found.violations == ()
    assert found.totals["moves"] >= 4
    assert found.series["groups_on_disk"][-1] == 0


def test_group_on_disk_is_read_and_its_rows_processed_before_it_is_sent(small):
    simulation = Simulation(turning(small, seconds=5))
    simulation.run(lambda _: None)
    cluster, disks = simulation.cluster, simulation.disks
    group = int(np.flatnonzero(cluster.on_disk)[-1])
    assert cluster.spooled[group] > 0
    cluster.stalled[group] = True
    for tick in range(200):
        simulation._tick(5 + tick * 0.02, 5.02 + tick * 0.02)
        disks.begin(5.02 + tick * 0.02)
        if not cluster.on_disk[group] and not cluster.spooled[group]:
            break
    assert tick < 199
    [event] = [one for one in simulation.control._events[0] if one.reason == "it is to be sent"]
    assert event.groups == (group,)


def test_memory_is_never_above_its_limit_but_for_what_is_under_way(small):
    simulation = Simulation(turning(small, seconds=10))
    simulation.run(lambda _: None)
    within = simulation.cluster.memory_bytes <= simulation.cluster.limits(10.0)
    assert within[[s for s in range(4) if s not in simulation.disks.busy()]].all()


def test_slot_over_its_limit_gives_groups_up_before_it_processes_what_was_written(small):
    simulation = Simulation(turning(small, seconds=1, disturbances=()))
    simulation.run(lambda _: None)
    cluster = simulation.cluster
    assert not simulation.disks.busy()
    cluster.draining[0].append(3)
    cluster.state_rows[:16] *= 12
    cluster.forget_sums()
    simulation.disks.begin(1.0)
    assert simulation.disks.busy() == {0}


def test_turns_come_from_the_policy(small, monkeypatch):
    asked = []
    turn = rotation.Rotation.turn

    def heard(self, table, limit_bytes, now_s):
        asked.append(now_s)
        return turn(self, table, limit_bytes, now_s)

    monkeypatch.setattr(rotation.Rotation, "turn", heard)
    found = simulate(turning(small, seconds=5))
    assert len(asked) >= found.totals["spills"] > 0


def test_t_gap_is_found_where_it_is_left_to_the_policy(small):
    simulation = Simulation(turning(small, adapt={"t_gap": "auto"}))
    found = simulation.run(lambda _: None)
    assert found.violations == ()
    assert set(found.series["groups_on_disk"][5:]) == {4}
    gaps = np.array([gap.t_gap_s for gap in simulation.disks._gaps])
    assert gaps[0] != pytest.approx(gaps[1])
