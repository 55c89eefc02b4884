"""Candidates as tiles: ranges of rows that neighbouring combinations share, judged all at once.

Combinations are sorted by time, or by the column of a band. So the ranges of neighbours overlap, and a
tile of some combinations and the rows that their ranges cover has few pairs that are not candidates.
The predicate (operators/predicates/tiles.py) answers for the whole tile, and only pairs that pass
become positions. Only these are checked against the ranges, the times and the batch.

A tile is bounded in rows, and in bytes: those of the columns that the predicate reads, and of a mask of
double precision. The rows of a run are read in place, unless they come in the order of a band.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.tiling import cut_tiles
from spillway.operators.predicates.columns import Rows, rows_at, side_at, stream_of
from spillway.operators.predicates.evaluation import holds
from spillway.operators.predicates.tiles import (
    FEW_PAIRS,
    MOST_LEFT,
    MOST_RIGHT,
    SPARSE,
    Tiles,
    WrongMask,
)
from spillway.operators.theta.candidates import CandidateLimits, Candidates, Positions
from spillway.plan.sql.nodes import SqlCondition
from spillway.rows import bounds

#: Bytes that a function makes for each pair: one number in double precision, for a share of a block.
_PAIR_BYTES, _SHARE = 8, 4
_NO_PAIRS = np.empty(0, np.int64)


class Judgement(NamedTuple):
    """The pairs of one tile that pass: positions on both sides, the candidates, and the time."""

    left: Positions
    right: Positions
    candidates: int
    seconds: float


@dataclass(frozen=True)
class Times:
    """Which rows fit each combination: times from `first` to `last`, and batches below `before`."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    before: int


def tile_rows(left_bytes: int, right_bytes: int) -> tuple[int, int]:
    """The most rows of each side of a tile, for the bytes of a row.

    Example:
        >>> tile_rows(8, 8), tile_rows(100_000, 100_000)
        ((512, 1024), (128, 128))
    """
    left, right = MOST_LEFT, MOST_RIGHT
    most = bounds.BLOCK_BYTES
    while max(left, right) > 1 and (
        left * left_bytes + right * right_bytes > most
        or left * right * _PAIR_BYTES > most // _SHARE
    ):
        # The larger side shrinks first, so that both stay of use.
        if right * max(right_bytes, 1) >= left * max(left_bytes, 1):
            right = max(1, right // 2)
            left = left if right > 1 else max(1, left // 2)
        else:
            left = max(1, left // 2)
            right = right if left > 1 else max(1, right // 2)
    return left, right


@dataclass(frozen=True)
class Tiling:
    """Candidates of one run, in tiles of one predicate."""

    test: Tiles
    #: What must hold for it to hold.
    prefilter: SqlCondition | None
    #: The rows of the combinations and of the run; the run's are the second argument unless `turned`.
    left: Rows
    right: Rows
    turned: bool
    #: The most rows of each side.
    most: tuple[int, int]
    limits: CandidateLimits
    times: Times

    def judged(self, some: Candidates) -> Iterator[Judgement]:
        """Yields the pairs that pass, tile by tile."""
        cut = cut_tiles(some.start, some.count, self.most[0], FEW_PAIRS, SPARSE)
        for first, last, low, high in zip(*(one.tolist() for one in cut), strict=True):
            ranges = slice(first, last)
            for begin in range(low, high, self.most[1]):
                yield self._tile(some, ranges, begin, min(begin + self.most[1], high))

    def _tile(self, some: Candidates, ranges: slice, begin: int, end: int) -> Judgement:
        start = np.maximum(some.start[ranges], begin)
        stop = np.minimum(some.start[ranges] + some.count[ranges], end)
        which = some.which[ranges]
        candidates = int(np.maximum(stop - start, 0).sum())
        if not candidates:
            return Judgement(_NO_PAIRS, _NO_PAIRS, 0, 0.0)
        since = time.perf_counter()
        ordered = len(some.order) > 0
        rows = some.order[begin:end].astype(np.int64) if ordered else np.arange(begin, end)
        try:
            mine, theirs = self._asked(which, rows)
        except WrongMask:
            raise
        except Exception:
            # Perhaps a pair that is not a candidate is the reason.
            found = self._one_by_one(which, start - begin, stop - begin, rows)
        else:
            inside = (theirs >= start[mine] - begin) & (theirs < stop[mine] - begin)
            found = self._fitting(which[mine[inside]], rows[theirs[inside]])
        return Judgement(*found, candidates, time.perf_counter() - since)

    def _asked(self, which: Positions, rows: Positions) -> tuple[Positions, Positions]:
        mine, theirs = side_at(self.left, which), side_at(self.right, rows)
        if self.turned:
            later, earlier = self.test.of_all(theirs, mine)
            return earlier, later
        return self.test.of_all(mine, theirs)

    def _fitting(self, left: Positions, right: Positions) -> tuple[Positions, Positions]:
        """The pairs that limits (see `Wanted` in kernels/probe.py) and prefilter allow."""
        keep = np.ones(len(left), np.bool_)
        limits = self.limits
        if len(limits.begins):
            piece = np.searchsorted(limits.begins, right, side="right") - 1
            keep &= (piece >= 0) & (right < limits.ends[piece])
        if len(limits.times):
            at = limits.times[right]
            keep &= (at >= self.times.first[left]) & (at <= self.times.last[left])
        if len(limits.marks):
            keep &= limits.marks[right] < self.times.before
        if not keep.all():
            left, right = left[keep], right[keep]
        if self.prefilter is None or not len(left):
            return left, right
        sides = rows_at(self.left, left), rows_at(self.right, right)
        held = holds(self.prefilter, {stream_of(side): side for side in sides}, len(left))
        return left[held], right[held]

    def _one_by_one(
        self, which: Positions, start: Positions, stop: Positions, rows: Positions
    ) -> tuple[Positions, Positions]:
        """The same for a tile on which the function fails: only candidates count."""
        count = np.maximum(stop - start, 0)
        mine = np.repeat(np.arange(len(which)), count)
        theirs = np.arange(len(mine)) - np.repeat(np.cumsum(count) - count, count) + start[mine]
        left, right = self._fitting(which[mine], rows[theirs])
        sides = rows_at(self.left, left), rows_at(self.right, right)
        held = self.test.of_pairs(*(sides[::-1] if self.turned else sides))
        return left[held], right[held]
