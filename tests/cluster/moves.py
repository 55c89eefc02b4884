"""Where a query on three executors whose groups move has everything, and what it must be in the end."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from inputs import Input, assert_same_rows, written
from processes import Child, local_roots

from spillway.coordinator.log import Log
from spillway.state.tiers import DurableTier

STEPS = range(1, 9)
#: When a move is taken back, or a parallel track given up.
BACK = 9
#: A plan for each slot, no two of which store the same, so that every move is between different ones.
PLANS = ("((orders prices) stock)", "(orders prices stock)", "(orders (prices stock))")


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

    def assert_plans_differ(self, told: dict[str, Any]) -> None:
        """Every slot has had its own plan in every batch."""
        for entry in told["progress"]:
            assert tuple(slot["shape"] for slot in entry["slots"]) == PLANS

    def assert_exact(self, given: Input) -> None:
        """The output is the join, no row was taken twice, nothing moves and nothing waits."""
        assert_same_rows(written(self.root / "out"), given.expected())
        state = Log(DurableTier(str(self.root / "checkpoint/spillway"))).latest()
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
