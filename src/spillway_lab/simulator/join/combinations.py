"""What the rows of a simulated join combine to, and at what cost: tables over time.

Arrivals are random and known from the start. A group processes its rows in order, so a row meets what
came in the window before it, wherever and whenever it is processed. A *course* gives the work, results
and state of a group in some shape, once its rows up to a tick are processed. The numbers come from
`policies.shape.costs`, the cost model that also decides.

Rows of one tick meet half of each other, so every pair of two streams counts once, and of three
streams all combinations except a quarter of those whose three rows come in the same tick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spillway.metrics.groups import Floats, Ints
from spillway.plan.shape import Shape
from spillway.policies.shape.costs import COSTS, Estimate, JoinRates, StreamRates
from spillway_lab.simulator.join.scenario import NAMES, JoinScenario

_PAIRS = (("A", "B"), ("A", "C"), ("B", "C"))


@dataclass(frozen=True)
class Course:
    """By group, at the end of each tick: sums of work and results, and the stored state."""

    work: Floats
    results: Floats
    #: Rows and combinations, and their bytes.
    stored: Floats
    bytes: Floats


class Combinations:
    """The rows of all groups, and the courses that follow from them."""

    def __init__(self, scenario: JoinScenario) -> None:
        self._scenario = scenario
        expected = scenario.rates_by_tick() * scenario.tick_s / scenario.groups
        rng = np.random.default_rng([scenario.seed, 2])
        shape = (len(NAMES), scenario.groups, scenario.ticks)
        self.rows = rng.poisson(expected[:, None, :], shape).astype(np.float64)
        #: For each stream and group, the rows before each tick.
        self.before = np.zeros((*shape[:2], scenario.ticks + 1))
        np.cumsum(self.rows, axis=2, out=self.before[:, :, 1:])

    def window(self, groups: Ints, since: int = 0) -> Floats:
        """Rows of each stream and group that a row of each tick meets, from tick `since` on."""
        ends = np.arange(self._scenario.ticks + 1)
        begins = np.clip(ends - self._scenario.window, since, None)
        before = self.before[:, groups]
        return np.asarray(np.maximum(before - before[:, :, np.minimum(begins, len(ends) - 1)], 0))

    def estimate(self, groups: Ints, since: int = 0) -> Estimate:
        """Rates and sizes of all sets of streams, each an array over groups and ticks."""
        scenario = self._scenario
        rows = self.rows[:, groups] * (np.arange(scenario.ticks) >= since)
        met = self.window(groups, since)[:, :, :-1] + rows / 2
        streams = tuple(
            _stream(name, rows[at] / scenario.tick_s, met[at], scenario.row_bytes)
            for at, name in enumerate(NAMES)
        )
        return Estimate(JoinRates(streams, dict.fromkeys(_PAIRS, scenario.matching)))

    def course(self, shape: Shape, groups: Ints, since: int = 0) -> Course:
        """The costs and results of groups in a shape, from their rows since a tick."""
        scenario, estimate = self._scenario, self.estimate(groups, since)
        inner = [estimate.of(node.streams) for node in shape.inner()]
        held = self.window(groups, since)
        made: Any = sum(estimate.stored(some) for some in inner)
        size: Any = sum(estimate.bytes(some) for some in inner)
        results: Any = estimate.flow(estimate.everything, estimate.everything)
        work: Any = estimate.cost(shape).work
        return Course(
            _summed(work * scenario.tick_s),
            _summed(results * scenario.tick_s),
            held.sum(axis=0) + _shifted(made),
            held.sum(axis=0) * scenario.row_bytes + _shifted(size),
        )

    def old_part(self, shape: Shape, groups: Ints, track: int, since: int = 0) -> Course:
        """The rest of a course whose root makes only combinations with a row from before a tick.

        The tree processes new rows too; its root skips combinations of only new rows (PLANS 3.1).
        """
        whole = self.course(shape, groups, since)
        skipped = self.course(shape, groups, track).results
        cost = COSTS.pair + COSTS.result
        return Course(
            whole.work - skipped * cost, whole.results - skipped, whole.stored, whole.bytes
        )

    def making(self, shape: Shape, there: Shape, groups: Ints, at: Floats, since: int = 0) -> float:
        """The work of making the states that one shape has and another lacks, at the given ticks.

        They are made only from the rows since a tick.
        """
        work: Any = self.estimate(groups, since).making(shape, there)
        if np.ndim(work) == 0:
            return 0.0
        last = np.minimum(at.astype(np.int64), self._scenario.ticks - 1)
        return float(work[np.arange(len(groups)), last].sum())


def _stream(name: str, rate: Any, rows: Any, row_bytes: float) -> StreamRates:
    """Arrays in place of the estimate's numbers, which it only adds and multiplies."""
    return StreamRates(name, rate, rows, row_bytes)


def _summed(values: Floats) -> Floats:
    sums = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums


def _shifted(values: Any) -> Floats | float:
    """Running sums at the end of each tick; 0 before the first."""
    if np.ndim(values) == 0:
        return float(values)
    return np.concatenate([np.zeros((len(values), 1)), values], axis=1)


def at_ticks(table: Floats, places: Floats, rows: Ints | None = None) -> Floats:
    """The values of all or some rows of a table, at ticks that may be fractions."""
    row = np.arange(len(table)) if rows is None else rows
    whole = np.minimum(places.astype(np.int64), table.shape[1] - 2)
    low = table[row, whole]
    return np.asarray(low + (table[row, whole + 1] - low) * (places - whole))
