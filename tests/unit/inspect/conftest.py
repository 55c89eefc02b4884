"""Checkpoints to inspect, and the command that inspects them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import BATCHES, GROUPS, PLAN, SLOTS, opened, run_batch

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.cli.main import app
from spillway.coordinator.decisions.adaptation import begin
from spillway.policies.cluster.decision import Move
from spillway.protocols.move import Phase
from spillway.routing.routing import Routing


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A checkpointLocation with three committed batches of two slots."""
    place = tmp_path / "ck"
    checkpoint = Checkpoint(str(place / "spillway"))
    checkpoint.open(PLAN.fingerprint(), GROUPS, "0.0.test")
    state, _ = checkpoint.recover(2, Routing.even(GROUPS, SLOTS))
    attempts = itertools.count()
    for _ in range(BATCHES):
        state = run_batch(tmp_path, checkpoint, state, attempts)
    return place


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line; the exit code and what it printed."""

    def command(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app(["inspect", *map(str, arguments)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return command


@pytest.fixture
def moving(location: Path, tmp_path: Path) -> Path:
    """The same, with a move from slot 0 to slot 1 for which rows of two batches wait."""
    checkpoint, state = opened(location)
    state = begin(state, [Move(0, 1, 500, "M_least/M_max = 0.40 < 0.80")])
    attempts = itertools.count(1000)
    for _ in range(3):
        state = run_batch(tmp_path, checkpoint, state, attempts)
    assert [move.phase for move in state.moves] == [Phase.SENDING]
    return location
