"""Simulated joins: every combination is made once, whatever moves, is doubled or changes its shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.errors import SettingsError
from spillway.metrics.events import DuplicationAsked, GroupsDeleted, GroupsReactivated, Reshaped
from spillway.plan.shape import parse
from spillway.policies.shape.costs import Estimate, JoinRates, StreamRates
from spillway_lab.simulator.cluster.simulation import Result
from spillway_lab.simulator.join import control as join_control
from spillway_lab.simulator.join.combinations import Combinations
from spillway_lab.simulator.join.joining import Joining, serve
from spillway_lab.simulator.join.scenario import JoinScenario
from spillway_lab.simulator.join.simulation import JoinSimulation, simulate_join
from tier import examples

SHAPES = ("((A B) C)", "((A C) B)", "(A (B C))")
SLOWED = ((0.0, (100.0, 100.0, 100.0)), (8.0, (100.0, 5.0, 5.0)))


def small(**changes: object) -> JoinScenario:
    """A join of 20 groups over 40 seconds."""
    base = JoinScenario(
        seconds=40, slots=3, groups=20, window_s=4.0, rates=SLOWED, tick_s=0.5, work_per_s=1e6
    )
    return base.changed(**changes)


def moving(protocol: str) -> dict[str, str]:
    return {"strategy": "relocate-only", "moves": protocol, "relocation_interval": "5 seconds"}


def counted(scenario: JoinScenario) -> float:
    """Combinations of rows that are at most a window apart, row by row, times what matches of them."""
    rows = Combinations(scenario).rows
    total = 0.0
    for group in range(scenario.groups):
        a, b, c = (
            np.repeat(np.arange(scenario.ticks), rows[at, group].astype(int)) for at in range(3)
        )
        near = np.abs(a[:, None, None] - b[:, None]) <= scenario.window
        near = near & (np.abs(a[:, None, None] - c) <= scenario.window)
        near = near & (np.abs(b[:, None] - c) <= scenario.window)
        total += near.sum()
    return total * scenario.matching**2


def test_without_overload_results_are_those_of_the_rows():
    scenario = small(groups=4, rates=((0.0, (6.0, 4.0, 3.0)),))
    found = simulate_join(scenario)
    assert found.totals["rows_behind"] == 0
    # Of three rows of one tick a quarter is not counted.
    assert found.totals["results"] == pytest.approx(counted(scenario), rel=0.01)


@pytest.mark.parametrize("protocol", ["mslb", "ptlb"])
def test_moves_and_changes_of_shape_make_the_same_results(protocol):
    plain = simulate_join(small())
    found = simulate_join(
        small(adapt=moving(protocol), optimise=True, track_windows=1, shapes=SHAPES)
    )
    ended = GroupsReactivated if protocol == "mslb" else GroupsDeleted
    kinds = [type(event) for _, event in found.journal]
    assert found.totals["moves"] == kinds.count(ended) > 0
    assert found.totals["reshapes"] == kinds.count(Reshaped) > 0
    assert found.violations == plain.violations == ()
    assert found.totals["results"] == pytest.approx(plain.totals["results"], rel=1e-9)
    assert found.totals["results"] == pytest.approx(found.totals["results_due"], rel=1e-9)


scenarios = st.builds(
    small,
    slots=st.integers(2, 5),
    seed=st.integers(0, 99),
    rates=st.sampled_from([SLOWED, ((0.0, (60.0, 30.0, 10.0)),)]),
    window_s=st.sampled_from([1.0, 4.0, 9.0]),
    matching=st.sampled_from([0.05, 0.5]),
    work_per_s=st.sampled_from([30.0, 100.0, 1e6]),
    shapes=st.sampled_from([SHAPES, SHAPES[:1]]),
    optimise=st.booleans(),
    adapt=st.sampled_from([{"strategy": "none"}, moving("mslb"), moving("ptlb")]),
    track_windows=st.sampled_from([1, 2]),
)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios)
def test_no_join_violates_a_check(scenario: JoinScenario) -> None:
    found = simulate_join(scenario)
    assert found.violations == ()
    # A track makes results of new rows before older ones are made.
    assert found.totals["results"] <= found.totals["results_due"] * (1 + 1e-9)
    assert found.totals["rows_behind"] >= -1e-6
    assert all(b >= a for a, b in zip(*(found.series["results"][n:] for n in (0, 1)), strict=False))


def test_the_same_seed_gives_the_same_run():
    def run() -> Result:
        return simulate_join(small(seconds=15, adapt=moving("ptlb"), work_per_s=60.0))

    assert run().to_json() == run().to_json()


def test_work_is_what_the_cost_model_says():
    scenario = small(groups=3, seconds=3)
    table = Combinations(scenario)
    shape = parse(SHAPES[0])
    course = table.course(shape, np.array([0]))
    tick = 4
    met = table.window(np.array([0]))[:, 0, tick] + table.rows[:, 0, tick] / 2
    streams = tuple(
        StreamRates(name, float(table.rows[at, 0, tick] / 0.5), float(met[at]), 100.0)
        for at, name in enumerate("ABC")
    )
    pairs = dict.fromkeys((("A", "B"), ("A", "C"), ("B", "C")), scenario.matching)
    expected = Estimate(JoinRates(streams, pairs)).cost(shape).work * 0.5
    assert course.work[0, tick + 1] - course.work[0, tick] == pytest.approx(expected)


def test_those_furthest_behind_are_served_first():
    at = np.array([0.0, 3.0, 5.0])
    work = np.tile(np.arange(11.0), (3, 1))
    slot, until = np.zeros(3, np.int64), np.full(3, np.inf)
    done = serve(10.0, np.array([4.0]), slot, at, until, work)
    assert at.tolist() == pytest.approx([3.5, 3.5, 5.0], abs=1e-6)
    assert done.tolist() == pytest.approx([4.0], abs=1e-6)


def test_old_and_new_part_of_a_track_are_the_whole():
    scenario = small()
    table, groups = Combinations(scenario), np.arange(20)
    shape = parse(SHAPES[2])
    whole, new = table.course(shape, groups), table.course(shape, groups, 20)
    old = table.old_part(shape, groups, 20)
    assert np.allclose(old.results + new.results, whole.results)
    assert (np.diff(old.results[:, 20 + scenario.window + 1 :]) < 1e-9).all()
    assert (np.diff(old.work) >= -1e-9).all()


def test_groups_on_two_tracks_make_every_result_once_in_any_shape():
    groups, moved = np.arange(20), np.arange(0, 20, 2)
    joining = Joining(small(slots=2), np.zeros(20, np.int64))
    for now in range(1, 41):
        joining.tick(now)
        if now == 20:
            joining.duplicate(moved, 1, now)
        elif now == 22:
            joining.reshape(0, parse(SHAPES[2]))
            # What the receiver has of these groups is made of their new rows.
            owed = joining.owed[0]
            joining.reshape(1, parse(SHAPES[1]))
            assert 0 < joining.owed[1] < owed / 2
        elif now == 24:
            joining.reshape(0, parse(SHAPES[0]))
    assert joining.purged(moved)
    joining.delete(moved)
    joining.reshape(1, parse(SHAPES[2]))
    for now in range(41, 61):
        joining.tick(now)
    assert joining.made == pytest.approx(joining.due(groups, 60), rel=1e-9)


def test_slots_are_given_other_shapes_while_a_track_lasts():
    found = simulate_join(
        small(adapt=moving("ptlb"), optimise=True, window_s=9.0, track_windows=2, shapes=SHAPES)
    )
    lasting, during = set(), 0
    for _, event in found.journal:
        match event:
            case DuplicationAsked():
                lasting |= {event.slot, event.receiver}
            case GroupsDeleted():
                lasting -= {event.slot, event.receiver}
            case Reshaped():
                during += event.slot in lasting
    assert during > 0
    assert found.violations == ()
    assert found.totals["results"] == pytest.approx(found.totals["results_due"], rel=1e-9)


def test_a_change_of_shape_is_paid_for_by_what_is_made():
    joining = Joining(small(), np.zeros(20, np.int64))
    for now in range(1, 11):
        joining.tick(now)
    joining.reshape(0, parse(SHAPES[0]))
    assert joining.owed[0] == 0
    joining.reshape(0, parse(SHAPES[2]))
    assert joining.owed[0] > 0


def test_the_coordinator_is_that_of_a_query():
    conductor = join_control.JoinControl(small()).conductor
    assert type(conductor) is Conductor
    assert type(conductor.coordinator) is Coordinator


def test_shapes_stay_where_slots_may_not_change_them():
    found = simulate_join(small(shapes=SHAPES, adapt=moving("mslb")))
    assert found.totals["reshapes"] == 0 < found.totals["moves"]
    simulation = JoinSimulation(small(shapes=SHAPES))
    simulation.run()
    assert [str(one.shape) for one in simulation.control.state.shapes] == list(SHAPES)


def test_impossible_joins_are_refused():
    with pytest.raises(SettingsError, match="work_per_s=0"):
        small(work_per_s=0)
    with pytest.raises(SettingsError, match="from second 0 on"):
        small(rates=((3.0, (1.0, 1.0, 1.0)),))
    with pytest.raises(SettingsError, match="fractions"):
        small(matching=2.0)
