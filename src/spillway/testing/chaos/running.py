"""Runs many schedules, in one process or several."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path

from spillway.errors import SettingsError
from spillway.testing.chaos.drawing import draw
from spillway.testing.chaos.report import Report
from spillway.testing.chaos.schedule import Schedule
from spillway.testing.chaos.world import Outcome, run_schedule


def scheduled(given: int | Schedule) -> Schedule:
    """The given schedule, or the schedule of the given seed."""
    return draw(given) if isinstance(given, int) else given


def read_schedule(path: Path) -> Schedule:
    """Reads a schedule from a file; raises if the file has none."""
    try:
        return Schedule.decode(path.read_bytes())
    except (OSError, ValueError) as problem:
        raise SettingsError(
            f"{path} is not a schedule of disasters",
            detail=str(problem),
            hint="use a file that `spillway chaos` wrote for a failing seed",
        ) from problem


def run_one(given: int | Schedule) -> Outcome:
    """Runs one schedule."""
    return run_schedule(scheduled(given))


def run_all(
    given: Sequence[int | Schedule], jobs: int = 1, told: Callable[[Report], None] = lambda _: None
) -> Report:
    """Runs schedules; calls `told` after each."""
    report = Report()
    if jobs == 1 or len(given) == 1:
        for one in given:
            report.add(run_one(one))
            told(report)
        return report
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for outcome in pool.imap_unordered(run_one, given, chunksize=4):
            report.add(outcome)
            told(report)
    return report
