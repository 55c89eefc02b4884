"""Pieces of a run: what moves, spills and the choice of copies leave of it for a visit.

A run with parts cut out is still sorted, by place and by every column. So a visit searches the run
once, however many pieces it has. In the order of a column it skips rows between pieces; ranges of
places it cuts to the pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spillway.routing.groups import group_of
from spillway.routing.slices import PlaceRanges, Slicing
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Pieces:
    """Ranges of rows of one run to search, ascending and disjoint."""

    data: RunData
    begins: Positions
    ends: Positions

    @property
    def rows(self) -> int:
        """The number of rows of all pieces."""
        return int((self.ends - self.begins).sum())

    @property
    def whole(self) -> bool:
        """Whether the pieces cover the whole run."""
        return self.rows == self.data.rows

    def within(self, start: Positions, end: Positions) -> int:
        """Counts the rows of some ranges that are in the pieces.

        Example:
            >>> ends = np.array([2, 6]), np.array([4, 9])
            >>> Pieces(None, *ends).within(np.array([0, 3]), np.array([9, 7]))
            7
        """
        return int((self._before(end) - self._before(start)).sum())

    def by_plane(self, slicing: Slicing) -> Iterator[tuple[int, Pieces]]:
        """Splits the pieces by plane of a slicing."""
        planes = group_of(self.data.h[self.begins], slicing.groups) // slicing.slices
        for plane in np.unique(planes).tolist():
            mine = planes == plane
            yield plane, replace(self, begins=self.begins[mine], ends=self.ends[mine])

    @cached_property
    def _held(self) -> Positions:
        """The rows in all pieces before each, and the total."""
        return np.concatenate([[0], np.cumsum(self.ends - self.begins)])

    def _before(self, rows: Positions) -> Positions:
        """Counts the rows of pieces before given rows."""
        at = np.searchsorted(self.begins, rows, side="right")
        beyond = np.maximum(self.ends[at - 1] - rows, 0)
        return np.where(at > 0, self._held[at] - beyond, 0)


def pieces_of(segments: Sequence[Segment]) -> list[Pieces]:
    """Groups segments by their run."""
    by_run: dict[int, list[Segment]] = {}
    for segment in segments:
        by_run.setdefault(id(segment.data), []).append(segment)
    found = []
    for some in by_run.values():
        ordered = sorted(some, key=lambda segment: segment.begin)
        begins = np.array([one.begin for one in ordered], np.int64)
        ends = np.array([one.end for one in ordered], np.int64)
        found.append(Pieces(some[0].data, begins, ends))
    return found


@dataclass(frozen=True)
class Placed:
    """Row ranges by place in one plane: which row searches there, from where to where."""

    pieces: Pieces
    which: Positions
    start: Positions
    end: Positions

    @property
    def pairs(self) -> int:
        """Counts their rows in the pieces."""
        return self.pieces.within(self.start, self.end)

    def cut(self) -> Iterator[tuple[Positions, Positions, Positions]]:
        """Yields the ranges of each piece: which, start and count; counts may be zero or below."""
        for begin, end in zip(self.pieces.begins, self.pieces.ends, strict=True):
            start = np.maximum(self.start, begin)
            yield self.which, start, np.minimum(self.end, end) - start


def placed(pieces: Pieces, ranges: PlaceRanges, some: NDArray[np.bool_]) -> Placed:
    """Finds the rows in ranges of places of a plane, for ranges that are not empty."""
    h = pieces.data.h
    start = np.searchsorted(h, ranges.first.astype(np.uint32), side="left")
    end = np.searchsorted(h, ranges.last.astype(np.uint32), side="right")
    start[ranges.everywhere], end[ranges.everywhere] = 0, len(h)
    # The range wraps around: from the beginning to `end`, and from `start` on.
    split = np.flatnonzero((ranges.first > ranges.last) & ~ranges.everywhere)
    which = np.concatenate([np.arange(len(start)), split])
    start, end = np.concatenate([start, start[split]]), np.concatenate([end, end[split]])
    start[split] = 0
    end[len(end) - len(split) :] = len(h)
    return Placed(pieces, which, start, np.where(some[which], np.maximum(start, end), start))
