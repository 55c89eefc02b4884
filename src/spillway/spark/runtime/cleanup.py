"""Cleanup between the batches: rounds, one after the other, until no result is missing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from spillway.spark.runtime.loop import BatchLoop

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
        """The fraction of the groups that is done, from 0 to 1."""
        total = self.groups + self.groups_left
        return self.groups / total if total else 1.0


def clean_up(
    loop: BatchLoop,
    show: Callable[[Cleanup], None],
    prepare: Callable[[int], None] = lambda _: None,
) -> Cleanup:
    """Runs rounds until the groups that miss results now are clean, or the query stops.

    It does not wait for groups that a running stream spills meanwhile. It goes stage by stage, because
    the missing results of one stage are rows of the next: there they may wait, or begin moves. So
    `prepare` gets each stage after those before it are clean.
    """
    parts = []
    for at in range(len(loop.stages)):
        prepare(at)
        parts.append(_clean_up(loop, at, show))
    return Cleanup(
        sum(part.groups for part in parts),
        sum(part.groups_left for part in parts),
        sum(part.rows_out for part in parts),
        sum(part.rounds for part in parts),
        sum(part.seconds for part in parts),
    )


def _clean_up(loop: BatchLoop, at: int, show: Callable[[Cleanup], None]) -> Cleanup:
    started, stage = time.perf_counter(), loop.stages[at]
    before, first_round = stage.state.rows_cleaned, stage.state.rounds
    left = {group for group, _ in stage.state.pending}
    total = len(left)
    while True:
        done = Cleanup(
            total - len(left),
            len(left),
            stage.state.rows_cleaned - before,
            stage.state.rounds - first_round,
            time.perf_counter() - started,
        )
        show(done)
        if loop.stopping or (not left and not loop.chain.unfinished_round(at)):
            return done
        cleaned = loop.run_round(at, left)
        # A group that a batch cleans up meanwhile is not part of a round.
        left -= set(cleaned) if cleaned else left


def show_bar(done: Cleanup) -> None:
    """Draws a progress bar on standard error if it is a terminal."""
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
