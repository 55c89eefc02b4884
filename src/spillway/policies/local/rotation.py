"""Rotation: groups take turns in memory, the local policy of FLUX section 6.1.

Groups in memory and groups on disk, with their waiting input, form two queues. When the newest
group in memory has been there for t_gap, the group whose input has waited longest enters. The
groups longest in memory leave, as many as needed to make room.

Beyond the paper: a group on disk without input stays there. If turns are decided only between
batches, all due turns start at once, as far as they fit.

Invariant: afterwards the groups in memory fit, unless a single group exceeds memory: it is alone
    for its turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from spillway.metrics.events import Reloaded
from spillway.metrics.groups import Ints
from spillway.metrics.record import SlotRecord
from spillway.policies.cluster.tuning import GapTuner
from spillway.slot.controller import Turn, Waiting


@dataclass(frozen=True)
class Rotation:
    """The policy and its settings."""

    #: Seconds between turns; the paper's rule is the time to read a group.
    t_gap_s: float
    #: Fraction of memory up to which groups return without a turn: state grows, and they would
    #: spill again.
    fill: float = 0.9

    def turn(self, table: Waiting, limit_bytes: int, now_s: float) -> Turn:
        """Decides which groups leave and enter now.

        Example:
            >>> two = Waiting(np.array([4, 7]), np.array([60, 60]), np.array([True, False]),
            ...     np.array([0.0, 0.0]), np.array([0, 5]), np.array([0.0, 1.0]))
            >>> Rotation(t_gap_s=2.0).turn(two, 100, now_s=3.0)
            Turn(leave=(4,), enter=(7,), reason='1 turn of 2 s: input has waited 2 s')
        """
        inside = np.flatnonzero(table.in_memory)
        inside = inside[np.argsort(table.since_s[inside], kind="stable")]
        held = int(table.state_bytes[inside].sum())
        if held > limit_bytes and len(inside) > 1:
            return _cut(table, inside, held, limit_bytes)
        outside = np.flatnonzero(~table.in_memory)
        if not len(outside):
            return Turn((), (), "all groups are in memory")
        due = outside[table.spooled_bytes[outside] > 0]
        due = due[np.argsort(table.waiting_s[due], kind="stable")]
        return self._back(table, due, outside, held, limit_bytes) or self._turns(
            table, inside, due, limit_bytes, now_s
        )

    def _back(
        self, table: Waiting, due: Ints, outside: Ints, held: int, limit_bytes: int
    ) -> Turn | None:
        """Loads groups that fit into memory, those with input first; they need no turn."""
        idle = outside[table.spooled_bytes[outside] == 0]
        order = np.concatenate([due, idle])
        room = int(limit_bytes * self.fill) - held
        count = int(np.searchsorted(np.cumsum(table.state_bytes[order]), room, side="right"))
        if not count:
            return None
        return Turn((), _named(table, order[:count]), f"room for {room} bytes in memory")

    def _turns(
        self, table: Waiting, inside: Ints, due: Ints, limit_bytes: int, now_s: float
    ) -> Turn:
        """Returns the turns that are due since a group last entered."""
        if not len(due):
            return Turn((), (), "no input waits for a group on disk")
        turns = self._due(table, inside, len(due), now_s)
        if not turns:
            return Turn((), (), f"the last turn was less than {self.t_gap_s:g} s ago")
        enter = due[:turns]
        fits = int(np.searchsorted(np.cumsum(table.state_bytes[enter]), limit_bytes, side="right"))
        enter = enter[: max(fits, 1)]
        more = int(table.state_bytes[enter].sum())
        left = np.cumsum(table.state_bytes[inside][::-1])
        stay = int(np.searchsorted(left, limit_bytes - more, side="right"))
        leave = inside[: len(inside) - stay]
        waited = now_s - float(table.waiting_s[enter[0]])
        noun = "turn" if len(enter) == 1 else "turns"
        reason = f"{len(enter)} {noun} of {self.t_gap_s:g} s: input has waited {waited:g} s"
        if more > limit_bytes:
            reason += f"; the group has {more} bytes, which exceeds the memory of {limit_bytes}"
        return Turn(_named(table, leave), _named(table, enter), reason)

    def _due(self, table: Waiting, inside: Ints, most: int, now_s: float) -> int:
        if not len(inside) or self.t_gap_s <= 0:
            return most
        since_s = float(table.since_s[inside].max())
        return max(0, min(most, int((now_s - since_s) / self.t_gap_s)))


@dataclass(frozen=True)
class TurnGaps:
    """t_gap of each slot: given, or tuned from the backlog (policies/cluster/tuning.py)."""

    #: Seconds; None: tuned for each slot.
    given_s: float | None = None
    tuners: Mapping[int, GapTuner] = field(default_factory=dict)

    def seconds(self, slots: int) -> dict[int, float]:
        """Returns the seconds between turns in each slot; before any read, turns start at once."""
        if self.given_s is not None:
            return dict.fromkeys(range(slots), self.given_s)
        return {slot: self.tuners.get(slot, GapTuner()).t_gap_s for slot in range(slots)}

    def observed(self, records: Mapping[int, SlotRecord], batch_s: float) -> TurnGaps:
        """Returns the gaps after a batch that took `batch_s`."""
        tuners = dict(self.tuners)
        for slot, record in records.items():
            turns = [event for event in record.events if isinstance(event, Reloaded)]
            if groups := sum(len(event.groups) for event in turns):
                read_s = sum(event.seconds for event in turns) / groups
                used = record.busy_s / batch_s if batch_s > 0 else 1.0
                known = tuners.get(slot, GapTuner())
                tuners[slot] = known.observe(read_s, record.spooled_bytes, used)
        return replace(self, tuners=tuners)


def _cut(table: Waiting, inside: Ints, held: int, limit_bytes: int) -> Turn:
    """Memory has shrunk or state has grown: the first to enter leave until the rest fits."""
    after = held - np.cumsum(table.state_bytes[inside])
    count = min(int(np.argmax(after <= limit_bytes)) + 1, len(inside) - 1)
    reason = f"{held} bytes in memory, limit {limit_bytes}"
    return Turn(_named(table, inside[:count]), (), reason)


def _named(table: Waiting, places: Ints) -> tuple[int, ...]:
    return tuple(table.groups[places].tolist())
