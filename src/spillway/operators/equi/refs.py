"""Row references: a segment and a row number in it, resolved to values only when needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spillway.operators.lookup import Positions
from spillway.state.runs.merging import Segment


@dataclass(frozen=True)
class Refs:
    """Rows of one side: the segment and the row number of each."""

    segment: Positions
    row: Positions

    def take(self, at: Positions) -> Refs:
        """Selects some of the rows."""
        return Refs(self.segment[at], self.row[at])


def gather(segments: Sequence[Segment], refs: Refs, wanted: Sequence[int]) -> list[pa.Array]:
    """Gathers the referenced rows in order, one segment at a time."""
    order = None
    where, row = refs.segment, refs.row
    if len(where) > 1 and np.any(np.diff(where) < 0):
        order = np.argsort(where, kind="stable")
        where, row = where[order], row[order]
    starts = np.flatnonzero(np.diff(where, prepend=-1))
    parts = []
    for start, end in zip(starts, [*starts[1:], len(where)], strict=True):
        payload = segments[where[start]].data.payload
        parts.append(payload.select(list(wanted)).take(pa.array(row[start:end])))
    arrays = [pa.concat_arrays([p.column(c) for p in parts]) for c in range(len(wanted))]
    if order is None:
        return arrays
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return [array.take(pa.array(back)) for array in arrays]


def gathered_column(segments: Sequence[Segment], refs: Refs, column: int) -> pa.Array:
    """Gathers one column of the referenced rows."""
    return gather(segments, refs, [column])[0]
