"""Which slot serves which group.

A routing is immutable and versioned; every batch runs under exactly one, named in its plan. Slots are
numbered from 0. A new slot count moves as few groups as an even spread allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from spillway.codec import Stored
from spillway.errors import BUG, SettingsError
from spillway.ids import HASH_END, SlotId
from spillway.routing.groups import group_bounds


class HashRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The hashes [lo, hi); a struct, because a manifest has tens of thousands of them."""

    lo: int
    hi: int

    def meet(self, other: HashRange) -> HashRange | None:
        """The hashes in both ranges, or None."""
        lo, hi = max(self.lo, other.lo), min(self.hi, other.hi)
        return HashRange(lo, hi) if lo < hi else None


def group_ranges(chosen: Iterable[int], groups: int) -> tuple[HashRange, ...]:
    """The hash ranges of some of the groups, ascending, neighbouring groups joined.

    Example:
        >>> [(r.lo >> 30, r.hi >> 30) for r in group_ranges([0, 1, 3], 4)]
        [(0, 2), (3, 4)]
    """
    bounds = group_bounds(groups).tolist()
    ranges: list[HashRange] = []
    for group in sorted(chosen):
        lo, hi = bounds[group], bounds[group + 1]
        if ranges and ranges[-1].hi == lo:
            ranges[-1] = HashRange(ranges[-1].lo, hi)
        else:
            ranges.append(HashRange(lo, hi))
    return tuple(ranges)


def outside(ranges: Sequence[HashRange]) -> tuple[HashRange, ...]:
    """The hash domain without these ranges, which are ascending and disjoint."""
    ends = [0, *(edge for r in ranges for edge in (r.lo, r.hi)), HASH_END]
    gaps = zip(ends[::2], ends[1::2], strict=True)
    return tuple(HashRange(lo, hi) for lo, hi in gaps if lo < hi)


def united(ranges: Iterable[HashRange]) -> tuple[HashRange, ...]:
    """The hashes that are in one of the ranges: ascending, neighbouring ranges joined.

    Example:
        >>> united([HashRange(3, 8), HashRange(0, 5)])
        (HashRange(lo=0, hi=8),)
    """
    joined: list[HashRange] = []
    for one in sorted(ranges, key=lambda found: found.lo):
        if joined and joined[-1].hi >= one.lo:
            joined[-1] = HashRange(joined[-1].lo, max(joined[-1].hi, one.hi))
        else:
            joined.append(one)
    return tuple(joined)


def encode_table(table: Sequence[int]) -> list[list[int]]:
    """The table as pairs (slot, number of neighbouring groups), for the log."""
    slots = np.asarray(table)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(slots)) + 1])
    lengths = np.diff(np.append(starts, len(slots)))
    found: list[list[int]] = np.stack([slots[starts], lengths], axis=1).tolist()
    return found


