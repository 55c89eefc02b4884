"""Faults happen where they are placed, once; what cannot be placed is rejected."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import spillway as sw
from spillway.errors import SettingsError
from spillway.faults import CommitFault, Fault, Faults, StepFault
from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.cluster.restless import Restless


@pytest.fixture
def marker(tmp_path: Path) -> str:
    return str(tmp_path / "happened")


def test_users_get_faults_from_the_testing_package() -> None:
    assert (sw.testing.Faults, sw.testing.Fault) == (Faults, Fault)
    assert (sw.testing.StepFault, sw.testing.CommitFault) == (StepFault, CommitFault)


def test_fault_of_a_task_happens_once_at_its_point_batch_and_slot(marker: str) -> None:
    faults = Faults(tasks=(Fault("after-runs", 3, 1, marker),))
    for batch, slot in ((2, 1), (3, 0)):
        faults.bound(batch, slot)("after-runs")
    reach = pickle.loads(pickle.dumps(faults)).bound(3, 1)
    reach("before-runs")
    with pytest.raises(RuntimeError, match="fault placed after-runs in batch 3, slot 1"):
        reach("after-runs")
    reach("after-runs")


def test_fault_of_a_commit_happens_once(marker: str) -> None:
    faults = Faults(commits=(CommitFault("before-commit", 3, marker),))
    faults.reach_commit("before-commit", 2)
    faults.reach_commit("after-commit", 3)
    with pytest.raises(RuntimeError, match="fault placed before-commit in batch 3"):
        faults.reach_commit("before-commit", 3)
    faults.reach_commit("before-commit", 3)


def test_fault_of_a_commit_can_kill_the_driver(marker: str) -> None:
    code = (
        "from spillway.faults import *; import sys; "
        "Faults(commits=(CommitFault('after-commit', 3, sys.argv[1], kill=True),))"
        ".reach_commit('after-commit', 3)"
    )
    assert subprocess.run([sys.executable, "-c", code, marker], check=False).returncode == -9


def test_fault_of_a_step_kills_the_process_once(marker: str) -> None:
    faults = Faults(steps=(StepFault(None, 4, "sender", marker),))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        faults.reach_step(0, 3, {"sender": process.pid})
        assert process.poll() is None
        faults.reach_step(7, 4, {"sender": process.pid})
        assert process.wait(10) == -9
    faults.reach_step(7, 4, {})


@pytest.mark.parametrize(
    ("attempt", "message", "hint"),
    [
        (
            lambda: Fault("after-run", 0, 0, "m"),
            "'after-run' is not a point of a slot task",
            "use one of 'before-runs', 'after-runs', 'after-manifest', 'receiving'",
        ),
        (
            lambda: StepFault(0, 10, "driver", "m"),
            "10 is not a step of a move",
            "use one of 1, 2, 3, 4, 5, 6, 7, 8, 9",
        ),
        (
            lambda: StepFault(0, 1, "drivers", "m"),
            "'drivers' is not a process of a move",
            "use one of 'driver', 'sender', 'receiver'",
        ),
        (
            lambda: CommitFault("commit", 0, "m"),
            "'commit' is not a point of a commit",
            "use one of 'before-commit', 'after-commit'",
        ),
    ],
)
def test_fault_that_cannot_happen_is_rejected(attempt, message: str, hint: str) -> None:
    with pytest.raises(SettingsError) as rejected:
        attempt()
    assert (rejected.value.message, rejected.value.hint) == (message, hint)


def test_restless_strategy_moves_state_between_equal_slots() -> None:
    slots = [SlotView(slot, 90, 0, None, 8, 0) for slot in range(3)]
    [move] = Restless().decide(ClusterView(tuple(slots)))
    assert (move.sender, move.receiver, move.bytes, move.groups) == (2, 0, 30, 1)
    assert (Restless().relocates, Restless().spills, Restless().collects) == (True, False, False)
