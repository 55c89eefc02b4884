"""Where a query whose groups move has everything, how it dies, and what it must be in the end."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from inputs import Input, assert_same_rows, written
from processes import Child, local_roots, wait_until

from spillway.checkpoint.log import Log
from spillway.state.runs.durable import open_durable
from tier import LONGEST_S

STEPS, TRACK_STEPS = range(1, 9), range(1, 6)
#: When a move is taken back, or a parallel track given up.
BACK = 9
#: Whose executor dies.
ROLES = ("sender", "receiver")
#: Where the driver alone dies no executors are needed, which take long to start.
DRIVER_ALONE = "local[2]"
#: A plan for each slot, no two of which store the same, so that every move is between different ones.
PLANS = ("((orders prices) stock)", "(orders prices stock)", "(orders (prices stock))")
#: The step in which state is on its way.
SENDING = 6


def who_dies(step: int, both: bool) -> Sequence[str]:
    """Whose executor dies at a step: both, one after the other, or now this and now that."""
    return ROLES if both else ROLES[step % 2 :][:1]


@dataclass(frozen=True)
class MovingPlace:
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

    def drivers_die(self, given: Input, steps: Sequence[int], moves: str) -> None:
        """Lives that end at one step after the other, and a last one that comes to its end."""
        given.write()
        always = {"master": DRIVER_ALONE, "moves": moves, "plans": PLANS, "tasks": []}
        with ExitStack() as stack:
            coming = self.child(stack, given, always | {"steps": self._driver_dies(steps[0])})
            for at, step in enumerate(steps):
                # While one life runs, the session of the next is made.
                later = [
                    fault for after in steps[at + 1 :][:1] for fault in self._driver_dies(after)
                ]
                life, coming = coming, self.child(stack, given, always | {"steps": later})
                life.tell("go")
                if not wait_until(lambda life=life: not life.running, LONGEST_S, step=0.05):
                    pytest.fail(f"life {step} did not die; {self.markers}\n{life.told()}")
                assert f"died-{step}-driver" in self.markers, life.told()
                life.kill()
            coming.tell("go")
            if not wait_until(
                (self.root / "report.json").exists, LONGEST_S, step=0.1, child=coming
            ):
                pytest.fail(f"the last life did not end well\n{coming.told()}")

    def _driver_dies(self, step: int) -> list[dict[str, Any]]:
        marker = str(self.root / f"died-{step}-driver")
        return [{"move": None, "step": step, "who": "driver", "marker": marker}]

    def assert_plans_differ(self, told: dict[str, Any]) -> None:
        """Every slot has had its own plan in every batch."""
        for entry in told["progress"]:
            assert tuple(slot["shape"] for slot in entry["slots"]) == PLANS

    def assert_exact(self, given: Input) -> None:
        """The output is the join, no row was taken twice, nothing moves and nothing waits."""
        assert_same_rows(written(self.root / "out"), given.expected())
        state = Log(open_durable(str(self.root / "checkpoint/spillway"))).latest()
        assert state is not None
        assert state.rows_in == given.rows_with_key()
        assert state.moves == ()

    def tidy(self) -> None:
        """Removes what Spark and the query have left beside it."""
        for root in local_roots(self.root):
            shutil.rmtree(root, ignore_errors=True)
        applications = self.root / "applications"
        home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
        for name in applications.read_text().split() if applications.exists() else ():
            # Spark's local cluster keeps the logs of executors below its own installation.
            shutil.rmtree(home / "work" / name, ignore_errors=True)
