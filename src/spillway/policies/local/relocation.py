"""Which groups move to another slot: the answer of the sender's local controller.

The coordinator says how many bytes. The most productive groups go, since they gain most from
staying in memory (DCAPE section 5.1). Groups with rows on disk stay with their parts (DCAPE-TR
section 6), unless the whole slot retires.

Invariant: a sender keeps at least one of its groups, unless everything is asked for. It gives little
    more than was asked for, since a slot that gives far too much would have to get it back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import GroupTable, Ints
from spillway.slot.controller import ChosenGroups

#: Groups go while they have at most `_SLACK` times the bytes asked for. If no group is that small,
#: one group may have `_LAST_RESORT` times as much. Beyond that, sender and receiver would only swap
#: roles, since a balancing move asks for half of their difference.
_SLACK = 1.1
_LAST_RESORT = 1.5
#: Below this, a group's productivity counts as zero.
_LEAST = 2.0**-40


@dataclass(frozen=True)
class _Owned:
    """The groups of a slot, the most productive first."""

    groups: Ints
    #: Bytes in memory.
    size: Ints
    on_disk: NDArray[np.bool_]

    def choice(self, at: Ints, how: str, wanted_bytes: int | None = None) -> ChosenGroups:
        chosen = tuple(self.groups[at].tolist())
        noun = "group" if len(chosen) == 1 else "groups"
        asked = "" if wanted_bytes is None else f" of {wanted_bytes}"
        return ChosenGroups(
            chosen, f"{how}: {len(chosen)} {noun}, {self.size[at].sum()}{asked} bytes"
        )


def movers(
    table: GroupTable,
    owned: Collection[int] | Ints,
    wanted_bytes: int,
    *,
    least_groups: int = 0,
    everything: bool = False,
    amortised: bool = False,
) -> ChosenGroups:
    """Returns groups to move, about `wanted_bytes` together, the most productive first.

    Args:
        table: The statistics of the slot's groups; empty for a slot without state.
        owned: The groups routed to the slot.
        wanted_bytes: Bytes in memory to move.
        least_groups: The least number of groups that go, even without rows; the smallest are added.
        everything: All owned groups go.
        amortised: Whether recent batches weigh more in the productivity of a group.

    Example:
        >>> movers(GroupTable.empty(0), range(8), 0, least_groups=3).groups
        (0, 1, 2)
    """
    own = _ranked(table, owned, amortised=amortised)
    if everything:
        return own.choice(np.arange(len(own.groups)), "everything")
    how, taken = _by_bytes(own, wanted_bytes)
    taken = taken[: max(len(own.groups) - 1, 0)]
    added = _smallest(own, taken, min(least_groups, len(own.groups) - 1) - len(taken))
    if len(added):
        how = f"{how}, plus the smallest to make {least_groups} in all"
    return own.choice(np.concatenate([taken, added]), how, wanted_bytes)


def _ranked(table: GroupTable, owned: Collection[int] | Ints, *, amortised: bool) -> _Owned:
    """Ranks the owned groups by productivity; the lower number first within a class.

    A class holds groups with more than half of the best productivity, the next those with more than
    a quarter, and so on. Neighbouring groups have neighbouring rows: moved together, they are one
    range of every run. What remains then has few pieces; each piece costs every later probe a
    little.
    """
    numbers = owned if isinstance(owned, np.ndarray) else np.fromiter(owned, np.int64, len(owned))
    if not len(table):
        table = GroupTable.empty(int(numbers.max(initial=-1)) + 1)
    mine = np.zeros(len(table), np.bool_)
    mine[numbers] = True
    groups = np.flatnonzero(mine)
    size = table.size[groups]
    productivity = table.productivity(amortised=amortised)[groups]
    best = max(float(productivity.max(initial=0.0)), _LEAST)
    alike = np.floor(np.log2(best / np.maximum(productivity, _LEAST)))
    order = np.argsort(alike, kind="stable")
    ranked = groups[order]
    on_disk = (table.disk_rows[ranked] > 0) | (table.generations[ranked] > 0)
    return _Owned(ranked, size[order], on_disk)


def _by_bytes(own: _Owned, wanted_bytes: int) -> tuple[str, Ints]:
    """Returns the positions of groups with the bytes, and how they were found."""
    able = np.flatnonzero(~own.on_disk & (own.size > 0))
    taken = able[_fitting(own.size[able], int(wanted_bytes * _SLACK))]
    if len(taken) or not len(able):
        return "most productive first", taken
    smallest = able[np.argmin(own.size[able])]
    if own.size[smallest] <= wanted_bytes * _LAST_RESORT:
        return "smallest, because none fits", np.array([smallest])
    return "none fits", taken


def _fitting(sizes: Ints, room_bytes: int) -> Ints:
    """Returns the positions taken greedily while they fit; one that does not fit is skipped."""
    head = int(np.searchsorted(np.cumsum(sizes), room_bytes, side="right"))
    room_bytes -= int(sizes[:head].sum())
    taken = list(range(head))
    # Whether one fits depends on all before it; check only those that could fit at all.
    tail = head + np.flatnonzero(sizes[head:] <= room_bytes)
    for place, size in zip(tail.tolist(), sizes[tail].tolist(), strict=True):
        if size <= room_bytes:
            taken.append(place)
            room_bytes -= size
    return np.array(taken, np.int64)


def _smallest(own: _Owned, taken: Ints, count: int) -> Ints:
    """Returns positions not taken yet, groups without rows in memory first."""
    if count <= 0:
        return taken[:0]
    free = ~own.on_disk
    free[taken] = False
    rest = np.flatnonzero(free)
    return rest[np.argsort(own.size[rest], kind="stable")][:count]
