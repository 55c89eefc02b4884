"""What must be true of a simulation at any time, checked apart from the code that ensures it.

    rows     given = processed + waiting + on disk: none lost, none doubled
    groups   each is at the slot that the coordinator routes it to, or in transit in exactly one move
    memory   no slot exceeds its limit, unless it is freeing memory
    buffer   no more rows wait than there is room for

A group larger than memory may have all of it during its turn.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from spillway.protocols.move import Phase
from spillway_lab.simulator.cluster.scenario import Scenario

if TYPE_CHECKING:
    from spillway_lab.simulator.cluster.simulation import Simulation

#: Tolerance: row counts are sums of many fractions.
_PART = 1e-9
#: Reports at most this many violations; the first ones tell what is wrong.
_MOST = 20


class Checker:
    """Checks a simulation from time to time, and records violations."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._found: list[str] = []

    @property
    def violations(self) -> tuple[str, ...]:
        """The violations, with the times at which they were found."""
        return tuple(self._found)

    def check(self, simulation: Simulation, now_s: float) -> None:
        """All checks."""
        for name, check in _CHECKS.items():
            wrong = check(simulation, now_s)
            if wrong and len(self._found) < _MOST:
                self._found.append(f"{now_s:g} s, {name}: {wrong}")


def rows_are_conserved(simulation: Simulation, _: float) -> str | None:
    """Rows given against rows accounted for."""
    cluster = simulation.cluster
    there = cluster.processed + cluster.held_rows + cluster.spooled_rows
    if abs(cluster.given - there) > _PART * max(1.0, cluster.given):
        return f"{cluster.given} rows were given, {there} are accounted for"
    if min(cluster.held.min(), cluster.spooled.min()) < -1e-6:
        return "a group has a negative number of rows"
    return None


def groups_are_in_one_place(simulation: Simulation, _: float) -> str | None:
    """Where state and rows are against the routing and the moves of the coordinator."""
    cluster, state = simulation.cluster, simulation.control.state
    moving = Counter(group for move in state.moves for group in move.groups)
    if moving and max(moving.values()) > 1:
        return "a group is in two moves"
    still = np.ones(len(cluster.slot), np.bool_)
    still[list(moving)] = False
    if (cluster.slot != np.asarray(state.routing.table))[still].any():
        return "a group is not where its rows are sent"
    if (cluster.stalled | cluster.away)[still].any():
        return "a group waits but is not in a move"
    if (cluster.on_disk & (cluster.state_rows > 0)).any():
        return "a group is on disk and in memory"
    sent = {g for m in state.moves if m.phase is not Phase.COMPUTING for g in m.groups}
    away = set(np.flatnonzero(cluster.away).tolist())
    return None if away <= sent else "state is on its way without a move"


def memory_is_within_limits(simulation: Simulation, now_s: float) -> str | None:
    """The memory of slots that are not about to free some."""
    if not simulation.control.rules.strategy.spills:
        return None
    cluster = simulation.cluster
    there = np.bincount(cluster.slot, weights=cluster.state_rows > 0)
    over = set(np.flatnonzero(cluster.memory_bytes > cluster.limits(now_s)).tolist())
    over -= set(np.flatnonzero(there <= 1).tolist())
    over -= simulation.disks.busy() | simulation.control.relocating
    return f"slots {sorted(over)} have too much in memory" if over else None


def buffers_are_bounded(simulation: Simulation, _: float) -> str | None:
    """Rows that wait, against links and buffers together."""
    scenario, cluster = simulation.scenario, simulation.cluster
    exchange, slots = scenario.exchange, scenario.slots
    room = slots * (exchange.link_rows * slots + exchange.buffer_rows)
    if cluster.held_rows > room * (1 + _PART):
        return f"{cluster.held_rows} rows wait, but there is room for {room}"
    return None


_CHECKS = {
    "rows": rows_are_conserved,
    "groups": groups_are_in_one_place,
    "memory": memory_is_within_limits,
    "buffer": buffers_are_bounded,
}
