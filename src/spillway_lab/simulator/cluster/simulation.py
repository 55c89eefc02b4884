"""`simulate`: a scenario in; journal, series and totals out. The same seed gives the same bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spillway.codec import plain
from spillway.metrics.events import Event, GroupsReactivated, Spilled
from spillway_lab.simulator.cluster.checkers import Checker
from spillway_lab.simulator.cluster.cluster import Cluster
from spillway_lab.simulator.cluster.control import Control
from spillway_lab.simulator.cluster.disks import Disks
from spillway_lab.simulator.cluster.presets import preset
from spillway_lab.simulator.cluster.scenario import Scenario
from spillway_lab.simulator.cluster.series import Recorder
from spillway_lab.simulator.join.scenario import JoinScenario
from spillway_lab.simulator.network import Network
from spillway_lab.simulator.outcome import Outcome

#: A journal keeps this many events, the newest.
JOURNAL = 200_000

#: Called with the virtual seconds that have passed.
Tell = Callable[[float], None]


@dataclass(frozen=True)
class Result(Outcome[Scenario | JoinScenario]):
    """The outcome for a cluster; simulator/cluster/series.py defines its series."""

    #: Events with the virtual time at which the coordinator knew of them.
    journal: tuple[tuple[float, Event], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        journal = [{"at_s": at, **plain(event)} for at, event in self.journal]
        return {**super().to_json(), "journal": journal}


def simulate(scenario: Scenario | str, *, tell: Tell = lambda _: None) -> Result:
    """Runs a scenario, or the preset with this name, in virtual time.

    Example:
        >>> found = simulate(Scenario(seconds=1, slots=4, groups=64, noise=False))
        >>> round(found.totals["rows_processed"] / 1000)
        88
    """
    return Simulation(preset(scenario) if isinstance(scenario, str) else scenario).run(tell)


class Simulation:
    """One run: the clock and its ticks."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.cluster = Cluster(scenario)
        self.network = Network(self.cluster)
        self.control = Control(self.cluster, self.network)
        self.disks = Disks(self.cluster, self.control)
        self.checker = Checker(scenario)
        self._recorder = Recorder(scenario.slots)
        self._journal: deque[tuple[float, Event]] = deque(maxlen=JOURNAL)
        self._counts = {"moves": 0, "spills": 0, "events": 0}
        self._unanswered: set[int] | None = None
        #: Rows of the batches that have ended, where batches are made of rows.
        self._batched = 0.0

    @property
    def series(self) -> Mapping[str, Sequence[float]]:
        """The points so far."""
        return self._recorder.series

    @property
    def journal(self) -> Sequence[tuple[float, Event]]:
        """The events so far, with their times; the oldest may be forgotten."""
        return self._journal

    @property
    def events(self) -> int:
        """How many events there were so far."""
        return self._counts["events"]

    def run(self, tell: Tell) -> Result:
        """All ticks."""
        scenario = self.scenario
        per_sample = max(1, round(scenario.sample_s / scenario.tick_s))
        for number in range(1, round(scenario.seconds / scenario.tick_s) + 1):
            now_s = round(number * scenario.tick_s, 9)
            self._tick(round(now_s - scenario.tick_s, 9), now_s)
            if self._unanswered is None and self._batch_ends(number):
                self._unanswered = self.control.asked
            self._commit_if_answered(now_s)
            self.disks.begin(now_s)
            if number % per_sample == 0:
                self._recorder.point(self.cluster, now_s, self._counts["moves"])
                self.checker.check(self, now_s)
                tell(now_s)
        return self._result()

    def _batch_ends(self, number: int) -> bool:
        """Whether the batch ends with this tick: by its time, or by its rows."""
        scenario, cluster = self.scenario, self.cluster
        if scenario.batch_rows is None:
            return number % max(1, round(scenario.batch_s / scenario.tick_s)) == 0
        if cluster.given - self._batched < scenario.batch_rows:
            return False
        self._batched += scenario.batch_rows
        cluster.waits_s += scenario.batch_fixed_s
        return True

    def _tick(self, from_s: float, now_s: float) -> None:
        tick = self.cluster.tick(from_s)
        self.network.tick(now_s)
        self.disks.end()
        self.control.add(tick)
        self._recorder.add(tick, self.cluster, self.scenario.tick_s)

    def _commit_if_answered(self, now_s: float) -> None:
        if self._unanswered is None:
            return
        self._unanswered &= self.disks.busy()
        if self._unanswered:
            return
        self._unanswered = None
        events = self.control.commit(now_s)
        self.disks.force(self.control.obey())
        self._counts["events"] += len(events)
        for event in events:
            self._journal.append((now_s, event))
            self._counts["moves"] += isinstance(event, GroupsReactivated)
            self._counts["spills"] += isinstance(event, Spilled)

    def _result(self) -> Result:
        cluster = self.cluster
        totals = {
            "rows_given": cluster.given,
            "rows_processed": cluster.processed,
            "rows_buffered": cluster.held_rows,
            "rows_spooled": cluster.spooled_rows,
            "rows_behind": cluster.behind,
            "rows_per_s": cluster.processed / self.scenario.seconds,
            **self._counts,
        }
        return Result(
            self.scenario,
            {name: tuple(values) for name, values in self._recorder.series.items()},
            {name: round(value, 6) for name, value in totals.items()},
            self.checker.violations,
            tuple(self._journal),
        )
