"""Scenarios are checked when they are made, and are plain data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from spillway.errors import SettingsError
from spillway_lab.simulator.cluster.presets import PRESETS, preset
from spillway_lab.simulator.cluster.scenario import (
    Disturbance,
    Exchange,
    Machine,
    Scenario,
    Workload,
)
from spillway_lab.simulator.cluster.workload import (
    cpu_left,
    group_shares,
    hottest_slot,
    key_shares,
    memory_left,
)


@pytest.mark.parametrize("name", PRESETS)
def test_preset_survives_json(name):
    found = preset(name)
    assert found.name == name
    assert Scenario.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("make", "message", "hint"),
    [
        (
            lambda: Scenario(slots=0),
            "slots=0 must be positive",
            "for example slots=32",
        ),
        (
            lambda: Scenario(slots=8, groups=4),
            "8 slots cannot share 16384 keys in 4 groups",
            "use at least as many groups as slots, and at least as many keys as groups",
        ),
        (
            lambda: Scenario(disturbances=(Disturbance((40,)),)),
            "a disturbance names slot 40, but there are 32 slots",
            "use slots from 0 to 31",
        ),
        (
            lambda: Scenario(adapt={"slots": 3}),
            "adapt of a scenario cannot set slots",
            "set slots and groups next to adapt, and memory as memory_bytes of machine",
        ),
        (
            lambda: Machine(row_s=0),
            "row_s=0 of a machine must be positive",
            "a machine needs time for a row, and its disk and link need a rate",
        ),
        (
            lambda: Exchange("river"),
            "kind='river' is not one of 'exchange', 'buffer'",
            "for example kind='exchange'",
        ),
        (
            lambda: Workload(history_rows=None),
            "warm=true needs a limit of history_rows: a group starts with that many rows",
            "set warm=false, or history_rows to a number",
        ),
        (
            lambda: Disturbance(cpu=1.0),
            "cpu=1.0 must be at least 0 and less than 1",
            "for example cpu=0.57: the fraction of the processor that others take",
        ),
        (
            lambda: preset("nope"),
            "there is no scenario 'nope'",
            f"the scenarios are {', '.join(PRESETS)}; or give a JSON file",
        ),
        (
            lambda: Scenario.from_json({"exchange": {"size": 3}}),
            "exchange has no field 'size'",
            "the fields are kind, buffer_rows, link_rows",
        ),
    ],
)
def test_wrong_scenario_says_what_is_wrong_and_what_to_do(make, message, hint):
    with pytest.raises(SettingsError) as error:
        make()
    assert (error.value.message, error.value.hint) == (message, hint)


def test_fields_of_a_wrong_kind_are_refused():
    with pytest.raises(SettingsError, match="machine must be an object, not 3"):
        Scenario.from_json({"machine": 3})
    with pytest.raises(SettingsError, match="a field of scenario has the wrong type"):
        Scenario.from_json({"seconds": "long"})


@pytest.mark.parametrize("shape", ["uniform", "hot", "self-similar", "halves"])
def test_shares_add_up_to_one(shape):
    scenario = Scenario(workload=Workload(shape, turn_s=1))
    for turn in (0, 3):
        assert group_shares(scenario, turn).sum() == pytest.approx(1)


@pytest.mark.parametrize("shape", ["hot", "self-similar", "halves"])
def test_hot_keys_have_the_rows_that_were_asked_for(shape):
    shares = key_shares(Workload(shape, keys=10_000, hot_rows=0.8, hot_keys=0.2))
    assert shares[:2000].sum() == pytest.approx(0.8)


def test_self_similar_rows_fall_on_few_groups_and_the_hottest_slot_has_the_hottest():
    scenario = Scenario(workload=Workload("self-similar"))
    shares = group_shares(scenario, 0)
    assert shares.max() > 0.25
    by_slot = shares.reshape(32, 64).sum(axis=1)
    assert hottest_slot(scenario) == int(np.argmax(by_slot))


def test_halves_are_hot_in_turn():
    scenario = Scenario(
        slots=2, groups=8, workload=Workload("halves", keys=8, hot_keys=0.5, turn_s=10)
    )
    first, second = (group_shares(scenario, turn).reshape(2, 4).sum(axis=1) for turn in (0, 1))
    assert first.tolist() == pytest.approx([0.8, 0.2])
    assert second.tolist() == pytest.approx([0.2, 0.8])


def test_disturbance_is_on_one_slot_at_a_time_where_it_goes_round():
    scenario = Scenario(slots=4, groups=8, disturbances=(Disturbance(cpu=0.5, turn_s=0.5),))
    for at in range(8):
        left = cpu_left(scenario, at * 0.5 + 0.1)
        assert np.flatnonzero(left < 1).tolist() == [at % 4]


def test_disturbance_takes_memory_while_it_is_there():
    one = Disturbance((1,), memory_bytes=300, since_s=1, until_s=2)
    scenario = Scenario(slots=2, groups=8, disturbances=(one,))
    whole = scenario.machine.memory_bytes
    assert memory_left(scenario, 0.99).tolist() == [whole, whole]
    assert memory_left(scenario, 1.0).tolist() == [whole, whole - 300]
    assert memory_left(scenario, 2.0).tolist() == [whole, whole]
