"""Driver and executors die at the five steps of a parallel track, and when it is given up.

The slots have different plans, and the output is the join.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest
from inputs import Input
from moves import BACK, PLANS, MovingPlace
from processes import wait_until

TRACK_STEPS = range(1, 6)
ROLES = ("sender", "receiver")
#: Batches of a minute each, in which a track with a window of two and a lateness of three comes to its
#: end: five, and those in which it is asked for, chosen and deleted.
TRACK_BATCHES = 9


@pytest.mark.timeout(900)
def test_executors_killed_at_every_step_of_a_track(moving: MovingPlace) -> None:
    """One track without, then ten that lose an executor each, one after the other.

    The last one is given up when the input has ended, and loses one then.
    """
    cases = [(step, role) for step in TRACK_STEPS for role in ROLES]
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


@pytest.mark.timeout(900)
def test_driver_killed_at_every_step_of_a_track(moving: MovingPlace) -> None:
    """Six lives, each of which ends at another step; the last when its track is given up."""
    given = Input(str(moving.root / "in"), files=48, rows=60, keys=120, seed=6, window_minutes=2)
    given.write()
    with ExitStack() as stack:
        coming = moving.child(stack, given, _driver_dies(moving, TRACK_STEPS[0]))
        for step, later in zip((*TRACK_STEPS, BACK), (*TRACK_STEPS[1:], BACK, None), strict=True):
            life = coming
            # While one life runs, the session of the next is made.
            coming = moving.child(stack, given, _driver_dies(moving, later))
            life.tell("go")
            if not wait_until(lambda life=life: not life.running, 150, step=0.05):
                pytest.fail(f"life {step} did not die; {moving.markers}\n{life.told()}")
            assert f"died-{step}-driver" in moving.markers, life.told()
            life.kill()
        coming.tell("go")
        if not wait_until((moving.root / "report.json").exists, 200, step=0.1, child=coming):
            pytest.fail(f"the last life did not end well\n{coming.told()}")
    moving.assert_exact(given)


def _driver_dies(moving: MovingPlace, step: int | None) -> dict[str, Any]:
    """The faults of one life; the last has none."""
    marker = str(moving.root / f"died-{step}-driver")
    dies = [{"move": None, "step": step, "who": "driver", "marker": marker}]
    placed: dict[str, Any] = {"tasks": [], "moves": "ptlb", "plans": PLANS}
    return placed | {"steps": dies if step is not None else []}
