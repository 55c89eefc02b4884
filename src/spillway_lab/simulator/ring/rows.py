"""The rows of a simulated ring: what they meet and where, and what must be true of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spillway.metrics.groups import Floats, Ints
from spillway_lab.simulator.ring.intervals import window
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.slices import Placement

#: What a run records of a row: when the ring took it and finished it, its expected results, and the
#: sum of their times, each weighted by its results.
BEGUN, DONE, RESULTS, MOMENT = range(4)


class Rows(NamedTuple):
    """All rows of a run by time, and the windows that they meet."""

    comes_s: Floats
    source: Ints
    #: By row and stream: the first row that is met, and one after the last.
    low: Ints
    high: Ints

    @classmethod
    def of(cls, scenario: RingScenario, times: list[Floats]) -> Rows:
        """The rows of some streams."""
        comes = np.concatenate(times)
        source = np.repeat(np.arange(len(times)), [len(one) for one in times])
        by_time = np.argsort(comes, kind="stable")
        comes, source = comes[by_time], source[by_time]
        ranges = [window(one, comes, scenario.window_s) for one in times]
        low, high = (np.stack([r[side] for r in ranges], axis=1) for side in (0, 1))
        return cls(comes, source, low, high)

    def met(self, order: Ints) -> Ints:
        """By row and step, the rows of the next stream in the row's window."""
        streams = order[self.source]
        return np.take_along_axis(self.high - self.low, streams, axis=1)


def held_by_slot(place: Placement, times: list[Floats], slots: int) -> Ints:
    """By epoch, stream and number: how many of the first rows each slot holds."""
    longest = max(len(one) for one in times)
    held = np.zeros((len(place.homes), len(times), longest + 1, slots), np.int64)
    for epoch, home in enumerate(place.homes):
        for stream, one in enumerate(times):
            at = home[place.bucket(one)]
            held[epoch, stream, np.arange(1, len(one) + 1), at] = 1
            np.cumsum(held[epoch, stream], axis=0, out=held[epoch, stream])
    return held


def order_of(scenario: RingScenario) -> Ints:
    """By stream, the streams that its rows probe, in the order of the policy."""
    sources = scenario.sources(scenario.rate)
    return np.array([[int(step.stream) for step in source.steps] for source in sources], np.int64)


def wrong_rows(met: Ints, found: Floats, pairs: Ints) -> tuple[str, ...]:
    """Violations: a finished row must have compared every pair of its windows exactly once."""
    steps, done = met.shape[1], found[:, DONE] > 0
    compared, coming = pairs[done, :steps], pairs[done, steps:]
    wrong = np.flatnonzero((compared != coming * met[done]).any(axis=1))
    if not len(wrong):
        return ()
    first = wrong[0]
    return (
        f"{len(wrong)} rows did not meet their windows: row {first} compared {compared[first]} pairs, "
        f"{coming[first]} came to {met[done][first]} rows",
    )
