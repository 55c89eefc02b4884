"""The driver dies at each step of a move or a parallel track: the next one goes on with it.

The slots have different plans, and the output is the join.
"""

from __future__ import annotations

import pytest
from inputs import Input
from moves import BACK, SENDING, STEPS, TRACK_STEPS, MovingPlace


def test_driver_killed_at_every_step(moving: MovingPlace, full: bool) -> None:
    """Lives that each end at another step of a move: at all eight, or when state is on its way."""
    given = Input(
        str(moving.root / "in"),
        files=24 if full else 10,
        rows=60,
        keys=120,
        seed=6,
        window_minutes=12,
    )
    moving.drivers_die(given, STEPS if full else (SENDING,), "mslb")
    moving.assert_exact(given)


@pytest.mark.full
def test_driver_killed_at_every_step_of_a_track(moving: MovingPlace, full: bool) -> None:
    """Lives that each end at another step; the last when its track is given up."""
    given = Input(str(moving.root / "in"), files=48, rows=60, keys=120, seed=6, window_minutes=2)
    moving.drivers_die(given, (*TRACK_STEPS, BACK) if full else (BACK,), "ptlb")
    moving.assert_exact(given)
