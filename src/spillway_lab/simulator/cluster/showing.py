"""The feed of a simulated cluster: the dashboard without a cluster.

One message for each sample of virtual time. `paced` runs virtual time at a speed that people can follow.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spillway.codec import plain
from spillway.dashboard.feed.happenings import happenings_of, moving_of
from spillway.dashboard.feed.heat import heat_of
from spillway.dashboard.feed.history import MOST_HAPPENINGS
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
from spillway_lab.simulator.cluster.scenario import Scenario
from spillway_lab.simulator.cluster.simulation import Result, Simulation

Publish = Callable[[News], None]


def about_of(scenario: Scenario) -> About:
    """What a scenario simulates, for the head of the page."""
    return About(
        title=f"simulation {scenario.name}",
        source="simulation",
        run=uuid.uuid4().hex,
        clock=VIRTUAL,
        sink="results",
        stages=(
            StageAbout(
                operator="windowed group-by",
                streams=("rows",),
                groups=scenario.groups,
                strategy=scenario.settings.strategy_name,
            ),
        ),
    )


@dataclass
class Showing:
    """Publishes what a simulation does; give its `sample` to `Simulation.run`."""

    simulation: Simulation
    publish: Publish
    #: Samples for each table of the groups.
    samples_per_heat: int = 1

    def __post_init__(self) -> None:
        self._told = 0
        self._samples = 0
        self.publish(
            News(whole=True, about=about_of(self.simulation.scenario), status=RUNNING, now_s=0.0)
        )

    def sample(self, now_s: float) -> None:
        """Publishes one sample."""
        heats: tuple[Heat, ...] = ()
        control = self.simulation.control
        if self._samples % self.samples_per_heat == 0:
            slots = self.simulation.cluster.slot.tolist()
            table = control.current()
            heats = (heat_of(table, slots, stage=0, batch=control.batch, at_s=now_s),)
        self._samples += 1
        self.publish(
            News(
                now_s=now_s,
                points=(self._point(now_s),),
                happenings=self._happenings(),
                slots=(self._slots(now_s),),
                heats=heats,
            )
        )

    def end(self, result: Result) -> None:
        """Says that it has ended."""
        wrong = f"; {len(result.violations)} checks failed" if result.violations else ""
        seconds = f"{result.scenario.seconds:g}"
        self.publish(News(status=ENDED, told=f"{seconds} virtual seconds have passed{wrong}"))

    def _point(self, now_s: float) -> Point:
        simulation = self.simulation
        last = {name: values[-1] for name, values in simulation.series.items()}
        seconds, results = simulation.scenario.sample_s, simulation.scenario.workload.results
        rows = round(last["rows_per_s"] * seconds)
        return Point(
            at_s=now_s,
            stage=0,
            batch=simulation.control.batch,
            seconds=simulation.scenario.batch_s,
            rows_in=(rows,),
            rows_out=round(rows * results),
            memory_bytes=int(last["memory_bytes"]),
            disk_bytes=int(last["disk_bytes"]),
            waiting_rows=round(last["buffered_rows"] + last["spooled_rows"]),
            busy=tuple(
                round(min(1.0, last[name]), 4)
                for name in ("utilisation_least", "utilisation", "utilisation_most")
            ),
        )

    def _happenings(self) -> tuple[Happening, ...]:
        simulation = self.simulation
        fresh = min(simulation.events - self._told, len(simulation.journal), MOST_HAPPENINGS)
        newest = [simulation.journal[at] for at in range(-fresh, 0)]
        first = simulation.events - fresh + 1
        self._told = simulation.events
        return tuple(
            line
            for at, (at_s, event) in enumerate(newest)
            for line in happenings_of([plain(event)], stage=0, at_s=at_s, first=first + at)
        )

    def _slots(self, now_s: float) -> Slots:
        simulation, cluster = self.simulation, self.simulation.cluster
        slots, control = simulation.scenario.slots, simulation.control
        share = np.bincount(cluster.slot, weights=cluster.share, minlength=slots)
        rows = simulation.series["rows_per_s"][-1] * simulation.scenario.sample_s
        arrived = np.rint(share * rows).astype(int).tolist()
        state = np.bincount(
            cluster.slot, weights=cluster.state_rows + cluster.disk_rows, minlength=slots
        )
        results = simulation.scenario.workload.results
        spills = control.rules.strategy.spills
        limits = cluster.limits(now_s).tolist()
        return Slots(
            stage=0,
            batch=control.batch,
            memory_bytes=tuple(cluster.memory_bytes.tolist()),
            limit_bytes=tuple(limits) if spills else (None,) * slots,
            disk_bytes=tuple(cluster.disk_bytes.tolist()),
            rows=tuple(np.rint(state).astype(int).tolist()),
            rows_in=tuple(arrived),
            rows_out=tuple(round(one * results) for one in arrived),
            busy=tuple(np.clip(cluster.utilisation, 0, 1).round(3).tolist()),
            moves=moving_of([plain(move) for move in control.state.moves]),
        )


def show(
    scenario: Scenario, publish: Publish, *, speed: float | None = None, samples_per_heat: int = 1
) -> Result:
    """Runs a scenario and publishes it; `speed` is virtual seconds per second, None: no pauses."""
    simulation = Simulation(scenario)
    showing = Showing(simulation, publish, samples_per_heat)
    began_s = time.monotonic()

    def tell(now_s: float) -> None:
        showing.sample(now_s)
        if speed is not None:
            time.sleep(max(0.0, began_s + now_s / speed - time.monotonic()))

    result = simulation.run(tell)
    showing.end(result)
    return result
