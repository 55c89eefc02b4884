"""What a condition over several streams implies about two: its bands, tested when both are there.

The condition itself filters when the last of its streams joins. Until then combinations would
multiply, although `abs(a.x - b.x) < 1 and abs(b.x - c.x) < 1` already limits pairs of a and b. A band
holds wherever its condition does. Its test in double precision is slightly too wide
(plan/sql/bands.py) and cannot fail, so one part of a condition still guards another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.operators.predicates.columns import Rows
from spillway.plan.sql.bands import Band, Floats
from spillway.plan.sql.expression import Column
from spillway.plan.sql.linear import Span

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class InBands:
    """The condition that some bands hold, all between the same two streams."""

    bands: tuple[Band, ...]

    @property
    def columns(self) -> frozenset[Column]:
        """The columns that it reads."""
        return frozenset(column for band in self.bands for column in (band.left, band.right))

    def may_hold(self, rows: Mapping[str, Rows], count: int) -> Mask:
        """For each pair, whether all bands may hold; none does where a value is NULL."""
        held = np.ones(count, np.bool_)
        for band in self.bands:
            held &= _may_hold(band, rows[band.left.stream], rows[band.right.stream])
        return held


def between_two(
    bands: Sequence[Band], streams: Sequence[str]
) -> Iterator[tuple[tuple[str, str], InBands]]:
    """Bands by the two streams that they are between, in the order of `streams`.

    Example:
        >>> x, y, z = (Column(stream, "x") for stream in "abc")
        >>> near = [Band(one, other, 1.0, -1.0, 0.0, 1.0, 1.0) for one, other in ((y, x), (z, y))]
        >>> [pair for pair, _ in between_two(near, "abc")]
        [('a', 'b'), ('b', 'c')]
    """
    found: dict[tuple[str, str], list[Band]] = {}
    for band in bands:
        first, second = sorted((band.left.stream, band.right.stream), key=streams.index)
        found.setdefault((first, second), []).append(band)
    for pair, some in found.items():
        yield pair, InBands(tuple(some))


def _may_hold(band: Band, left: Rows, right: Rows) -> Mask:
    (mine, single), (theirs, other) = _numbers(left, band.left), _numbers(right, band.right)
    columns = (left, band.left.name), (right, band.right.name)
    valid = [rows.values(name)[1] for rows, name in columns]
    if band.overflows(_span(mine, valid[0]), _span(theirs, valid[1])):
        # The condition may fail on these pairs, and only it may say so.
        held = np.ones(len(mine), np.bool_)
    else:
        (first, last), _ = band.ranges(mine, single=single or other)
        held = (theirs >= first) & (theirs <= last)
        held[np.isnan(mine) | np.isnan(theirs)] = not band.ordered
    for some in valid:
        if some is not None:
            held &= some
    return held


def _numbers(rows: Rows, column: Column) -> tuple[Floats, bool]:
    """The values of a column as bands use them, and whether they are single precision."""
    values = rows[column.name]
    whole = values.view(np.int64) if values.dtype.kind == "M" else values
    return np.asarray(whole).astype(np.float64), values.dtype == np.float32


def _span(numbers: Floats, valid: Mask | None) -> Span:
    """The least and largest finite values that are not NULL."""
    finite = np.isfinite(numbers) if valid is None else np.isfinite(numbers) & valid
    some = numbers[finite]
    return (float(some.min()), float(some.max())) if len(some) else (0.0, 0.0)
