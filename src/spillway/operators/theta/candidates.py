"""Candidates of a visit: ranges of rows among which combinations look for partners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.operators.predicates.predicate import Predicate
from spillway.operators.theta.pieces import Placed

#: NumPy takes rows fastest with 64-bit positions.
Positions = NDArray[np.int64]
#: Marks what is not examined.
NOTHING = np.empty(0, np.int32)


@dataclass(frozen=True)
class Candidates:
    """Ranges of rows, or of an order of rows: which combination, first, count."""

    which: Positions
    start: Positions
    count: Positions
    order: NDArray[np.int32]
    #: A predicate that holds for all of them.
    answered: Predicate | None = None

    @property
    def pairs(self) -> int:
        """The number of pairs of a combination and a row."""
        return int(self.count.sum(dtype=np.int64))


@dataclass(frozen=True)
class CandidatesByTime:
    """Candidates in the pieces of a run by place, one part for each plane."""

    parts: Sequence[Placed]
    pairs: int
    #: Whether some may be outside their time range.
    wide: bool

    def candidates(self) -> Iterator[Candidates]:
        """Yields the candidates of each piece; there are many, as all visitors search every piece."""
        for part in self.parts:
            for which, start, count in part.cut():
                yield candidates_of(which, start, count)


@dataclass(frozen=True)
class CandidateLimits:
    """What to check of candidates; an empty array means no check."""

    begins: Positions
    ends: Positions
    times: NDArray[np.int64]
    marks: NDArray[np.int32]
    #: The pairs within the window that each candidate stands for.
    share: float


def candidates_of(
    which: NDArray[Any],
    start: NDArray[Any],
    count: NDArray[Any],
    order: NDArray[np.int32] = NOTHING,
    answered: Predicate | None = None,
) -> Candidates:
    """Returns candidates without empty ranges."""
    there = count > 0
    which, start, count = (one[there].astype(np.int64) for one in (which, start, count))
    return Candidates(which, start, count, order, answered)
