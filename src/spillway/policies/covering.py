"""Which copy of each slice is probed, where slices are stored several times (CTR).

A probing row must meet every slice once, in one of its copies. The fewer slots have all the chosen
copies, the fewer it visits: a minimum set cover, which is approached greedily as in the paper that CTR
is from (PSP section 7, its reference [9]). The choice is made for a whole batch, from the routing
alone, so all slots and rounds of a batch agree on it: that is the synchronisation between hops which
PSP finds missing there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def cover(table: Sequence[int], copies: int) -> tuple[int, ...]:
    """For each slice, the group of the copy that is probed; `table` is from group to slot.

    The slot that has the most slices which are not chosen yet comes next, the first of equals.

    Example:
        >>> cover((0, 1, 0, 1, 1, 0, 1, 0), copies=2)
        (0, 5, 2, 7)
    """
    slices = len(table) // copies
    having: dict[int, dict[int, int]] = {}
    for group, slot in enumerate(table):
        having.setdefault(slot, {}).setdefault(group % slices, group)
    chosen: dict[int, int] = {}
    while len(chosen) < slices:
        gains = {slot: len(mine.keys() - chosen.keys()) for slot, mine in having.items()}
        best = min(having, key=lambda slot: (-gains[slot], slot))
        chosen |= {one: group for one, group in having[best].items() if one not in chosen}
    return tuple(chosen[one] for one in range(slices))


def visited(
    table: Sequence[int],
    chosen: Collection[int] | None,
    senders: Mapping[int, Collection[int]],
    slots: int,
) -> tuple[int, ...]:
    """The slots that probing rows go to: those with chosen groups, now or until they have moved.

    `senders` are slots that groups are leaving, with these groups: until they have arrived, their rows
    are where they were. Where none are chosen, rows go to all slots: one that builds no slice any more
    has rows of those that it has built.

    Example:
        >>> visited((0, 1, 2, 0), chosen=(0, 3), senders={1: (3,)}, slots=3)
        (0, 1)
    """
    if chosen is None:
        return tuple(range(slots))
    found = {table[group] for group in chosen}
    found |= {slot for slot, groups in senders.items() if set(groups) & set(chosen)}
    return tuple(sorted(found))
