"""Gaps: hash ranges in which a made stream is missing.

An operator may store rows that it makes from others: the intermediate states of a join tree
(operators/equi/tree.py). These *made* streams have names and come after the input streams. The
operator can always make them again, so a part may lack one, for example after a change of plan.
Those ranges are gaps of the part:

    in its gaps a made stream has no rows; elsewhere it has all of its rows.

Widening a gap loses nothing, as long as the made rows in it go. So merged parts have the gaps of
all of them (`united` in state/layout/generations.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from spillway.ids import HASH_END
from spillway.routing.routing import HashRange, outside, united

#: Ascending and disjoint.
Ranges = tuple[HashRange, ...]
#: The gaps of each made stream; empty if there are no gaps at all.
Gaps = tuple[Ranges, ...]


def both(a: Sequence[HashRange], b: Sequence[HashRange]) -> Ranges:
    """Returns the hashes that are in both.

    Example:
        >>> both([HashRange(0, 5), HashRange(7, 9)], [HashRange(3, 8)])
        (HashRange(lo=3, hi=5), HashRange(lo=7, hi=8))
    """
    found: list[HashRange] = []
    i = j = 0
    while i < len(a) and j < len(b):
        if met := a[i].meet(b[j]):
            found.append(met)
        # The range that ends first meets nothing more.
        i, j = (i + 1, j) if a[i].hi <= b[j].hi else (i, j + 1)
    return tuple(found)


def without(a: Sequence[HashRange], b: Sequence[HashRange]) -> Ranges:
    """Returns the hashes of the first that are not in the second."""
    return both(a, outside(b)) if b else tuple(a)


def either(a: Sequence[HashRange], b: Sequence[HashRange]) -> Ranges:
    """Returns the hashes that are in one of them, with neighbouring ranges joined.

    Example:
        >>> either([HashRange(0, 5)], [HashRange(3, 8)])
        (HashRange(lo=0, hi=8),)
    """
    return united((*a, *b))


def all_gaps(parts: Sequence[Gaps]) -> Gaps:
    """Returns the gaps of several parts as one."""
    width = max((len(gaps) for gaps in parts), default=0)
    result: list[Ranges] = [()] * width
    for gaps in parts:
        for at, ranges in enumerate(gaps):
            result[at] = either(result[at], ranges)
    return tuple(result)


def patched(gaps: Gaps) -> list[tuple[Ranges, frozenset[int]]]:
    """Splits the hash domain into ranges, each with the made streams that miss there.

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
    """Returns the gaps inside some ranges."""
    return tuple(both(one, ranges) for one in gaps)


def gaps_outside(gaps: Gaps, ranges: Sequence[HashRange]) -> Gaps:
    """Returns the gaps outside some ranges."""
    return tuple(without(one, ranges) for one in gaps)
