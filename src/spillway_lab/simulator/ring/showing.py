"""The feed of a simulated ring: slices of time over slots that come and go.

Slices are groups (routing/slices.py). A slice of the window has the rows that came in its range of time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spillway.dashboard.feed.news import (
    ENDED,
    RUNNING,
    VIRTUAL,
    About,
    Happening,
    Heat,
    News,
    Point,
    Slots,
    StageAbout,
)
from spillway.metrics.groups import Floats, Ints
from spillway_lab.simulator.ring.arrivals import poisson_times
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.simulation import RingResult, simulate_ring
from spillway_lab.simulator.ring.slices import Placement, placed

Publish = Callable[[News], None]


def show_ring(scenario: RingScenario, publish: Publish) -> None:
    """Runs a scenario and publishes a message for each sample."""
    names = tuple(f"camera {at + 1}" for at in range(scenario.streams))
    stage = StageAbout(
        "join on predicates", names, scenario.groups, distribute=scenario.distribution,
        window_s=scenario.window_s,
    )  # fmt: skip
    about = About(
        f"simulation {scenario.name}", "simulation", uuid.uuid4().hex, VIRTUAL, (stage,),
        sink="results",
    )  # fmt: skip
    publish(News(whole=True, about=about, status=RUNNING, now_s=0.0))
    rng = np.random.default_rng([scenario.seed, 0])
    times = [poisson_times(scenario.rates, scenario.seconds, rng) for _ in range(scenario.streams)]
    shown = _Shown(scenario, times, placed(scenario, times), simulate_ring(scenario))
    for sample in range(len(shown.result.series["second"])):
        publish(shown.sample(sample))
    publish(News(status=ENDED, told=f"{scenario.seconds:g} virtual seconds have passed"))


@dataclass
class _Shown:
    """A run, and what has been told of it."""

    scenario: RingScenario
    times: list[Floats]
    place: Placement
    result: RingResult
    number: int = 0
    ring: int = 0

    def sample(self, at: int) -> News:
        """The message of one sample."""
        now_s = self.result.series["second"][at]
        rows, homes = self._slices(now_s)
        ring = int(self.place.ring[self.place.bucket(np.array([now_s]))][0])
        held = np.bincount(homes, weights=rows, minlength=ring)[:ring].astype(np.float64)
        sizes = (rows * self.scenario.row_bytes).astype(np.int64)
        came = [
            int(((one > now_s - self.scenario.sample_s) & (one <= now_s)).sum())
            for one in self.times
        ]
        return News(
            now_s=now_s,
            points=(
                Point(
                    at_s=now_s,
                    stage=0,
                    batch=at,
                    seconds=self.result.series["response_s"][at],
                    rows_in=tuple(came),
                    rows_out=round(self.result.series["results"][at]),
                    memory_bytes=int(sizes.sum()),
                    disk_bytes=0,
                ),
            ),
            happenings=self._change(at, now_s, ring),
            slots=(self._slots(at, held, ring, came),),
            heats=(
                Heat(
                    0, at, now_s, homes.tolist(), sizes.tolist(), [0] * len(sizes),
                    rows.tolist(), [0.0] * len(sizes),
                ),
            ),
        )  # fmt: skip

    def _slices(self, now_s: float) -> tuple[Floats, Ints]:
        """The rows of each slice in the window, and its slot."""
        groups, place = self.scenario.groups, self.place
        live = np.concatenate(
            [t[(t > now_s - self.scenario.window_s) & (t <= now_s)] for t in self.times]
        )
        rows = np.bincount(place.bucket(live) % groups, minlength=groups).astype(np.float64)
        newest = int(place.bucket(np.array([now_s]))[0])
        buckets = np.arange(max(0, newest - groups + 1), newest + 1)
        homes = np.zeros(groups, np.int64)
        epoch = int(place.epoch(np.array([now_s]))[0])
        homes[buckets % groups] = place.homes[epoch, buckets]
        return rows, homes

    def _change(self, at: int, now_s: float, ring: int) -> tuple[Happening, ...]:
        before, self.ring = self.ring, ring
        if before in (0, ring):
            return ()
        self.number += 1
        why = f"{ring} slots share the slices, after {before}: the shortest response of the model"
        return (Happening(self.number, now_s, 0, at, "scaled", why),)

    def _slots(self, at: int, held: Floats, ring: int, came: list[int]) -> Slots:
        size = (held * self.scenario.row_bytes).astype(np.int64).tolist()
        # Every row visits every slot.
        return Slots(
            0, at, tuple(size), (None,) * ring, (0,) * ring,
            tuple(held.astype(np.int64).tolist()), (sum(came),) * ring, (0,) * ring, (),
        )  # fmt: skip
