"""The executors of sender and receiver die at each of the eight steps of a move.

The slots have different plans. Whatever dies, the move is completed or given up, and the output is the
join.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest
from inputs import Input
from moves import PLANS, ROLES, SENDING, STEPS, MovingPlace, who_dies
from processes import wait_until

from tier import LONGEST_S

#: Batches for each move: it takes three, and one more for each time that sending fails. All batches
#: together are fewer than a query's progress keeps.
MOVE_BATCHES = 5


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_executors_killed_at_every_step(moving: MovingPlace, full: bool, soak: bool) -> None:
    """One move without, then some that lose an executor each, one after the other."""
    steps = STEPS if full else (SENDING,)
    cases = [(step, role) for step in steps for role in who_dies(step, soak or step == SENDING)]
    files = 2 + (1 + len(cases)) * MOVE_BATCHES
    given = Input(str(moving.root / "in"), files=files, rows=30, keys=120, seed=5)
    given.write()
    placed: dict[str, Any] = {"tasks": [], "steps": [], "plans": PLANS}
    for move, (step, role) in enumerate(cases, start=1):
        marker = str(moving.root / f"died-{step}-{role}")
        if step == SENDING and role == "receiver":
            # While it fetches, by the task itself, wherever it runs.
            placed["tasks"] += [
                {
                    "point": "receiving",
                    "batch": move,
                    "slot": s,
                    "marker": marker,
                    "kill_parent": True,
                }
                for s in range(3)
            ]
        else:
            placed["steps"].append({"move": move, "step": step, "who": role, "marker": marker})
    with ExitStack() as stack:
        child = moving.child(stack, given, placed)
        child.tell("go")
        report = moving.root / "report.json"
        if not wait_until(report.exists, 1100, step=0.2, child=child):
            pytest.fail(f"the query did not end well; {moving.markers}\n{child.told()}")
        told = json.loads(report.read_text())
    assert moving.markers == sorted(f"died-{step}-{role}" for step, role in cases)
    moving.assert_exact(given)
    moving.assert_plans_differ(told)
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


@pytest.mark.full
def test_state_moves_by_name_between_executors_of_a_host(moving: MovingPlace) -> None:
    """Nothing is fetched; the executors of sender and receiver die when the move is about to end."""
    cases = [(7, role) for role in ROLES]
    given = Input(str(moving.root / "in"), files=20, rows=60, keys=120, seed=7)
    given.write()
    steps = [
        {"move": at, "step": step, "who": role, "marker": str(moving.root / f"died-{step}-{role}")}
        for at, (step, role) in enumerate(cases, start=1)
    ]
    # A fault that would be reached if anything were fetched.
    never = {"point": "receiving", "batch": 0, "marker": str(moving.root / "died-receiving")}
    tasks = [{**never, "slot": slot, "kill_parent": True} for slot in range(3)]
    with ExitStack() as stack:
        child = moving.child(stack, given, {"tasks": tasks, "steps": steps, "share": "host"})
        child.tell("go")
        report = moving.root / "report.json"
        if not wait_until(report.exists, LONGEST_S, step=0.2, child=child):
            pytest.fail(f"the query did not end well; {moving.markers}\n{child.told()}")
        told = json.loads(report.read_text())
    assert moving.markers == sorted(f"died-{step}-{role}" for step, role in cases)
    moving.assert_exact(given)
    _assert_served_elsewhere(told)