def decode_table(pairs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The inverse of `encode_table`."""
    return tuple(slot for slot, count in pairs for _ in range(count))


@dataclass(frozen=True)
class Routing:
    """A table from group to slot.

    Example:
        >>> Routing.even(groups=6, slots=2).table
        (0, 0, 0, 1, 1, 1)
    """

    version: int
    slots: int
    table: Annotated[tuple[int, ...], Stored(list[tuple[int, int]], encode_table, decode_table)]

    def __post_init__(self) -> None:
        if self.slots < 1 or len(self.table) < self.slots:
            raise SettingsError(
                f"{self.slots} slots cannot share {len(self.table)} groups",
                hint="use at least one slot, and at least as many groups as slots",
            )
        table = np.asarray(self.table)
        if table.min() < 0 or table.max() >= self.slots:
            wrong = table[(table < 0) | (table >= self.slots)][0]
            raise SettingsError(
                f"the routing sends a group to slot {wrong}, but the slots are 0 to {self.slots - 1}",
                hint=BUG,
            )

    @classmethod
    def even(cls, groups: int, slots: int) -> Routing:
        """Neighbouring groups together, equally many in each slot."""
        if slots < 1 or groups < slots:
            raise SettingsError(
                f"{slots} slots cannot share {groups} groups",
                hint="use at least one slot, and at least as many groups as slots",
            )
        return cls(0, slots, tuple(group * slots // groups for group in range(groups)))

    @classmethod
    def shared(cls, groups: int, shares: Sequence[float]) -> Routing:
        """Neighbouring groups together, in proportion to the weights of the slots.

        Example:
            >>> Routing.shared(5, (3, 1, 1)).table
            (0, 0, 0, 1, 2)
        """
        edges = np.round(np.cumsum(shares) / sum(shares) * groups).astype(int)
        table = np.searchsorted(edges, np.arange(groups), side="right")
        return cls(0, len(shares), tuple(table.tolist()))

    @property
    def groups(self) -> int:
        """The number of groups."""
        return len(self.table)

    def groups_of(self, slot: SlotId) -> tuple[int, ...]:
        """The groups of one slot, ascending."""
        return tuple(group for group, at in enumerate(self.table) if at == slot)

    def ranges_of(self, slot: SlotId) -> tuple[HashRange, ...]:
        """The hash ranges of one slot, neighbouring groups joined."""
        return group_ranges(self.groups_of(slot), self.groups)

    def counts(self) -> tuple[int, ...]:
        """How many groups each slot has."""
        return tuple(np.bincount(self.table, minlength=self.slots).tolist())

    def changed(self, to: Mapping[int, int]) -> Routing:
        """The next version, with some groups in other slots; this one if nothing changes."""
        if all(self.table[group] == slot for group, slot in to.items()):
            return self
        table = list(self.table)
        for group, slot in to.items():
            table[group] = slot
        return Routing(self.version + 1, self.slots, tuple(table))

    def with_slots(self, slots: int) -> Routing:
        """The next version, with more slots, still empty, or without some that are empty."""
        return self if slots == self.slots else Routing(self.version + 1, slots, self.table)

    def resized(self, slots: int, copies: int = 1) -> Routing:
        """The next version, with another slot count, moving as few groups as possible.

        Where the groups are `copies` planes of the same slices (routing/slices.py), the copies of a
        slice stay in different slots, if there are enough.

        Example:
            >>> Routing(0, 2, (0, 1, 0, 1, 1, 0, 1, 0)).resized(3, copies=2).table
            (0, 1, 0, 1, 1, 0, 2, 2)
        """
        if slots == self.slots:
            return self
        slices = self.groups // copies if copies <= slots else self.groups
        table = [slot if slot < slots else -1 for slot in self.table]
        _part(table, slices)
        share, extra = divmod(self.groups, slots)
        held = [table.count(slot) for slot in range(slots)]
        # The slots that hold the most keep the larger shares, so that the fewest groups move.
        order = sorted(range(slots), key=lambda slot: (-held[slot], slot))
        quota = {slot: share + (1 if rank < extra else 0) for rank, slot in enumerate(order)}
        for group in reversed(range(self.groups)):
            slot = table[group]
            if slot >= 0 and held[slot] > quota[slot]:
                table[group], held[slot] = -1, held[slot] - 1
        _fill(table, slices, [quota[slot] for slot in range(slots)])
        return Routing(self.version + 1, slots, tuple(table))


def _part(table: list[int], slices: int) -> None:
    """Leaves one group of a slice in a slot that has several; -1 means no slot."""
    seen = set()
    for group, slot in enumerate(table):
        if (slot, group % slices) in seen:
            table[group] = -1
        seen.add((slot, group % slices))


def _fill(table: list[int], slices: int, quota: Sequence[int]) -> None:
    """Gives groups without a slot to slots with room, never two groups of one slice to the same slot.

    Where all slots with room already have the slice, a full one without it takes the group and gives one
    of its own to a slot with room. It always has one to give: quotas differ by at most one, so the full
    slot has at least as many slices as the one with room, which has this slice as well.
    """
    held: list[dict[int, int]] = [{} for _ in quota]
    for group, slot in enumerate(table):
        if slot >= 0:
            held[slot][group % slices] = group
    for group in [group for group, slot in enumerate(table) if slot < 0]:
        one = group % slices
        room = [slot for slot, most in enumerate(quota) if len(held[slot]) < most]
        slot = next((slot for slot in room if one not in held[slot]), -1)
        if slot < 0:
            slot = next(slot for slot in range(len(quota)) if one not in held[slot])
            other = next(other for other in held[slot] if other not in held[room[0]])
            held[room[0]][other] = held[slot].pop(other)
            table[held[room[0]][other]] = room[0]
        table[group], held[slot][one] = slot, group
