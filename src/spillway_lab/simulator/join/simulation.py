"""`simulate_join`: a join scenario in; journal, series and totals out, the same for a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from spillway.metrics.events import Event, GroupsDeleted, GroupsReactivated, Reshaped
from spillway_lab.simulator.cluster.simulation import Result
from spillway_lab.simulator.join.control import JoinControl
from spillway_lab.simulator.join.joining import NOWHERE
from spillway_lab.simulator.join.scenario import JoinScenario

#: Results are sums of many fractions.
_PART = 1e-6


#: Called with the simulation and the virtual seconds that have passed, once for each sample.
Tell = Callable[["JoinSimulation", float], None]


def simulate_join(scenario: JoinScenario, tell: Tell = lambda *_: None) -> Result:
    """Runs a scenario in virtual time.

    Example:
        >>> found = simulate_join(JoinScenario(seconds=5, work_per_s=1e6))
        >>> found.totals["rows_behind"], found.violations
        (0.0, ())
    """
    return JoinSimulation(scenario).run(tell)


class JoinSimulation:
    """One run: the clock and its ticks."""

    def __init__(self, scenario: JoinScenario) -> None:
        self.scenario = scenario
        self.control = JoinControl(scenario)
        self._series: dict[str, list[float]] = {
            name: [] for name in ("second", "results", "tuples", "lag_s", "moves")
        }
        self._journal: list[tuple[float, Event]] = []
        self._violations: list[str] = []

    @property
    def journal(self) -> Sequence[tuple[float, Event]]:
        """The events so far, with their times."""
        return self._journal

    @property
    def series(self) -> Mapping[str, Sequence[float]]:
        """The points so far."""
        return self._series

    def run(self, tell: Tell = lambda *_: None) -> Result:
        """All ticks."""
        scenario = self.scenario
        per_batch = max(1, round(scenario.batch_s / scenario.tick_s))
        per_sample = max(1, round(scenario.sample_s / scenario.tick_s))
        for now in range(1, scenario.ticks + 1):
            now_s = round(now * scenario.tick_s, 9)
            self.control.joining.tick(now)
            self.control.shipping.tick(now_s)
            if now % per_batch == 0:
                self._journal += [(now_s, event) for event in self.control.commit(now)]
            if now % per_sample == 0:
                self._sample(now, now_s)
                tell(self, now_s)
        return self._result()

    def _count(self, *kinds: type[Event]) -> int:
        return sum(isinstance(event, kinds) for _, event in self._journal)

    def _sample(self, now: int, now_s: float) -> None:
        joining = self.control.joining
        there = joining.slot != NOWHERE
        point = {
            "second": now_s,
            "results": float(joining.made.sum()),
            "tuples": joining.tuples(now),
            "lag_s": (now - float(joining.at[there].min())) * self.scenario.tick_s,
            "moves": float(self._count(GroupsReactivated, GroupsDeleted)),
        }
        for name, value in point.items():
            self._series[name].append(round(value, 6))
        self._violations += self._wrong(now, now_s)

    def _wrong(self, now: int, now_s: float) -> list[str]:
        """Violations; tests/simulation/join/test_joining.py checks more."""
        joining, state = self.control.joining, self.control.state
        groups = self.scenario.groups
        moving = [group for move in state.moves for group in move.groups]
        still = np.setdiff1d(np.arange(groups), moving)
        found = []
        if (joining.slot[:groups] != np.asarray(state.routing.table))[still].any():
            found.append(f"{now_s:g} s: a group is not where its rows are sent")
        if (joining.slot[groups + still] != NOWHERE).any():
            found.append(f"{now_s:g} s: a group is at two slots without a move")
        if (joining.at > now + _PART).any():
            found.append(f"{now_s:g} s: rows were processed before they came")
        # In a group that was on two tracks the receiver may still be behind the sender.
        whole = still[joining.at[still] >= joining.since[still] + self.scenario.window]
        due = joining.due(whole)
        if not np.allclose(joining.made[whole], due, rtol=_PART, atol=_PART):
            found.append(f"{now_s:g} s: results are missing, or were made twice")
        return found

    def _result(self) -> Result:
        joining, scenario = self.control.joining, self.scenario
        totals = {
            "results": float(joining.made.sum()),
            "results_due": float(joining.due(np.arange(scenario.groups), scenario.ticks).sum()),
            "rows_behind": float(
                joining.queued(np.flatnonzero(joining.slot != NOWHERE), scenario.ticks).sum()
            ),
            "moves": self._count(GroupsReactivated, GroupsDeleted),
            "reshapes": self._count(Reshaped),
        }
        return Result(
            scenario,
            {name: tuple(values) for name, values in self._series.items()},
            {name: round(value, 6) for name, value in totals.items()},
            tuple(self._violations[:20]),
            tuple(self._journal),
        )
