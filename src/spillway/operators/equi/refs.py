"""Row references: a segment and a row number in it, resolved to values only when needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.operators.lookup import Positions
from spillway.rows.cutting import Widths
from spillway.rows.joining import joined_column
from spillway.state.runs.merging import Segment


@dataclass(frozen=True)
class Refs:
    """Rows of one side: the segment and the row number of each."""

    segment: Positions
    row: Positions

    def take(self, at: Positions | slice) -> Refs:
        """Selects some of the rows."""
        return Refs(self.segment[at], self.row[at])


def gather(segments: Sequence[Segment], refs: Refs, wanted: Sequence[int]) -> list[pa.Array]:
    """Gathers the referenced rows in order, one segment at a time."""
    order, parts = _by_segment(refs)
    found = [
        segments[number].data.payload.select(list(wanted)).take(pa.array(rows))
        for number, rows in parts
    ]
    arrays = [joined_column([part.column(c) for part in found]) for c in range(len(wanted))]
    if order is None:
        return arrays
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return [array.take(pa.array(back)) for array in arrays]


def gathered_column(segments: Sequence[Segment], refs: Refs, column: int) -> pa.Array:
    """Gathers one column of the referenced rows."""
    return gather(segments, refs, [column])[0]


@dataclass(frozen=True)
class RefWidths:
    """The bytes of referenced rows, as `Widths` has them for the rows of one run."""

    segments: Sequence[Segment]
    refs: Refs
    wanted: Sequence[int]

    @property
    def widest(self) -> int:
        """No referenced row has more bytes."""
        met = np.flatnonzero(np.bincount(self.refs.segment)).tolist()
        return max((self._widths(number).widest for number in met), default=0)

    def sizes(self) -> NDArray[np.int64]:
        """Returns the bytes of each row."""
        order, parts = _by_segment(self.refs)
        found = np.concatenate([self._widths(number).at(rows) for number, rows in parts])
        if order is None:
            return found
        sizes = np.empty_like(found)
        sizes[order] = found
        return sizes

    def _widths(self, number: int) -> Widths:
        return self.segments[number].data.widths(self.wanted)


def _by_segment(refs: Refs) -> tuple[Positions | None, list[tuple[int, Positions]]]:
    """Returns the rows of each referenced segment; with an order, if segments are mixed."""
    order = None
    where, row = refs.segment, refs.row
    if len(where) > 1 and np.any(np.diff(where) < 0):
        order = np.argsort(where, kind="stable")
        where, row = where[order], row[order]
    starts = np.flatnonzero(np.diff(where, prepend=-1)).tolist()
    ends = [*starts[1:], len(where)]
    return order, [(int(where[a]), row[a:b]) for a, b in zip(starts, ends, strict=True)]
