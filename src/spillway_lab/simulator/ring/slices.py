"""Which slot has which slice of a simulated join, during the whole run.

A bucket is a slice of time, the same for all streams. The routing names the slot of its group, bucket
mod groups. It stays there unless aggressive adjustment moves it. Decisions depend on arrivals, not on
processing speed, so all are known in advance.

The policies are the query's own: `smoothed` and `resize` of policies/ring/slicing.py, `scaling_moves`,
`movers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spillway.metrics.groups import Floats, GroupTable, Ints
from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.cluster.scaling import scaling_moves
from spillway.policies.local.relocation import movers
from spillway.policies.ring.slicing import RingRules, resize, smoothed
from spillway_lab.simulator.ring.scenario import RingScenario


@dataclass(frozen=True)
class Placement:
    """The homes of slices, and how many slots a row visits."""

    width_s: float
    #: The second from which rows see each version of the homes; and its slot for every bucket.
    since_s: Floats
    homes: Ints
    #: The length of the ring, by bucket of the travelling row.
    ring: Ints
    #: How long the ring takes no rows, after each of `since_s`.
    pauses_s: Floats
    moves: int

    def bucket(self, times: Floats) -> Ints:
        """The bucket of each time."""
        found = (times / self.width_s).astype(np.int64)
        return np.asarray(np.minimum(found, self.homes.shape[1] - 1))

    def epoch(self, times: Floats) -> Ints:
        """The version of the homes that a row of each time sees."""
        return np.searchsorted(self.since_s, times, side="right") - 1


def fixed(scenario: RingScenario, slots: int) -> Placement:
    """Slices rotate over the slots; nothing changes."""
    return still(scenario, (np.arange(scenario.groups) % slots)[None, :], slots)


def still(scenario: RingScenario, tables: Ints, slots: int) -> Placement:
    """Slices are where the tables put them, one table per epoch of a row; nothing changes.

    A table has the slot of each slice of a period, which is twice a window.
    """
    width_s = 2 * scenario.window_s / tables.shape[1]
    buckets = int(np.ceil(scenario.seconds / width_s)) + 1
    homes, zero = tables[:, np.arange(buckets) % tables.shape[1]], np.zeros(1)
    return Placement(width_s, zero, homes, np.full(buckets, slots), zero, 0)


def placed(scenario: RingScenario, times: Sequence[Floats]) -> Placement:
    """Where the slices of rows with these times go, by stream."""
    if scenario.adjustment == "none":
        return fixed(scenario, scenario.slots)
    return _Placer(scenario, times).run()


def _width_s(scenario: RingScenario) -> float:
    return 2 * scenario.window_s / scenario.groups


def _buckets(scenario: RingScenario) -> int:
    return int(np.ceil(scenario.seconds / _width_s(scenario))) + 1


class _Placer:
    """Makes the evaluations of a run, one after the other."""

    def __init__(self, scenario: RingScenario, times: Sequence[Floats]) -> None:
        self._scenario = scenario
        self._width_s, self._buckets = _width_s(scenario), _buckets(scenario)
        at = np.concatenate([(one / self._width_s).astype(np.int64) for one in times])
        #: Rows of all streams in each bucket.
        self._rows = np.bincount(at, minlength=self._buckets).astype(float)
        self._home = np.zeros(self._buckets, np.int64)
        self._ring = np.zeros(self._buckets, np.int64)
        self._table = [group % scenario.slots for group in range(scenario.groups)]
        self._slots = scenario.slots
        self._since, self._pauses = [0.0], [0.0]
        self._homes: list[Ints] = []
        self._moves = 0

    def run(self) -> Placement:
        """All buckets, with an evaluation every `evaluate_s`."""
        every = max(1, round(self._scenario.evaluate_s / self._width_s))
        for bucket in range(self._buckets):
            if bucket and bucket % every == 0:
                self._evaluate(bucket, every)
            self._home[bucket] = self._table[bucket % self._scenario.groups]
            live = self._home[max(0, bucket - self._live) : bucket + 1]
            self._ring[bucket] = max(self._slots, int(live.max()) + 1)
        self._homes.append(self._home.copy())
        return Placement(
            self._width_s,
            np.array(self._since),
            np.stack(self._homes),
            self._ring,
            np.array(self._pauses),
            self._moves,
        )

    @property
    def _live(self) -> int:
        """Buckets before the current one that still have rows in the window."""
        return self._scenario.groups // 2

    def _evaluate(self, bucket: int, every: int) -> None:
        scenario = self._scenario
        came = self._rows[bucket - every : bucket].sum()
        rate = came / (every * self._width_s) / scenario.streams
        aggressive = scenario.adjustment == "aggressive"
        if scenario.adjustment != "smoothing":
            rules = RingRules(scenario.most, adjustment=scenario.adjustment)
            wanted = resize(scenario.sources(rate), scenario.costs, self._slots, rules)
            if wanted is not None:
                old, self._slots = self._slots, wanted.slots
                if aggressive:
                    self._move(bucket, old)
        held = self._held(bucket)
        groups, live = scenario.groups, self._live
        ahead = [(bucket + n) % groups for n in range(groups - live - 1)]
        behind = [(bucket - live + n) % groups for n in range(live)]
        found = smoothed(self._table, held.tolist(), ahead, came / every, self._slots, behind)
        if found is not None:
            for group, slot in found.to.items():
                self._table[group] = slot

    def _held(self, bucket: int) -> Floats:
        """Rows of each group before a bucket is built."""
        live = np.arange(max(0, bucket - self._live), bucket)
        held = np.zeros(self._scenario.groups)
        held[live % self._scenario.groups] = self._rows[live]
        return held

    def _move(self, bucket: int, old: int) -> None:
        """Aggressive adjustment: moves slices until balanced, and records their homes."""
        scenario, before = self._scenario, self._home.copy()
        sizes = (self._held(bucket) * scenario.row_bytes).astype(np.int64)
        tries = dict.fromkeys(range(old, self._slots), 0)
        moved_bytes = 0
        while moves := scaling_moves(self._view(sizes, max(old, self._slots)), self._slots, tries):
            for move in moves:
                tries[move.receiver] = tries.get(move.receiver, 0) + 1
                owned = [group for group, slot in enumerate(self._table) if slot == move.sender]
                bytes_ = np.where(np.asarray(self._table) == move.sender, sizes, 0)[None, :]
                table = replace(GroupTable.empty(scenario.groups, 1), bytes=bytes_, rows=bytes_)
                chosen = movers(
                    table,
                    owned,
                    move.bytes,
                    least_groups=move.groups,
                    everything=move.everything,
                )
                for group in chosen.groups:
                    self._table[group] = move.receiver
                    moved_bytes += int(sizes[group])
                self._moves += 1
        live = np.arange(max(0, bucket - self._live), bucket)
        self._home[live] = np.asarray(self._table)[live % scenario.groups]
        self._homes.append(before)
        self._since.append(bucket * self._width_s)
        self._pauses.append(moved_bytes / scenario.link_bytes_per_s)

    def _view(self, sizes: Ints, slots: int) -> ClusterView:
        table = np.asarray(self._table)
        held = np.bincount(table, weights=sizes, minlength=slots).astype(np.int64)
        groups = np.bincount(table, minlength=slots)
        return ClusterView(
            tuple(
                SlotView(slot, int(held[slot]), 0, None, int(groups[slot]), 0)
                for slot in range(slots)
            )
        )
