"""The driver, and the executors of sender and receiver, die at each of the eight steps of a move.

Whatever dies, the move is completed or given up, and the output is the join.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from inputs import Input, assert_same_rows, written
from processes import Child, local_roots, wait_until

from spillway.coordinator.log import Log
from spillway.state.tiers import DurableTier

STEPS = range(1, 9)
ROLES = ("sender", "receiver")
#: Batches for each move: it takes three, and one more for each time that sending fails. All batches
#: together are fewer than a query's progress keeps.
MOVE_BATCHES = 5


@dataclass(frozen=True)
class Place:
    """Where one test has everything."""

    root: Path

    @property
    def markers(self) -> list[str]:
        """The faults that have happened."""
        return sorted(path.name for path in self.root.glob("died-*"))

    def child(self, stack: ExitStack, given: Input, placed: dict[str, Any]) -> Child:
        """A life of the query, waiting to be told to go."""
        arguments = [json.dumps(dataclasses.asdict(given)), str(self.root), json.dumps(placed)]
        child = Child("moving_child.py", arguments, self.root / "scratch")
        stack.callback(child.close)
        return child

    def assert_exact(self, given: Input) -> None:
        """The output is the join, no row was taken twice, nothing moves and nothing waits."""
        assert_same_rows(written(self.root / "out"), given.expected())
        state = Log(DurableTier(str(self.root / "checkpoint/spillway"))).latest()
        assert state is not None
        assert state.rows_in == given.rows_with_key()
        assert state.moves == ()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for root in local_roots(tmp_path):
        shutil.rmtree(root, ignore_errors=True)
    applications = tmp_path / "applications"
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    for name in applications.read_text().split() if applications.exists() else ():
        # Spark's local cluster keeps the logs of executors below its own installation.
        shutil.rmtree(home / "work" / name, ignore_errors=True)


@pytest.mark.timeout(1200)
def test_executors_killed_at_every_step(place: Place) -> None:
    """One move without, then sixteen that lose an executor each, one after the other."""
    cases = [(step, role) for step in STEPS for role in ROLES]
    files = 2 + (1 + len(cases)) * MOVE_BATCHES
    given = Input(str(place.root / "in"), files=files, rows=30, keys=120, seed=5)
    given.write()
    placed: dict[str, Any] = {"tasks": [], "steps": []}
    for move, (step, role) in enumerate(cases, start=1):
        marker = str(place.root / f"died-{step}-{role}")
        if step == 6:
            # In the middle of sending, by the tasks themselves, wherever they run.
            point = "sending" if role == "sender" else "receiving"
            placed["tasks"] += [
                {"point": point, "batch": move, "slot": s, "marker": marker, "kill_parent": True}
                for s in range(3)
            ]
        else:
            placed["steps"].append({"move": move, "step": step, "who": role, "marker": marker})
    with ExitStack() as stack:
        child = place.child(stack, given, placed)
        child.tell("go")
        report = place.root / "report.json"
        if not wait_until(report.exists, 600, step=0.2, child=child):
            pytest.fail(f"the query did not end well; {place.markers}\n{child.told()}")
        told = json.loads(report.read_text())
    assert place.markers == sorted(f"died-{step}-{role}" for step, role in cases)
    place.assert_exact(given)
    ends = ("groups-reactivated", "move-rolled-back")
    ended = {event["move"] for event in told["events"] if event["event"] in ends}
    assert ended >= set(range(1 + len(cases)))
    _assert_served_elsewhere(told)


def _assert_served_elsewhere(told: dict[str, Any]) -> None:
    """The groups of the quiet first move are served by another executor than before."""
    (moved,) = [e for e in told["events"] if (e["event"], e["move"]) == ("groups-reactivated", 0)]
    entry = next(one for one in told["progress"] if one["batchId"] == moved["batch"])
    executors = [slot["worker"].split("/")[1] for slot in entry["slots"]]
    assert len(set(executors)) == len(executors)
    assert executors[moved["slot"]] != executors[moved["receiver"]]
    table = told["tables"][str(moved["batch"])]
    assert {table[group] for group in moved["groups"]} == {moved["receiver"]}
    assert moved["groups"]


@pytest.mark.timeout(1200)
def test_driver_killed_at_every_step(place: Place) -> None:
    """Eight lives, each of which ends at another step of a move."""
    given = Input(str(place.root / "in"), files=24, rows=60, keys=120, seed=6, window_minutes=12)
    given.write()
    with ExitStack() as stack:
        coming = place.child(stack, given, _driver_dies(place, STEPS[0]))
        for step in STEPS:
            life = coming
            later = _driver_dies(place, step + 1) if step < 8 else {"tasks": [], "steps": []}
            # While one life runs, the session of the next is made.
            coming = place.child(stack, given, later)
            life.tell("go")
            if not wait_until(lambda life=life: not life.running, 150, step=0.05):
                pytest.fail(f"life {step} did not die; {place.markers}\n{life.told()}")
            assert f"died-{step}-driver" in place.markers, life.told()
            life.kill()
        coming.tell("go")
        if not wait_until((place.root / "report.json").exists, 200, step=0.1, child=coming):
            pytest.fail(f"the last life did not end well\n{coming.told()}")
    place.assert_exact(given)


@pytest.mark.timeout(600)
def test_state_moves_by_name_between_executors_of_a_host(place: Place) -> None:
    """Nothing is sent; the executors of sender and receiver die when the move is about to end."""
    cases = [(7, role) for role in ROLES]
    given = Input(str(place.root / "in"), files=20, rows=60, keys=120, seed=7)
    given.write()
    steps = [
        {"move": at, "step": step, "who": role, "marker": str(place.root / f"died-{step}-{role}")}
        for at, (step, role) in enumerate(cases, start=1)
    ]
    # A fault that would be reached if anything were sent.
    never = {"point": "sending", "batch": 0, "marker": str(place.root / "died-sending")}
    tasks = [{**never, "slot": slot, "kill_parent": True} for slot in range(3)]
    with ExitStack() as stack:
        child = place.child(stack, given, {"tasks": tasks, "steps": steps, "share": "host"})
        child.tell("go")
        report = place.root / "report.json"
        if not wait_until(report.exists, 300, step=0.2, child=child):
            pytest.fail(f"the query did not end well; {place.markers}\n{child.told()}")
        told = json.loads(report.read_text())
    assert place.markers == sorted(f"died-{step}-{role}" for step, role in cases)
    place.assert_exact(given)
    _assert_served_elsewhere(told)


def _driver_dies(place: Place, step: int) -> dict[str, Any]:
    marker = str(place.root / f"died-{step}-driver")
    return {"tasks": [], "steps": [{"move": None, "step": step, "who": "driver", "marker": marker}]}
