"""Whatever is simulated: no row is lost or doubled, every group is in one place, memory is bounded."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillway.settings import STRATEGIES
from spillway_lab.simulator.cluster.scenario import (
    EXCHANGES,
    MB,
    SHAPES,
    SPILL_MODES,
    Disturbance,
    Exchange,
    Scenario,
    Workload,
)
from spillway_lab.simulator.cluster.simulation import simulate
from tier import examples

disturbances = st.builds(
    Disturbance,
    slots=st.lists(st.integers(0, 2), max_size=2, unique=True).map(tuple),
    cpu=st.sampled_from([0.0, 0.57, 0.9]),
    memory_bytes=st.sampled_from([0, 960 * MB, 1000 * MB]),
    since_s=st.sampled_from([0.0, 1.5]),
    until_s=st.sampled_from([None, 3.0]),
    turn_s=st.sampled_from([None, 0.5]),
)

scenarios = st.builds(
    Scenario,
    seconds=st.just(6.0),
    slots=st.integers(3, 6),
    groups=st.sampled_from([24, 60]),
    seed=st.integers(0, 9),
    exchange=st.builds(Exchange, st.sampled_from(EXCHANGES), st.sampled_from([0, 100, 2048])),
    workload=st.builds(
        Workload,
        shape=st.sampled_from(SHAPES),
        keys=st.sampled_from([60, 480]),
        rows_per_s=st.sampled_from([None, 30_000.0, 200_000.0]),
        turn_s=st.sampled_from([None, 2.0]),
        history_rows=st.sampled_from([10_000, 60_000]),
        warm=st.booleans(),
    ),
    disturbances=st.lists(disturbances, max_size=2).map(tuple),
    adapt=st.fixed_dictionaries(
        {
            "strategy": st.sampled_from(STRATEGIES),
            "relocation_interval": st.just("1 second"),
            "delta_min": st.sampled_from(["100 ms", "auto"]),
            "t_gap": st.sampled_from(["200 ms", "auto"]),
        }
    ),
    spill_mode=st.sampled_from(SPILL_MODES),
    tick_s=st.sampled_from([0.02, 0.05]),
    batch_s=st.sampled_from([0.05, 0.4]),
    sample_s=st.just(0.2),
    noise=st.booleans(),
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios)
def test_no_scenario_violates_a_check(scenario: Scenario) -> None:
    found = simulate(scenario)
    assert found.violations == ()
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["violations"] == []
