"""Slots that run windowed joins, in virtual time: who processes which rows, and how far they are.

A *unit* is a group at a slot. Its place is the tick up to which its rows are processed. A slot does
`work_per_s`, and serves the units furthest behind first. Shipping and making state goes before rows,
and so do the rows of leaving groups: a sender processes them first (PLANS, Algorithm 4, line 11).

A group on two tracks is two units. The sender's has all rows, and makes only combinations with an old
one; the receiver's has only new rows. Old rows are purged when the sender has processed the new rows
of `track_windows` windows. PLANS has a window at each join, so a combination of old and new may wait
at the next join: two windows for a tree. In Spillway a combination lives as long as all its rows, and
one window is enough.

Rows of one tick are equal; memory is unlimited, and batches follow without a pause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel
from spillway.metrics.groups import Floats, Ints
from spillway.plan.shape import Shape
from spillway_lab.simulator.join.combinations import Combinations, Course, at_ticks
from spillway_lab.simulator.join.scenario import JoinScenario

#: The slot of a unit that does not exist.
NOWHERE = -1
#: Bisection steps to find a level, to a tick in 1e9.
_HALVINGS = 40
_COLUMNS = ("work", "results", "stored", "bytes")


@kernel
def needed(slot: Ints, at: Floats, until: Floats, work: Floats, mine: int, level: float) -> float:
    """The work that brings the units of a slot up to a tick."""
    total = 0.0
    for u in range(slot.shape[0]):
        end = min(level, until[u])
        if slot[u] == mine and end > at[u]:
            total += _at(work[u], end) - _at(work[u], at[u])
    return total


@kernel
def _at(sums: Floats, place: float) -> Any:
    whole = min(int(place), sums.shape[0] - 2)
    return sums[whole] + (sums[whole + 1] - sums[whole]) * (place - whole)


@kernel
def serve(now: float, room: Floats, slot: Ints, at: Floats, until: Floats, work: Floats) -> Any:
    """Lets all slots do as much work as they can, units furthest behind first; returns the work done.

    Changes `at`, the places of the units; none goes beyond `until` or now.
    """
    done = np.zeros(room.shape[0])
    for s in range(room.shape[0]):
        level, spent = now, needed(slot, at, until, work, s, now)
        if spent > room[s]:
            low, high = 0.0, now
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                if needed(slot, at, until, work, s, middle) > room[s]:
                    high = middle
                else:
                    low = middle
            level, spent = low, needed(slot, at, until, work, s, low)
        for u in range(slot.shape[0]):
            end = min(level, until[u])
            if slot[u] == s and end > at[u]:
                at[u] = end
        done[s] = spent
    return done


class Joining:
    """All slots and units at one time."""

    def __init__(self, scenario: JoinScenario, table: Ints) -> None:
        self.scenario = scenario
        self.combinations = Combinations(scenario)
        self._arrived = self.combinations.before.sum(axis=0)
        groups = scenario.groups
        whole = self.combinations.course(scenario.first_shapes[0], np.arange(groups))
        self._due = whole.results
        self.shape: list[Shape] = list(scenario.first_shapes)
        #: Units: a group, and after all groups those on the second track.
        none = np.full(groups, NOWHERE, np.int64)
        self.slot: Ints = np.concatenate([table, none])
        self.at = np.zeros(2 * groups)
        #: The tick up to which a unit is processed; and the tick of its first rows.
        self.until = np.full(2 * groups, np.inf)
        self.since: Ints = np.zeros(2 * groups, np.int64)
        #: Whether the unit's rows go before those of other units.
        self.leaving: NDArray[np.bool_] = np.zeros(2 * groups, np.bool_)
        self.course = Course(*(np.zeros((2 * groups, scenario.ticks + 1)) for _ in _COLUMNS))
        #: Slots: work that goes before rows; and seconds that each was busy since this was last set to
        #: 0.
        self.owed = np.zeros(scenario.slots)
        self.busy_s = np.zeros(scenario.slots)
        #: Results of each group since the start, and of each slot since they were last counted.
        self.made = np.zeros(groups)
        self.slot_made = np.zeros(scenario.slots)
        for slot in range(scenario.slots):
            self._retable(self.units_of(slot))

    def units_of(self, slot: int) -> Ints:
        """The units of a slot, on either track."""
        return np.flatnonzero(self.slot == slot)

    def _groups(self, units: Ints) -> Ints:
        return np.asarray(units % self.scenario.groups, np.int64)

    def _retable(self, units: Ints) -> None:
        """Gives units the courses that follow from the shapes of their slots."""
        keys = np.stack([self.slot[units], self.since[units], self._doubled_at(units)], axis=1)
        for key in np.unique(keys, axis=0):
            some = units[(keys == key).all(axis=1)]
            slot, since, track = key.tolist()
            shape, groups = self.shape[slot], self._groups(some)
            if track == NOWHERE:
                self._put(some, self.combinations.course(shape, groups, since))
            else:
                self._put(some, self.combinations.old_part(shape, groups, track, since))

    def _doubled_at(self, units: Ints) -> Ints:
        """The tick from which new rows of units also go to another slot; else `NOWHERE`."""
        tracks = self._groups(units) + self.scenario.groups
        doubled = (units < self.scenario.groups) & (self.slot[tracks] != NOWHERE)
        return np.where(doubled, self.since[tracks], NOWHERE)

    def _put(self, units: Ints, course: Course) -> None:
        for name in _COLUMNS:
            getattr(self.course, name)[units] = getattr(course, name)

    def tick(self, now: int) -> None:
        """One tick of virtual time, which ends at tick `now`."""
        scenario = self.scenario
        room = np.full(scenario.slots, scenario.work_per_s * scenario.tick_s)
        paid = np.minimum(self.owed, room)
        self.owed -= paid
        before = self.at.copy()
        first = np.where(self.leaving, self.slot, NOWHERE)
        urgent = serve(float(now), room - paid, first, self.at, self.until, self.course.work)
        left = room - paid - urgent
        rest = serve(float(now), left, self.slot, self.at, self.until, self.course.work)
        self.busy_s += (paid + urgent + rest) / scenario.work_per_s
        gained = at_ticks(self.course.results, self.at) - at_ticks(self.course.results, before)
        self.made += gained.reshape(2, -1).sum(axis=0)
        there = self.slot != NOWHERE
        self.slot_made += np.bincount(self.slot[there], gained[there], minlength=scenario.slots)

    def reshape(self, slot: int, shape: Shape) -> None:
        """Changes the shape of a slot, which first makes the states it lacks."""
        before, self.shape[slot] = self.shape[slot], shape
        units = self.units_of(slot)
        for since in np.unique(self.since[units]).tolist():
            some = units[self.since[units] == since]
            made = (shape, before, self._groups(some), self.at[some], since)
            self.owed[slot] += self.combinations.making(*made)
        self._retable(units)

    def depart(self, groups: Ints, now: int) -> None:
        """Stops the new rows of leaving groups; rows already there go first."""
        self.until[groups] = now
        self.leaving[groups] = True

    def arrive(self, groups: Ints, slot: int) -> None:
        """Gives groups to the slot that has their state."""
        self.slot[groups] = slot
        self.until[groups] = np.inf
        self.leaving[groups] = False
        self._retable(groups)

    def lacking(self, groups: Ints, slot: int) -> float:
        """The work of making states of groups that the receiver stores and the sender does not."""
        there = self.shape[int(self.slot[groups[0]])]
        return self.combinations.making(self.shape[slot], there, groups, self.at[groups])

    def duplicate(self, groups: Ints, receiver: int, now: int) -> None:
        """Sends new rows of groups to a second slot as well, from now on."""
        tracks = groups + self.scenario.groups
        self.slot[tracks] = receiver
        self.at[tracks] = self.since[tracks] = now
        self._retable(np.concatenate([tracks, groups]))

    def doubled(self, groups: Sequence[int]) -> bool:
        """Whether groups are on two tracks already."""
        return bool(self.slot[groups[0] + self.scenario.groups] != NOWHERE)

    def purged(self, groups: Ints) -> bool:
        """Whether no old row of groups on two tracks can still meet a new one."""
        begun = self.since[groups + self.scenario.groups]
        windows = self.scenario.track_windows * self.scenario.window
        return bool((self.at[groups] >= begun + windows).all())

    def delete(self, groups: Ints) -> None:
        """Gives groups on two tracks to the receiver alone."""
        tracks = groups + self.scenario.groups
        self.slot[groups] = self.slot[tracks]
        self.at[groups] = self.at[tracks]
        self.since[groups] = self.since[tracks]
        self.slot[tracks] = NOWHERE
        for name in _COLUMNS:
            table = getattr(self.course, name)
            table[groups], table[tracks] = table[tracks], 0.0

    def rows(self, units: Ints) -> Floats:
        """Rows of each stream that units have."""
        groups, ends = self._groups(units), self.at[units]
        begins = np.clip(ends - self.scenario.window, self.since[units], None)
        begins = np.minimum(begins, ends)
        streams = self.combinations.before
        return np.stack(
            [at_ticks(rows, ends, groups) - at_ticks(rows, begins, groups) for rows in streams]
        )

    def due(self, groups: Ints, at: int | None = None) -> Floats:
        """Results of groups up to a tick, or up to their places, whichever slot makes them."""
        places = self.at[groups] if at is None else np.full(len(groups), float(at))
        return at_ticks(self._due, places, groups)

    def stored(self, units: Ints) -> Floats:
        """Rows and combinations that units have."""
        return at_ticks(self.course.stored, self.at[units], units)

    def bytes(self, units: Ints) -> Floats:
        """The same in bytes."""
        return at_ticks(self.course.bytes, self.at[units], units)

    def queued(self, units: Ints, now: int) -> Floats:
        """Rows of units that have come and are not processed."""
        groups = self._groups(units)
        return np.asarray(
            self._arrived[groups, now] - at_ticks(self._arrived, self.at[units], groups)
        )

    def queued_bytes(self, units: Ints, now: int) -> Floats:
        """The same in bytes."""
        return self.queued(units, now) * self.scenario.row_bytes

    def tuples(self, now: int) -> float:
        """All tuples in the system, as PLANS counts them: waiting, and in states."""
        there = np.flatnonzero(self.slot != NOWHERE)
        return float(self.stored(there).sum() + self.queued(there, now).sum())
