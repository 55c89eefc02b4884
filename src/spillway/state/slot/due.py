"""The rows of one stream that expire in a batch and have not given their results.

A group has a time, `GroupTable.final_us`: rows up to it have given their results and are gone. The
rows that are *due* come after it, up to the bound of the batch. They are in memory and on disk, in
files that also have rows with more time. Each run keeps the order of its rows by time, so the slot
finds due rows without reading others. They are staged (state/slot/staging.py): the operator gets all
rows of a hash range at once, combined, in bounded bytes.

Rows of a group wait for their results while the group has rows that the slot has not processed. Rows
of groups that are leaving, and parked rows, are not here: the slot that has the group afterwards
gives their results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spillway.routing.groups import group_of
from spillway.routing.routing import group_ranges
from spillway.rows.cutting import TakenRows, cut_taken
from spillway.state.layout.layers import Layer
from spillway.state.layout.shelf import Shelf, slices
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.staging import Staging

#: Due rows of a run that are taken at a time.
TAKEN_ROWS = 1 << 18


class DueRows:
    """The due rows of one stream in one batch."""

    def __init__(
        self,
        shelf: Shelf,
        stream: int,
        stacks: Sequence[Sequence[Layer]],
        bound: int,
        waiting: NDArray[np.bool_],
        silent: Collection[int],
        apart: NDArray[np.bool_] | None = None,
    ) -> None:
        """Finds the due rows of groups, except those in `waiting`, `silent` and `apart`.

        Rows of groups in `apart` are of no more use, and may stay for long.
        """
        #: Rows up to this time expire.
        self.bound = bound
        self._shelf = shelf
        self.stream = stream
        self._staging = Staging(shelf)
        self.rows = 0
        present = np.zeros(shelf.groups, np.bool_)
        for layers in stacks:
            present |= shelf.sizes(stream, layers)[0] > 0
        assert shelf.final_us is not None
        self._final_us = shelf.final_us
        present &= self._final_us < bound
        #: The groups that have no due rows any more after this batch, and those that keep theirs.
        self.finished = present & ~waiting
        if apart is not None:
            self.finished &= ~apart
        keeping = np.flatnonzero(present & ~self.finished).tolist()
        self.keeping = group_ranges(keeping, shelf.groups)
        #: The groups that keep rows which may be due, and have results to give.
        self.withheld = present & waiting if apart is None else np.zeros(shelf.groups, np.bool_)
        self._giving = self.finished.copy()
        self._giving[list(silent)] = False
        self._pieces = pieces = [piece for layers in stacks for piece in slices(layers)]
        if self._giving.any():
            for piece in pieces:
                if piece.run.min_time is not None and piece.run.min_time <= bound:
                    self._collect(shelf.segment(stream, piece))

    @property
    def final_us(self) -> NDArray[np.int64]:
        """For each group, the time up to which its rows are gone after this batch."""
        return np.where(self.finished, self.bound, self._final_us)

    def take(self) -> Iterator[RunData]:
        """Yields the due rows, one hash range after the other."""
        for rows in self._staging.take(whole=True):
            found = rows[self.stream]
            if found is not None and found.rows:
                yield found

    @cached_property
    def left(self) -> list[Segment]:
        """Rows that are later, in memory and on disk; those that are due count as gone."""
        gone_us = self.final_us
        return [
            replace(self._shelf.segment(self.stream, piece), final_us=gone_us)
            for piece in self._pieces
            if piece.run.max_time is not None and piece.run.max_time > self.bound
        ]

    def _collect(self, segment: Segment) -> None:
        at = self._due(segment)
        self.rows += len(at)
        data = segment.data
        taken = TakenRows(data.widths(range(data.payload.num_columns)), at)
        for begin, end in cut_taken([taken], len(at), TAKEN_ROWS):
            rows = data.batch.take(at[begin:end])
            self._staging.add(self.stream, RunData(rows, data.time_column))

    def _due(self, segment: Segment) -> NDArray[np.int64]:
        """Returns the rows of a segment that are due, ascending."""
        data, times = segment.data, segment.data.times
        assert times is not None
        if segment.rows == 0:
            return np.empty(0, np.int64)
        first = int(self._final_us[self._giving].min())
        least, most = data.time_span
        if most <= self.bound and least > first:
            at = np.arange(segment.begin, segment.end)
        else:
            order = data.derived("by time", lambda: _by_time(times))
            ends = np.searchsorted(times, [first, self.bound], side="right", sorter=order)
            some = order[ends[0] : ends[1]]
            at = np.sort(some[(some >= segment.begin) & (some < segment.end)])
        groups = group_of(data.h[at], self._shelf.groups)
        due = self._giving[groups] & (times[at] > self._final_us[groups])
        found: NDArray[np.int64] = at[due]
        return found


def _by_time(times: NDArray[np.int64]) -> NDArray[np.int32]:
    """Returns the order of rows by time; it stays with the opened run."""
    return np.argsort(times, kind="stable").astype(np.int32)
