"""Finds rows of state that have the keys of given rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.equality import same_keys
from spillway.kernels.probe import expand, match_ranges, match_sorted
from spillway.routing.groups import group_of
from spillway.state.runs.merging import Segment

Positions = NDArray[Any]
#: Rows of a segment per probing row up to which a merge join beats the index, if most probes find
#: something. 180,000 probes of 180,000, 500,000 and 2 million rows took 6, 12 and 40 ns each by
#: merge join, and 13, 21 and 20 with the index; but 3 with the index if nothing matches.
SIDE_BY_SIDE = 4


def within(probe: NDArray[np.uint32], segment: Segment) -> tuple[int, int]:
    """Returns the probing rows whose hashes a segment can hold; probes are ascending by hash."""
    if segment.begin >= segment.end:
        return 0, 0
    low, high = segment.data.h[segment.begin], segment.data.h[segment.end - 1]
    return (
        int(np.searchsorted(probe, low, side="left")),
        int(np.searchsorted(probe, high, side="right")),
    )


def candidates(
    probe: NDArray[np.uint32], segment: Segment, *, likely: bool = False
) -> tuple[Positions, Positions, Positions]:
    """Returns rows with the hash of a probing row: (probing row, first, count).

    `likely` says that many probing rows have matches.
    """
    begin, end = within(probe, segment)
    data, some = segment.data, probe[begin:end]
    if likely and segment.rows <= SIDE_BY_SIDE * len(some):
        which, start, count = match_sorted(some, data.h, segment.begin, segment.end)
    else:
        which, start, count = match_ranges(
            some, data.h, tuple(data.index), segment.begin, segment.end
        )
    return which + np.int32(begin), start, count


def matches(
    probe: NDArray[np.uint32], keys: Sequence[pa.Array], segment: Segment, at: Sequence[int]
) -> tuple[Positions, Positions]:
    """Returns pairs (probing row, live row of the segment's run) with equal keys, by probing row.

    `at` gives the positions of the keys among the segment's columns.
    """
    left, right, count = candidates(probe, segment, likely=True)
    total = int(count.sum())
    if total > len(count):
        left, right, _, _ = expand(left, right, count, 0, 0, total)
    if total == 0:
        return left, right
    payload = segment.data.payload
    same = same_keys(keys, left, [payload.column(one) for one in at], right)
    if segment.final_us is not None and segment.data.times is not None:
        groups = group_of(segment.data.h[right], len(segment.final_us))
        same &= segment.data.times[right] > segment.final_us[groups]
    return (left, right) if same.all() else (left[same], right[same])
