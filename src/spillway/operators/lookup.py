"""Rows of state that have the keys of given rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.equality import same_keys
from spillway.kernels.probe import expand, match_ranges
from spillway.state.merging import Segment

Positions = NDArray[np.int32]


def within(probe: NDArray[np.uint32], segment: Segment) -> tuple[int, int]:
    """The probing rows whose hashes a segment can hold; probes are ascending by hash."""
    if segment.begin >= segment.end:
        return 0, 0
    low, high = segment.data.h[segment.begin], segment.data.h[segment.end - 1]
    return (
        int(np.searchsorted(probe, low, side="left")),
        int(np.searchsorted(probe, high, side="right")),
    )


def candidates(
    probe: NDArray[np.uint32], segment: Segment
) -> tuple[Positions, Positions, Positions]:
    """The rows of a segment with the hash of a probing row: (probing row, first, how many)."""
    begin, end = within(probe, segment)
    data = segment.data
    which, start, count = match_ranges(
        probe[begin:end], data.h, *data.index, segment.begin, segment.end
    )
    return which + np.int32(begin), start, count


def matches(
    probe: NDArray[np.uint32], keys: Sequence[pa.Array], segment: Segment, at: Sequence[int]
) -> tuple[Positions, Positions]:
    """The pairs (probing row, row of the segment's run) with equal keys, by probing row.

    `at` says where the keys are among the columns of the segment.
    """
    left, right, count = candidates(probe, segment)
    total = int(count.sum())
    if total > len(count):
        left, right, _, _ = expand(left, right, count, 0, 0, total)
    if total == 0:
        return left, right
    payload = segment.data.payload
    same = same_keys(keys, left, [payload.column(one) for one in at], right)
    return (left, right) if same.all() else (left[same], right[same])
