"""The executors of sender and receiver die at the steps of a parallel track, and when it is given up.

The slots have different plans, and the output is the join.
"""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest
from inputs import Input
from moves import BACK, PLANS, TRACK_STEPS, MovingPlace, who_dies
from processes import wait_until

#: Batches of a minute each, in which a track with a window of two and a lateness of three comes to its
#: end: five, and those in which it is asked for, chosen and deleted.
TRACK_BATCHES = 9


def test_executors_killed_at_every_step_of_a_track(
    moving: MovingPlace, full: bool, soak: bool
) -> None:
    """One track without, then some that lose an executor each, one after the other.

    The last one is given up when the input has ended, and loses one then.
    """
    killed = TRACK_STEPS if full else TRACK_STEPS[:1]
    cases = [(step, role) for step in killed for role in who_dies(step, soak)]
    given = Input(
        str(moving.root / "in"),
        files=2 + (1 + len(cases)) * TRACK_BATCHES,
        rows=30,
        keys=60,
        seed=5,
        window_minutes=2,
    )
    given.write()
    steps = [
        {"move": at, "step": step, "who": role, "marker": str(moving.root / f"died-{step}-{role}")}
        for at, (step, role) in enumerate(cases, start=1)
    ]
    marker = str(moving.root / f"died-{BACK}-sender")
    steps.append({"move": None, "step": BACK, "who": "sender", "marker": marker})
    placed = {"tasks": [], "steps": steps, "moves": "ptlb", "plans": PLANS}
    with ExitStack() as stack:
        child = moving.child(stack, given, placed)
        child.tell("go")
        report = moving.root / "report.json"
        if not wait_until(report.exists, 800, step=0.2, child=child):
            pytest.fail(f"the query did not end well; {moving.markers}\n{child.told()}")
        told = json.loads(report.read_text())
    died = [*cases, (BACK, "sender")]
    assert moving.markers == sorted(f"died-{step}-{role}" for step, role in died)
    moving.assert_exact(given)
    moving.assert_plans_differ(told)
    ended = {event["move"] for event in told["events"] if event["event"] == "groups-deleted"}
    assert ended >= set(range(1 + len(cases)))
