"""The bytes of rows of a pool, before they are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.operators.pool import Positions, Refs
from spillway.rows.cutting import Widths
from spillway.state.runs.merging import Segment


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
