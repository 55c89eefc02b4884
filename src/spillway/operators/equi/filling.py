"""Plans how much of its missing intermediate states a batch can make (state/layout/gaps.py).

A state is made from other states. For each hash, the number of combinations to examine is the
product of their row counts. So counting hashes gives the work in advance, and a portion ends before
the hash that would exceed the budget.

Known limitation: one portion makes all rows of one hash, however many there are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.operators.equi.ascent import Segments, name_of
from spillway.plan.shape import Shape
from spillway.routing.routing import HashRange
from spillway.rows import bounds
from spillway.rows.size import bytes_inside
from spillway.state.layout.gaps import Ranges, both
from spillway.state.runs.merging import Segment, cut_for, inside, sorted_whole, spans
from spillway.state.runs.run import RunData

#: Rows by state.
Given = dict[str, RunData]
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Effort:
    """How much a batch may do to make states."""

    #: Rows to read plus combinations to examine.
    rows: int
    #: Bytes of these combinations, if all of them are valid.
    bytes: int


@dataclass(frozen=True)
class Portion:
    """What to make now, and the fraction of the effort that it takes."""

    ranges: Ranges
    #: The rows of each kind in these ranges, by state.
    given: list[Given]
    share: float


@dataclass(frozen=True)
class Filling:
    """States of a shape that are missing in the same hash ranges."""

    #: Smaller nodes first.
    nodes: tuple[Shape, ...]
    ranges: Ranges

    @property
    def recipes(self) -> list[frozenset[str]]:
        """Returns, for each node, the existing states that it is made from."""
        found: dict[str, frozenset[str]] = {}
        for node in self.nodes:
            names = (name_of(child) for child in node.children)
            found[node.name] = frozenset().union(*(found.get(one, {one}) for one in names))
        return list(found.values())

    @property
    def needed(self) -> list[str]:
        """The existing states that some node is made from."""
        return sorted(frozenset().union(*self.recipes))

    def portion(self, there: Sequence[Segments], effort: Effort, share: float) -> Portion:
        """Plans a portion from the lowest hash upwards, as much as fits a share of the effort.

        `there` has the rows of each kind. A hash that exceeds the effort gets a portion of its own. If
        there is no room for the first hash, the portion has no ranges.
        """
        every = [one for kind in there for segments in kind.values() for one in segments]
        pieces = [segment for segment in every if segment.rows]
        ranges = _first(pieces, self.ranges, max(1, int(effort.rows * share)))
        given = [_given(kind, ranges) for kind in there]
        if not any(given):
            return Portion(ranges, given, 0.0)
        hashes = np.unique(np.concatenate([rows.h for one in given for rows in one.values()]))
        ends = np.cumsum(_shares(hashes, given, self.recipes, effort))
        fitting = int(np.searchsorted(ends, share, side="right"))
        if fitting == len(hashes):
            return Portion(ranges, given, float(ends[-1]))
        if fitting == 0 and share < 1.0:
            return Portion((), [], 0.0)
        fitting = max(1, fitting)
        if fitting < len(hashes):
            below = HashRange(0, int(hashes[fitting]))
            ranges = both(ranges, (below,))
            given = [
                {name: rows.part(*rows.rows_in(below)) for name, rows in one.items()}
                for one in given
            ]
        return Portion(ranges, given, float(ends[fitting - 1]))


def _first(pieces: Sequence[Segment], ranges: Ranges, fuel: int) -> Ranges:
    """Returns the first ranges with at most about `fuel` rows; at least part of one range."""
    if not pieces:
        return ranges
    rows = np.cumsum(sum(end - begin for begin, end in (spans(p, ranges) for p in pieces)))
    size = np.cumsum(sum(bytes_inside(p.data.batch, *spans(p, ranges)) for p in pieces))
    count = int(np.searchsorted(rows, fuel, side="right"))
    count = min(count, int(np.searchsorted(size, bounds.STEP_BYTES, side="right")))
    if count:
        return ranges[:count]
    ends_in = [spans(piece, ranges[:1]) for piece in pieces]
    some = [
        Segment(piece.data, int(begin[0]), int(end[0]))
        for piece, (begin, end) in zip(pieces, ends_in, strict=True)
        if begin[0] < end[0]
    ]
    cut = cut_for(some, fuel)
    return (HashRange(ranges[0].lo, min(cut, ranges[0].hi)),)


def _given(there: Segments, ranges: Ranges) -> Given:
    """Returns the rows in some ranges, as one run for each state that has any."""
    cut = ((name, [inside(one, ranges) for one in some]) for name, some in there.items())
    found = ((name, [one for one in some if one.rows]) for name, some in cut)
    return {name: _together(some) for name, some in found if some}


def _together(segments: Sequence[Segment]) -> RunData:
    first = segments[0]
    if len(segments) == 1:
        return first.data.part(first.begin, first.end)
    return RunData(sorted_whole([one.batch() for one in segments]), first.data.time_column)


def _shares(
    hashes: NDArray[np.uint32],
    given: Sequence[Given],
    recipes: Sequence[Collection[str]],
    effort: Effort,
) -> _Floats:
    """Returns, for each hash, the fraction of an effort that its rows and combinations take."""
    nothing = np.zeros(len(hashes))
    names = {name for one in given for name in one}
    runs = {name: [one[name] for one in given if name in one] for name in names}
    counts = {n: sum((_counts(hashes, run.h) for run in runs[n]), nothing) for n in names}
    widths = {
        name: sum(run.batch.nbytes for run in some) / sum(run.rows for run in some)
        for name, some in runs.items()
    }
    taken, size = sum(counts.values(), nothing), nothing
    for recipe in recipes:
        made = np.prod([counts.get(name, nothing) for name in recipe], axis=0)
        taken = taken + made
        size = size + made * sum(widths.get(name, 0.0) for name in recipe)
    return np.maximum(taken / effort.rows, size / effort.bytes)


def _counts(hashes: NDArray[np.uint32], h: NDArray[np.uint32]) -> _Floats:
    begin = np.searchsorted(h, hashes, side="left")
    return (np.searchsorted(h, hashes, side="right") - begin).astype(np.float64)
