"""The simulated cluster: slots and groups as arrays, and one tick of virtual time.

A row waits before its slot (`held`), is on the slot's disk with its group (`spooled`), or is processed.
A group's state is in its slot's memory, on its disk, or in transit (`away`). A slot that reads or writes
state does nothing else (FLUX 6.3); taking groups out or putting them in costs processor time.

The model:
- Processor, disk and links have the rates of the scenario; no caches, switches or faults.
- Rows are a fluid of equal rows, and all sources act as one (spillway_lab/simulator/cluster/flow.py).
  With `noise`, the rows of each group in a tick are random.
- A protocol message takes one commit of the coordinator, longer than a packet's latency; state takes the
  time that its bytes need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from spillway.metrics.groups import Floats, Ints
from spillway_lab.simulator.cluster import flow
from spillway_lab.simulator.cluster.scenario import Scenario
from spillway_lab.simulator.cluster.workload import cpu_left, group_shares, memory_left, turn_of

#: Above this mean, a normal distribution approximates Poisson.
_LARGE = 8.0


@dataclass(frozen=True)
class Tick:
    """What one tick did, by slot."""

    given: float
    #: Rows processed, rows of them that came from disk, and how long they had been at the slot.
    processed: Floats
    unspooled: Floats
    fresh_age_s: Floats
    spool_age_s: Floats
    #: Seconds in which the slot was not idle.
    busy_s: Floats


class Cluster:
    """All slots and groups at one time."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        groups, slots = scenario.groups, scenario.slots
        work = scenario.workload
        self._rng = np.random.default_rng([scenario.seed, 0])
        self._turn = 0
        self.share = group_shares(scenario, 0)
        #: Groups: their slot, waiting rows, and whether the slot may not serve these now.
        self.slot: Ints = np.arange(groups, dtype=np.int64) * slots // groups
        self.held = np.zeros(groups)
        self.stalled = np.zeros(groups, np.bool_)
        #: Whether the group's rows are written for later, those rows, and the sum of their times.
        self.on_disk = np.zeros(groups, np.bool_)
        self.spooled = np.zeros(groups)
        self.spool_moment = np.zeros(groups)
        #: State: rows in memory and on disk, and whether it is between two slots.
        rows = float(work.history_rows or 0) if work.warm else 0.0
        self.state_rows = np.full(groups, rows)
        self.disk_rows = np.zeros(groups)
        self.away = np.zeros(groups, np.bool_)
        self.history = np.inf if work.history_rows is None else float(work.history_rows)
        #: Rows of each group that were processed since this was last set to 0.
        self.done = np.zeros(groups)
        #: Slots: seconds of disk work begun, processor seconds owed, and the groups whose written
        #: rows go first, in this order.
        self.disk_left_s = np.zeros(slots)
        self.owed_s = np.zeros(slots)
        #: Seconds that all slots still wait for the next batch.
        self.waits_s = 0.0
        self.draining: list[list[int]] = [[] for _ in range(slots)]
        #: Since the start: rows given and processed; and rows that sources have not given yet.
        self.given = 0.0
        self.processed = 0.0
        self.behind = 0.0
        #: Seconds of a row in each slot now, given the processor time that others take.
        self.row_wall_s = np.full(slots, scenario.machine.row_s)
        #: The fraction of about the last second in which each slot was not idle.
        self.utilisation = np.zeros(slots)
        self._memory: Ints | None = None

    @property
    def held_rows(self) -> float:
        """Rows that wait before the slots."""
        return float(self.held.sum())

    @property
    def spooled_rows(self) -> float:
        """Rows on disks."""
        return float(self.spooled.sum())

    def sizes(self) -> Ints:
        """Bytes of each group in memory."""
        return (self.state_rows * self.scenario.workload.row_bytes).astype(np.int64)

    def disk_sizes(self) -> Ints:
        """Bytes of each group's state on disk."""
        return (self.disk_rows * self.scenario.workload.row_bytes).astype(np.int64)

    @property
    def memory_bytes(self) -> Ints:
        """State in the memory of each slot."""
        if self._memory is None:
            self._memory = self._by_slot(np.where(self.away, 0, self.sizes()))
        return self._memory

    @property
    def disk_bytes(self) -> Ints:
        """State on the disk of each slot."""
        return self._by_slot(np.where(self.away, 0, self.disk_sizes()))

    def forget_sums(self) -> None:
        """Drops cached sums; call it after state has moved."""
        self._memory = None

    def _by_slot(self, values: Ints) -> Ints:
        found = np.bincount(self.slot, weights=values, minlength=self.scenario.slots)
        return found.astype(np.int64)

    def limits(self, now_s: float) -> Ints:
        """Bytes of state that each slot may hold in memory now."""
        return memory_left(self.scenario, now_s)

    def tick(self, now_s: float) -> Tick:
        """One tick of virtual time, which begins now."""
        scenario, machine = self.scenario, self.scenario.machine
        self._take_turn(now_s)
        left = cpu_left(scenario, now_s)
        blocked = np.minimum(self.disk_left_s, scenario.tick_s)
        self.disk_left_s -= blocked
        waits_s = min(self.waits_s, scenario.tick_s)
        self.waits_s -= waits_s
        free_s = np.maximum(scenario.tick_s - blocked - waits_s, 0)
        whole_s = free_s * left
        paid = np.minimum(self.owed_s, whole_s)
        self.owed_s -= paid
        row_cost = np.full(scenario.slots, machine.row_s + machine.produce_s)
        self.row_wall_s = row_cost / left
        # The disk writes at full speed even if others use the processor.
        spool_s = machine.spool_s * scenario.workload.row_bytes
        spool_cost = machine.produce_s + spool_s * left
        unspooled, age = self._drain(now_s, whole_s - paid, machine.row_s)
        time_s = whole_s - paid - unspooled * machine.row_s
        given, part, work = self._given(time_s, row_cost, spool_cost)
        fresh, _ = flow.serve(self._groups(), part, given, now_s, self.history)
        if not (scenario.workload.warm and scenario.workload.history_rows):
            self.forget_sums()
        used = paid + unspooled * machine.row_s + work
        busy = blocked + free_s * np.minimum(1, used / np.maximum(whole_s, 1e-12))
        weight = min(1.0, scenario.tick_s)
        self.utilisation += weight * (busy / scenario.tick_s - self.utilisation)
        processed = fresh + unspooled
        self.given += given
        self.processed += float(processed.sum())
        return Tick(
            given, processed, unspooled, machine.row_s / left + machine.latency_s, age, busy
        )

    def _take_turn(self, now_s: float) -> None:
        turn = turn_of(self.scenario.workload, now_s)
        if turn != self._turn:
            self._turn, self.share = turn, group_shares(self.scenario, turn)

    def _drain(self, now_s: float, time_s: Floats, row_s: float) -> tuple[Floats, Floats]:
        """Processes rows from disk first, for groups just read."""
        rows, age = np.zeros(len(time_s)), np.zeros(len(time_s))
        at = np.array([slot for slot, groups in enumerate(self.draining) if groups], np.int64)
        if not len(at):
            return rows, age
        group = np.array([self.draining[slot][0] for slot in at.tolist()], np.int64)
        there = self.spooled[group]
        rows[at] = np.minimum(there, time_s[at] / row_s)
        mean = self.spool_moment[group] / np.maximum(there, 1e-12)
        age[at] = np.where(there > 0, np.maximum(now_s - mean, 0), 0)
        self.spooled[group] -= rows[at]
        self.spool_moment[group] -= rows[at] * mean
        self.done[group] += rows[at]
        self.state_rows[group] = np.minimum(self.history, self.state_rows[group] + rows[at])
        empty = rows[at] >= there
        self.spooled[group[empty]] = self.spool_moment[group[empty]] = 0.0
        for slot in at[empty].tolist():
            self.draining[slot].pop(0)
        return rows, age

    def _given(
        self, time_s: Floats, row_cost: Floats, spool_cost: Floats
    ) -> tuple[float, Floats, Floats]:
        """Rows that the sources give; the fraction of its rows that each slot serves; and its work."""
        offered = self._offered()
        # Given rows are served or wait, so this is an upper bound.
        least_cost = min(row_cost.min(), spool_cost.min())
        most = min(offered, float(time_s.sum() / least_cost) + sum(self._rooms()) * len(time_s))
        self._now = self.share
        table, given = self._room(most, time_s, row_cost, spool_cost)
        if self.scenario.noise and given > 0:
            drawn = self._drawn(given * self.share)
            if drawn.any():
                self._now = drawn / drawn.sum()
                table, given = self._room(most, time_s, row_cost, spool_cost)
        if self.scenario.workload.rows_per_s is not None:
            self.behind = offered - given
        work = table[flow.WORK] + given * table[flow.MORE_WORK]
        part = np.minimum(1.0, time_s / np.maximum(work, 1e-300))
        return given, part, np.minimum(work, time_s)

    def _drawn(self, mean: Floats) -> Floats:
        """Poisson numbers with these means; for large means normal ones, which cost less."""
        large = mean >= _LARGE
        drawn = np.empty(len(mean))
        drawn[~large] = self._rng.poisson(mean[~large])
        some = mean[large]
        drawn[large] = np.maximum(some + np.sqrt(some) * self._rng.standard_normal(len(some)), 0)
        return drawn

    def _offered(self) -> float:
        """Rows that the sources have: as many as they can produce, or as are due."""
        scenario = self.scenario
        rate, produce_s = scenario.workload.rows_per_s, scenario.machine.produce_s
        if rate is not None:
            return rate * scenario.tick_s + self.behind
        return scenario.slots * scenario.tick_s / produce_s if produce_s > 0 else math.inf

    def _rooms(self) -> tuple[float, float]:
        """How many rows may be in transit to a slot, and how many may wait for it."""
        # Every machine has a source, so a slot has as many links as there are slots.
        exchange, slots = self.scenario.exchange, self.scenario.slots
        return exchange.link_rows * slots, float(exchange.buffer_rows)

    def _groups(self) -> flow.Groups:
        return flow.Groups(
            self.slot, self._now, self.held, self.stalled, self.on_disk,
            self.spooled, self.spool_moment, self.done, self.state_rows,
        )  # fmt: skip

    def _room(
        self, most: float, time_s: Floats, row_cost: Floats, spool_cost: Floats
    ) -> tuple[Floats, float]:
        table = flow.waiting(self._groups(), row_cost, spool_cost)
        link, room = self._rooms()
        shared = self.scenario.exchange.kind == "buffer"
        all_room = room * len(time_s) if shared else room
        return table, flow.admitted(table, most, time_s, link, all_room, shared)
