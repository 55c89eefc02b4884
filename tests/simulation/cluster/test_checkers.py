"""Every checker finds what it is there for."""

from __future__ import annotations

import pytest

from spillway_lab.simulator.cluster.scenario import MB, Disturbance, Workload
from spillway_lab.simulator.cluster.simulation import Simulation


@pytest.fixture
def run(small):
    """A simulation that has run for a while, with slots that spill."""
    scenario = small(
        adapt={"strategy": "spill-only"}, workload=Workload(history_rows=1000), seconds=1
    )
    simulation = Simulation(scenario)
    simulation.run(lambda _: None)
    assert simulation.checker.violations == ()
    return simulation


def found(simulation, now_s=1.0):
    simulation.checker.check(simulation, now_s)
    return simulation.checker.violations


def test_lost_row_is_found(run):
    run.cluster.held[3] -= 1
    [wrong] = found(run)
    assert wrong.startswith("1 s, rows: ")
    assert wrong.endswith("are accounted for")


def test_doubled_row_is_found(run):
    run.cluster.spooled[3] += 1
    assert "are accounted for" in found(run)[0]


def test_group_with_less_than_no_row_is_found(run):
    run.cluster.held[3] -= 1e6
    run.cluster.held[4] += 1e6
    assert found(run) == ("1 s, rows: a group has a negative number of rows",)


def test_group_at_another_slot_than_its_rows_is_found(run):
    run.cluster.slot[0] = 3
    assert found(run) == ("1 s, groups: a group is not where its rows are sent",)


def test_group_that_waits_for_no_move_is_found(run):
    run.cluster.stalled[0] = True
    assert found(run) == ("1 s, groups: a group waits but is not in a move",)


def test_group_in_two_tiers_is_found(run):
    run.cluster.on_disk[0] = True
    assert found(run) == ("1 s, groups: a group is on disk and in memory",)


def test_memory_above_the_limit_is_found(run):
    run.cluster.state_rows[0] = 1e8
    run.cluster.forget_sums()
    assert found(run) == ("1 s, memory: slots [0] have too much in memory",)


def test_overfull_buffer_is_found(run):
    more = 1e6
    run.cluster.held[0] += more
    run.cluster.given += more
    assert "rows wait, but there is room for" in found(run)[0]


def test_checker_keeps_the_first_violations_only(run):
    run.cluster.held[3] -= 1
    for _ in range(100):
        run.checker.check(run, 1.0)
    assert len(run.checker.violations) == 20


def test_memory_is_not_checked_where_nothing_may_spill(small):
    pressure = (Disturbance(memory_bytes=1024 * MB),)
    simulation = Simulation(small(seconds=1, disturbances=pressure))
    assert simulation.run(lambda _: None).violations == ()
