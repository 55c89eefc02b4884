"""The simulator has no policy and no protocol of its own: it runs those that Spark runs under."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import spillway
import spillway_lab.simulator
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.metrics.events import GroupsReceived
from spillway.policies.cluster import strategy
from spillway.policies.local import controller as spill
from spillway.protocols import engine, relocation
from spillway_lab.simulator.cluster import control
from spillway_lab.simulator.cluster.presets import preset
from spillway_lab.simulator.cluster.scenario import MB, Disturbance
from spillway_lab.simulator.cluster.simulation import Simulation, simulate
from spillway_lab.simulator.host import VirtualHost

FOLDER = Path(spillway_lab.simulator.__file__).parent
CORE = Path(spillway.__file__).parent


def defined(path: Path) -> set[str]:
    """The names of the functions and classes of a module."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def public(path: Path) -> set[str]:
    """The functions and classes that a module has for others."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    top = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, kinds)]
    return {name for name in top if not name.startswith("_")}


@pytest.mark.parametrize("folder", ["policies", "protocols"])
def test_no_policy_and_no_protocol_is_defined_again(folder):
    theirs = {name for path in (CORE / folder).rglob("*.py") for name in public(path)} - {"main"}
    assert len(theirs) > 10
    for path in FOLDER.rglob("*.py"):
        again = {name.lstrip("_") for name in defined(path)} & theirs
        assert again <= {"busy"}, f"{path.name} defines {sorted(again)}"


def test_no_module_of_the_simulator_decides_or_pairs():
    for path in FOLDER.rglob("*.py"):
        words = {word for name in defined(path) for word in name.lower().strip("_").split("_")}
        assert not words & {"decide", "decision", "pair", "pairs", "policy", "strategy", "victims"}


def test_what_runs_is_what_the_core_has():
    conductor = Simulation(preset("pressure")).control.conductor
    assert type(conductor) is Conductor
    assert type(conductor.coordinator) is Coordinator
    assert type(conductor.host) is VirtualHost
    assert control.LocalController is spill.LocalController
    assert inspect.getmodule(control.busy) is engine


def test_limits_are_those_that_virtual_time_has_now(small):
    hungry = Disturbance((1,), memory_bytes=1000 * MB, since_s=0.5)
    simulation = Simulation(small(disturbances=(hungry,), adapt={"strategy": "spill-only"}))
    limits = simulation.control.conductor.coordinator.limits
    assert set(limits.values()) == {1024 * MB}
    simulation.run(lambda _: None)
    limits = simulation.control.conductor.coordinator.limits
    assert limits == {0: 1024 * MB, 1: 24 * MB, 2: 1024 * MB, 3: 1024 * MB}


def test_slots_that_never_spill_have_no_limits(small):
    simulation = Simulation(small(adapt={"strategy": "relocate-only"}))
    assert simulation.control.conductor.coordinator.limits == {}


def test_a_move_is_carried_once_and_told_once():
    simulation = Simulation(preset("pressure"))
    begun, begin = [], simulation.network.begin
    simulation.network.begin = lambda move: (begun.append(move.move), begin(move))[1]
    journal = [event for _, event in simulation.run(lambda _: None).journal]
    assert len(begun) == len(set(begun)) > 0
    received = [event for event in journal if isinstance(event, GroupsReceived)]
    assert 0 < len(received) == len({event.move for event in received}) <= len(begun)


def test_decisions_and_choices_come_from_the_policies(monkeypatch):
    asked = []
    decide, movers, victims = (
        strategy.Strategy.decide, spill.LocalController.movers, spill.LocalController.victims
    )  # fmt: skip

    def told(name, function):
        def heard(*args, **more):
            asked.append(name)
            return function(*args, **more)

        return heard

    monkeypatch.setattr(strategy.Strategy, "decide", told("decide", decide))
    monkeypatch.setattr(spill.LocalController, "movers", told("movers", movers))
    monkeypatch.setattr(spill.LocalController, "victims", told("victims", victims))
    found = simulate(preset("pressure"))
    kinds = [event.kind for _, event in found.journal]
    assert asked.count("movers") == kinds.count("groups-chosen") > 0
    assert asked.count("victims") >= kinds.count("spilled") > 0
    assert "decide" in asked


def test_steps_come_from_the_protocol(monkeypatch):
    monkeypatch.setattr(relocation.Relocation, "transitions", {})
    with pytest.raises(Exception, match="cannot accept"):
        simulate(preset("pressure"))
