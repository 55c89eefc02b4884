"""Gaps: hash ranges in which a made stream is not there.

An operator may store rows that it makes of others: the intermediate states of a join tree
(operators/equi/tree.py). They are *made* streams, known by name, after the input streams. What is in
them can always be made again, so a part may be without one: because it was stored under another plan,
or came from a slot with another plan. Where that is so is a gap of the part, and

    in its gaps a made stream has no rows, and elsewhere it has all that it should have.

Rows that are a part of nothing else are never lost by making a gap wider, as long as the made rows in it
go. So parts that become one have the gaps of all of them (`united` in state/layout/generations.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from spillway.ids import HASH_END
from spillway.routing.routing import HashRange, outside

#: Ascending and disjoint.
Ranges = tuple[HashRange, ...]
#: For each made stream its gaps; or nothing at all, where there are none.
Gaps = tuple[Ranges, ...]


def both(a: Sequence[HashRange], b: Sequence[HashRange]) -> Ranges:
    """The hashes that are in both.

    Example:
        >>> both([HashRange(0, 5), HashRange(7, 9)], [HashRange(3, 8)])
        (HashRange(lo=3, hi=5), HashRange(lo=7, hi=8))
    """
    found: list[HashRange] = []
    i = j = 0
    while i < len(a) and j < len(b):
        if met := a[i].meet(b[j]):
            found.append(met)
        # The one that ends first meets nothing more.
        i, j = (i + 1, j) if a[i].hi <= b[j].hi else (i, j + 1)
    return tuple(found)


def without(a: Sequence[HashRange], b: Sequence[HashRange]) -> Ranges:
    """The hashes of the first that are not in the second."""
    return both(a, outside(b)) if b else tuple(a)


def either(a: Sequence[HashRange], b: Sequence[HashRange]) -> Ranges:
    """The hashes that are in one of them, neighbouring ranges joined.

    Example:
        >>> either([HashRange(0, 5)], [HashRange(3, 8)])
        (HashRange(lo=0, hi=8),)
    """
    joined: list[HashRange] = []
    for one in sorted((*a, *b), key=lambda found: found.lo):
        if joined and joined[-1].hi >= one.lo:
            joined[-1] = HashRange(joined[-1].lo, max(joined[-1].hi, one.hi))
        else:
            joined.append(one)
    return tuple(joined)


def all_gaps(parts: Sequence[Gaps]) -> Gaps:
    """The gaps of several parts as one."""
    width = max((len(gaps) for gaps in parts), default=0)
    result: list[Ranges] = [()] * width
    for gaps in parts:
        for at, ranges in enumerate(gaps):
            result[at] = either(result[at], ranges)
    return tuple(result)


def patched(gaps: Gaps) -> list[tuple[Ranges, frozenset[int]]]:
    """The hash domain by what is not there: ranges, and the made streams that they are gaps of.

    Example:
        >>> [(len(ranges), sorted(at)) for ranges, at in patched(((HashRange(3, 5),), ()))]
        [(2, []), (1, [0])]
    """
    edges = sorted(
        (edge, at) for at, ranges in enumerate(gaps) for r in ranges for edge in (r.lo, r.hi)
    )
    found: dict[frozenset[int], list[HashRange]] = {}
    here: frozenset[int] = frozenset()
    lo = 0
    for edge, at in [*edges, (HASH_END, -1)]:
        if lo < edge:
            found.setdefault(here, []).append(HashRange(lo, edge))
        here, lo = here ^ {at}, edge
    return [(either(ranges, ()), here) for here, ranges in found.items()]


def gaps_inside(gaps: Gaps, ranges: Sequence[HashRange]) -> Gaps:
    """What of the gaps is in some ranges."""
    return tuple(both(one, ranges) for one in gaps)


def gaps_outside(gaps: Gaps, ranges: Sequence[HashRange]) -> Gaps:
    """What of the gaps is not in some ranges."""
    return tuple(without(one, ranges) for one in gaps)
