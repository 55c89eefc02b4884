"""What the rows that drive a term join with: Equation 1 of DCAPE-TR, cut into disjoint cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData

#: Rows of a part that drive a term at a time.
_DRIVE_ROWS = 262_144


def driven(segments: Iterable[Segment], most_rows: int = _DRIVE_ROWS) -> Iterator[RunData]:
    """Yields the rows of segments, limited to the number that may drive a term."""
    for segment in segments:
        for begin in range(segment.begin, segment.end, most_rows):
            yield segment.data.part(begin, min(begin + most_rows, segment.end))


def mixed(
    base: Sequence[Sequence[Segment]], delta: Sequence[Sequence[Segment]], source: int
) -> Iterator[list[list[Segment]]]:
    """Yields what a `delta` row of side `source` joins with, as disjoint cases.

    Over all sources, they give the combinations with rows of both `base` and `delta`. These are the
    terms of Equation 1 of DCAPE-TR for adding `delta` to `base`, without the combinations of
    `delta` alone. For all sources except the last, Equation 1 already mixes: the last side is of
    `base`. For the last source, the first side that is of `base` separates the cases.
    """
    sides = range(len(base))
    both = [[*base[j], *delta[j]] for j in sides]
    if source < sides[-1]:
        yield [both[j] if j < source else list(base[j]) for j in sides]
        return
    for first in sides[:-1]:
        yield [
            list(delta[j]) if j < first else list(base[j]) if j == first else both[j] for j in sides
        ]


def crossed(
    old: Sequence[Sequence[Segment]],
    new: Sequence[Sequence[Segment]],
    deltas: Sequence[RunData],
    source: int,
) -> Iterator[list[list[Segment]]]:
    """Yields what a row of delta `source` joins with, where a row of `old` is required.

    Over all sources these are the terms of Equation 1 of DCAPE-TR for adding the deltas to `old`
    and `new`, without the combinations of `new` and the deltas alone. The first side that is of
    `old` separates the cases.
    """
    sides = range(len(old))
    fresh = [
        [
            *new[j],
            *([Segment(deltas[j], 0, deltas[j].rows)] if j < source and deltas[j].rows else []),
        ]
        for j in sides
    ]
    for first in (j for j in sides if j != source):
        yield [
            fresh[j] if j < first else list(old[j]) if j == first else [*old[j], *fresh[j]]
            for j in sides
        ]
