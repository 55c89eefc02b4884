"""`tiles`: predicates on two matrices of rows, which answer for all pairs of their rows at once.

The function gets m rows of one stream and k rows of another, and returns an m x k mask. So matrix
products and broadcasting work, and no row is copied for each of its pairs. A tile may contain pairs
that are not candidates; their answers do not count. Rows with NULL in a column that the function reads
leave the tile before the function sees them.

Candidates come as ranges of rows (operators/theta/tiling.py) or as a list of pairs, as between rows with
equal keys. `of_pairs` cuts a list into tiles of the rows in it.

If the function fails on a tile, a pair that is not a candidate may be the reason. Then halves of the
candidates get tiles of their own, down to one pair. So the query ends only if the function fails on a
candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.errors import QueryError, SpillwayError
from spillway.operators.predicates.columns import (
    Missing,
    NothingThere,
    Rows,
    Side,
    places_of,
    side_at,
    stream_of,
)

Mask = NDArray[np.bool_]
Positions = NDArray[np.int64]

#: Pairs that a tile may cover if few of them are candidates: calls of NumPy cost as much.
FEW_PAIRS = 4096
#: Pairs that a larger tile covers, for each candidate. Four is less than the price of copying two rows.
SPARSE = 4
#: Rows of each side of a tile. 512 x 1024 products of 512 floats reach the speed of the largest
#: matrices, and a mask of double precision stays in a processor's cache.
MOST_LEFT, MOST_RIGHT = 512, 1024
_NONE = np.empty(0, np.int64)


class WrongMask(QueryError):
    """A function that does not return one boolean for each pair, whatever the rows are."""


class Tiles:
    """A function of the rows of two streams that returns a mask of all their pairs."""

    def __init__(self, test: Callable[[Any, Any], Any]) -> None:
        self._test = test
        self.__name__ = getattr(test, "__name__", type(test).__name__)

    def __call__(self, left: Rows, right: Rows) -> Mask:
        """Whether it holds, for each of some pairs."""
        return self.of_pairs(left, right)

    def of_pairs(self, left: Rows, right: Rows) -> Mask:
        """Whether it holds for each pair of rows at equal places."""
        held = np.zeros(len(left), np.bool_)
        self._try(left, right, 0, len(left), held)
        return held

    def of_all(self, left: Side, right: Side) -> tuple[Positions, Positions]:
        """The pairs of a row on the left and a row on the right for which it holds.

        Raises what the function raises, also for pairs that are not candidates.
        """
        sides = [left, right]
        #: The rows of each side that are left.
        kept = [np.arange(len(side)) for side in sides]
        while all(len(side) for side in sides):
            try:
                found = self._mask(*sides)
            except Missing as some:
                at = next(n for n, side in enumerate(sides) if side is some.side)
                there = np.flatnonzero(some.there)
                kept[at] = kept[at][there]
                sides[at] = side_at(sides[at], places_of(sides[at])[there])
            except NothingThere:
                break
            else:
                mine, theirs = np.divmod(np.flatnonzero(found), found.shape[1])
                return kept[0][mine], kept[1][theirs]
        return _NONE, _NONE

    def _mask(self, left: Side, right: Side) -> Mask:
        found = np.asarray(self._test(left, right))
        wanted = (len(left), len(right))
        mine, theirs = stream_of(left), stream_of(right)
        if found.shape != wanted or found.dtype != np.bool_:
            raise WrongMask(
                f"the predicate {self.__name__} over tiles of {mine} and {theirs} "
                f"returned {found.dtype} of shape {found.shape}, not booleans of shape {wanted}",
                hint=f"return one boolean for each row of {mine} and row of {theirs}, for "
                f"example {mine}.x[:, None] < {theirs}.x[None, :]",
            )
        return found

    def _try(self, left: Rows, right: Rows, begin: int, end: int, held: Mask) -> None:
        """Fills in the answers for pairs from `begin` to `end`, in halves where one tile will not do."""
        pairs = end - begin
        if not pairs:
            return
        mine, where = np.unique(places_of(left)[begin:end], return_inverse=True)
        theirs, also = np.unique(places_of(right)[begin:end], return_inverse=True)
        area = len(mine) * len(theirs)
        if pairs == 1 or area <= max(FEW_PAIRS, SPARSE * pairs):
            try:
                one, other = self.of_all(side_at(left, mine), side_at(right, theirs))
            except WrongMask:
                raise
            except Exception as problem:
                if pairs == 1:
                    raise self._failed(left, right, problem) from problem
            else:
                mask = np.zeros((len(mine), len(theirs)), np.bool_)
                mask[one, other] = True
                held[begin:end] = mask[where, also]
                return
        middle = begin + pairs // 2
        self._try(left, right, begin, middle, held)
        self._try(left, right, middle, end, held)

    def _failed(self, left: Rows, right: Rows, problem: Exception) -> SpillwayError:
        if isinstance(problem, SpillwayError):
            return problem
        mine, theirs = stream_of(left), stream_of(right)
        return QueryError(
            f"the predicate {self.__name__} over tiles of {mine} and {theirs} failed: "
            f"{type(problem).__name__}: {problem}",
            hint="its arguments are the rows of two streams: a.x is an array with one value per row, "
            'and a.matrix("v") a matrix',
        )


def tiles(test: Callable[[Any, Any], Any]) -> Tiles:
    """Makes a condition of a function of m rows and k rows that returns an m x k mask.

    The arguments are one object for each stream: `a.x` is an array with one value per row, and the rows
    of `a.matrix("v")` are byte strings or lists of equal length. Rows with NULL in a column that the
    function reads are left out. The answer for a pair must not depend on the other rows of the tile.

    Example:
        >>> join.match(sw.tiles(lambda a, b: a.x[:, None] < b.x), "a", "b")  # doctest: +SKIP
    """
    return Tiles(test)
