"""Which copy of each slice is probed, where slices are stored several times (CTR).

A probing row must meet every slice once, in one of its copies. The fewer slots have all the chosen
copies, the fewer it visits: a minimum set cover, which is approached greedily as in the paper that CTR
is from (PSP section 7, its reference [9]). The choice is made for a whole batch, from its number and
the routing alone, so all slots and rounds of a batch agree on it, and so does a batch that is repeated:
that is the synchronisation between hops which PSP finds missing there.

One cover for all rows would let the same few slots do all the work for ever. So the rows of each stream
have a cover of their own, which prefers slots that the covers of the streams before it have left idle,
and each batch begins with another slot. A row has the cover of the stream that it came in, and what is
found with it keeps that: nothing has to travel with a row to say which copies it has met. Slices could
be shared out among all their copies instead, but then every row would visit every slot, as it does
where slices are stored once.

Known limitation: with more copies than streams a batch leaves slots idle, which others use; and streams
are taken to bring the same work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

#: For each slice, the group of the copy that is probed.
Cover = tuple[int, ...]


def covers(table: Sequence[int], copies: int, streams: int, batch: int) -> tuple[Cover, ...]:
    """The copies that the rows of each stream probe in a batch; `table` is from group to slot.

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
    #: The slots in the order in which they are taken where nothing else tells.
    turn = sorted(having)
    first = batch % len(turn)
    turn = turn[first:] + turn[:first]
    found: list[Cover] = []
    for _ in range(streams):
        work = Counter(table[group] for cover in found for group in cover)
        uses = Counter(slot for cover in found for slot in {table[group] for group in cover})
        found.append(_cover(having, slices, turn, uses, work))
    return tuple(found)


def _cover(
    having: Mapping[int, Mapping[int, int]],
    slices: int,
    turn: Sequence[int],
    uses: Counter[int],
    work: Counter[int],
) -> Cover:
    """One cover; `uses` counts the covers that a slot is in already, `work` its slices in them.

    A slot that is in the fewest begins, whatever it has: of slots that have nearly the same number of
    slices the largest would begin every time. Then comes the one that has the most slices which are not
    chosen yet, and of equals the one with the least work.
    """
    chosen: dict[int, int] = {}
    best = min(turn, key=uses.__getitem__)
    while True:
        chosen = {**having[best], **chosen}
        if len(chosen) == slices:
            return tuple(chosen[one] for one in range(slices))
        gains = {slot: len(having[slot].keys() - chosen.keys()) for slot in turn}
        best = min(turn, key=lambda slot: (-gains[slot], work[slot]))


def visited(
    table: Sequence[int], chosen: Collection[int], taking_part: Mapping[int, Collection[int]]
) -> tuple[int, ...]:
    """The slots that probing rows go to: those with chosen groups, now or until they have moved.

    `taking_part` are slots that groups are leaving or coming to, with these groups: until they have
    arrived, their rows are where they were.

    Example:
        >>> visited((0, 1, 2, 0), chosen=(0, 3), taking_part={1: (3,)})
        (0, 1)
    """
    found = {table[group] for group in chosen}
    found |= {slot for slot, groups in taking_part.items() if set(groups) & set(chosen)}
    return tuple(sorted(found))
