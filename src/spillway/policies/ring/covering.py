"""Which copy of each slice rows probe, when slices have several copies (CTR).

A probing row must meet every slice once, in one of its copies, and visit few slots: a minimum set
cover, solved greedily as in the paper that CTR comes from (PSP section 7, its reference [9]). The
choice follows from the batch number and the routing, so all slots, rounds and replays of a batch
agree. PSP finds this synchronisation between hops missing there.

One cover for all rows would leave all the work to the same few slots. So the rows of each stream
have their own cover, which prefers slots that earlier covers leave idle, and each batch starts with
another slot. Combinations keep the cover of their first row's stream. Splitting slices among all
their copies would make every row visit every slot.

Known limitation: with more copies than streams, a batch leaves some slots idle. All streams count
as equal work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

#: For each slice, the group of the probed copy.
Cover = tuple[int, ...]


def covers(table: Sequence[int], copies: int, streams: int, batch: int) -> tuple[Cover, ...]:
    """Returns the copies that each stream's rows probe in a batch; `table` maps group to slot.

    Example:
        >>> covers((0, 1, 0, 1, 1, 0, 1, 0), copies=2, streams=2, batch=0)
        ((0, 5, 2, 7), (4, 1, 6, 3))
        >>> covers((0, 1, 0, 1, 1, 0, 1, 0), copies=2, streams=2, batch=1)
        ((4, 1, 6, 3), (0, 5, 2, 7))
    """
    slices = len(table) // copies
    having: dict[int, dict[int, int]] = {}
    for group, slot in enumerate(table):
        having.setdefault(slot, {}).setdefault(group % slices, group)
    #: The order of slots that breaks ties.
    order = sorted(having)
    first = batch % len(order)
    order = order[first:] + order[:first]
    found: list[Cover] = []
    for _ in range(streams):
        work = Counter(table[group] for cover in found for group in cover)
        uses = Counter(slot for cover in found for slot in {table[group] for group in cover})
        found.append(_cover(having, slices, order, uses, work))
    return tuple(found)


def _cover(
    having: Mapping[int, Mapping[int, int]],
    slices: int,
    order: Sequence[int],
    uses: Counter[int],
    work: Counter[int],
) -> Cover:
    """Returns one cover; `uses` counts a slot's covers so far, `work` its slices in them.

    A slot in the fewest covers starts, whatever it has: otherwise, among slots with almost equal
    numbers of slices, the largest would always start. Then comes the slot with the most slices not
    chosen yet; of equals, the one with the least work.
    """
    chosen: dict[int, int] = {}
    best = min(order, key=uses.__getitem__)
    while True:
        chosen = {**having[best], **chosen}
        if len(chosen) == slices:
            return tuple(chosen[one] for one in range(slices))
        gains = {slot: len(having[slot].keys() - chosen.keys()) for slot in order}
        best = min(order, key=lambda slot: (-gains[slot], work[slot]))


def visited(
    table: Sequence[int], chosen: Collection[int], taking_part: Mapping[int, Collection[int]]
) -> tuple[int, ...]:
    """Returns the slots that probing rows visit: those with chosen groups, now or until they move.

    `taking_part` maps slots that groups leave or enter to these groups: until a group arrives, its
    rows are where they were.

    Example:
        >>> visited((0, 1, 2, 0), chosen=(0, 3), taking_part={1: (3,)})
        (0, 1)
    """
    found = {table[group] for group in chosen}
    found |= {slot for slot, groups in taking_part.items() if set(groups) & set(chosen)}
    return tuple(sorted(found))
