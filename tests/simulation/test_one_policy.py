"""The simulator has no policy and no protocol of its own: it runs those that Spark runs under."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import spillway
import spillway_lab.simulator
from spillway.coordinator import adaptation, coordinator
from spillway.policies.cluster import strategy
from spillway.policies.local import controller as spill
from spillway.protocols import engine, relocation
from spillway_lab.simulator import network
from spillway_lab.simulator.cluster import control
from spillway_lab.simulator.cluster.presets import preset
from spillway_lab.simulator.cluster.simulation import simulate

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
    assert control.adapt is adaptation.adapt
    assert control.resume is adaptation.resume
    assert control.commit_batch is coordinator.commit_batch
    assert control.plan_batch is coordinator.plan_batch
    assert control.LocalController is spill.LocalController
    assert network.Relocation is relocation.Relocation
    assert inspect.getmodule(control.busy) is engine


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
    with pytest.raises(Exception, match="cannot take"):
        simulate(preset("pressure"))
