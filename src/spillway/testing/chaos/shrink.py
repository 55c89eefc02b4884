"""Reduces a failing schedule: fewer disasters, events, rows and settings, while it still fails.

This is delta debugging (ddmin) with a limited number of runs. A smaller schedule counts if it fails
in any way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from spillway.testing.chaos.schedule import Schedule, ScheduledEvent, Strike
from spillway.testing.chaos.world import run_schedule
from spillway.testing.simulated.rows import Row

_T = TypeVar("_T")

#: Most runs of one reduction; a run of a small schedule takes a tenth of a second.
MOST_RUNS = 400


class Shrinking:
    """One attempt to reduce a schedule."""

    def __init__(self, fails: Callable[[Schedule], bool], most_runs: int = MOST_RUNS) -> None:
        self._fails = fails
        self._left = most_runs

    def shrunk(self, schedule: Schedule) -> Schedule:
        """The smallest failing schedule found."""
        while self._left > 0:
            smaller = self._pass(schedule)
            if smaller == schedule:
                break
            schedule = smaller
        return schedule

    def _pass(self, schedule: Schedule) -> Schedule:
        schedule = self._without(
            schedule, schedule.events, lambda found, some: replace(found, events=tuple(some))
        )
        for at in range(len(schedule.events)):
            schedule = self._without_strikes(schedule, at)
            schedule = self._without_rows(schedule, at)
        for plain in self._plainer(schedule):
            schedule = self._try(plain) or schedule
        return schedule

    def _without_strikes(self, schedule: Schedule, at: int) -> Schedule:
        def changed(found: Schedule, some: Sequence[Strike]) -> Schedule:
            return _changed(found, at, replace(found.events[at], strikes=tuple(some)))

        return self._without(schedule, schedule.events[at].strikes, changed)

    def _without_rows(self, schedule: Schedule, at: int) -> Schedule:
        def changed(found: Schedule, some: Sequence[Row]) -> Schedule:
            return _changed(found, at, replace(found.events[at], rows=tuple(some)))

        return self._without(schedule, schedule.events[at].rows, changed)

    def _without(
        self,
        schedule: Schedule,
        items: Sequence[_T],
        changed: Callable[[Schedule, Sequence[_T]], Schedule],
    ) -> Schedule:
        """Drops as many items as possible: halves first, then smaller fractions."""
        size = max(1, len(items) // 2)
        while items and self._left > 0:
            at = 0
            while at < len(items):
                fewer = [*items[:at], *items[at + size :]]
                smaller = self._try(changed(schedule, fewer))
                if smaller is None:
                    at += size
                else:
                    schedule, items = smaller, fewer
            if size == 1:
                break
            size //= 2
        return schedule

    def _plainer(self, schedule: Schedule) -> Iterator[Schedule]:
        """The same schedule with simpler settings."""
        if len(schedule.starts) > 1:
            yield replace(schedule, starts=schedule.starts[:1])
        if schedule.hosts > 1:
            yield replace(schedule, hosts=1)
        if schedule.query.then:
            yield replace(schedule, query=replace(schedule.query, then=schedule.query.then[:-1]))
        for at, start in enumerate(schedule.starts):
            for name in start.adapt:
                adapt = {key: value for key, value in start.adapt.items() if key != name}
                less = replace(start, adapt=adapt)
                starts = (*schedule.starts[:at], less, *schedule.starts[at + 1 :])
                yield replace(schedule, starts=starts)

    def _try(self, schedule: Schedule) -> Schedule | None:
        """Runs a schedule; returns it if it fails too."""
        if self._left <= 0:
            return None
        self._left -= 1
        return schedule if self._fails(schedule) else None


def _changed(schedule: Schedule, at: int, event: ScheduledEvent) -> Schedule:
    return replace(schedule, events=(*schedule.events[:at], event, *schedule.events[at + 1 :]))


def shrink(schedule: Schedule, most_runs: int = MOST_RUNS) -> Schedule:
    """The smallest failing schedule found within a number of runs."""
    return Shrinking(lambda one: bool(run_schedule(one).differences), most_runs).shrunk(schedule)
