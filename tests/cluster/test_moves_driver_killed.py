"""The driver dies at each of the eight steps of a move: the next one goes on with it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from inputs import Input
from moves import STEPS, MovingPlace
from processes import wait_until


@pytest.mark.timeout(1200)
def test_driver_killed_at_every_step(moving: MovingPlace) -> None:
    """Eight lives, each of which ends at another step of a move."""
    given = Input(str(moving.root / "in"), files=24, rows=60, keys=120, seed=6, window_minutes=12)
    given.write()
    with ExitStack() as stack:
        coming = moving.child(stack, given, _driver_dies(moving, STEPS[0]))
        for step in STEPS:
            life = coming
            later = _driver_dies(moving, step + 1) if step < 8 else {"tasks": [], "steps": []}
            # While one life runs, the session of the next is made.
            coming = moving.child(stack, given, later)
            life.tell("go")
            if not wait_until(lambda life=life: not life.running, 150, step=0.05):
                pytest.fail(f"life {step} did not die; {moving.markers}\n{life.told()}")
            assert f"died-{step}-driver" in moving.markers, life.told()
            life.kill()
        coming.tell("go")
        if not wait_until((moving.root / "report.json").exists, 200, step=0.1, child=coming):
            pytest.fail(f"the last life did not end well\n{coming.told()}")
    moving.assert_exact(given)


def _driver_dies(moving: MovingPlace, step: int) -> dict[str, Any]:
    marker = str(moving.root / f"died-{step}-driver")
    return {"tasks": [], "steps": [{"move": None, "step": step, "who": "driver", "marker": marker}]}
