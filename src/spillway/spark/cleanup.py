"""Cleanup from outside the batches: rounds, one after the other, until no result is missing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from spillway.spark.loop import BatchLoop

_BAR = 30


@dataclass(frozen=True)
class Cleanup:
    """What a cleanup has done so far."""

    groups: int
    groups_left: int
    rows_out: int
    rounds: int
    seconds: float

    @property
    def done(self) -> float:
        """The part of the groups that is done, from 0 to 1."""
        total = self.groups + self.groups_left
        return self.groups / total if total else 1.0


def clean_up(
    loop: BatchLoop,
    show: Callable[[Cleanup], None],
    stopped: Callable[[], bool] = lambda: False,
) -> Cleanup:
    """Runs rounds until no group misses results, or until it is told to stop."""
    started = time.perf_counter()
    before, first_round = loop.state.rows_cleaned, loop.state.rounds
    total = left = len(loop.state.pending)
    while True:
        done = Cleanup(
            max(0, total - left),
            left,
            loop.state.rows_cleaned - before,
            loop.state.rounds - first_round,
            time.perf_counter() - started,
        )
        show(done)
        if stopped() or (left == 0 and not loop.unfinished_round()):
            return done
        left = loop.run_round()


def show_bar(done: Cleanup) -> None:
    """A line on standard error that fills, where somebody looks at it."""
    if not sys.stderr.isatty() or done.groups + done.groups_left == 0:
        return
    filled = round(_BAR * done.done)
    bar = "=" * filled + " " * (_BAR - filled)
    end = "\n" if done.groups_left == 0 else ""
    print(
        f"\rcleanup [{bar}] {done.groups} of {done.groups + done.groups_left} groups, "
        f"{done.rows_out} rows",
        end=end,
        file=sys.stderr,
        flush=True,
    )
