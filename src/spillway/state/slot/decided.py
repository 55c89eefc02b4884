"""What a slot has decided: up to which watermark it knows which rows stay without partners.

An outer join gives a row with NULLs when no partner can come any more (operators/equi/outer.py). With W
the window of its stream, a row of time t is decided at the watermark t + W. For each group the slot
keeps one number, the watermark up to which it has decided:

    all rows with t + W <= decided have come out with NULLs if they had to; all later rows have not.

So each row is decided exactly once, and a crash, a move or a restart changes nothing: the number
travels with the group, in its statistics (metrics/groups.py). Groups that miss results, or have rows
that wait, are not decided until they have met: their number stays, and so do their rows.

Effort: a step of the watermark looks at the times of the runs that have rows in the step. The rows of
    one run span a small part of the window (state/layout/compaction.py), so the slot reads the time
    of a row a few times in all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import UNDECIDED, GroupTable
from spillway.routing.routing import HashRange, group_ranges
from spillway.state.layout.layers import Layer
from spillway.state.layout.shelf import Shelf, slices
from spillway.state.runs.merging import Segment, inside
from spillway.state.runs.run import RunData

#: Groups that have decided up to the same watermark.
Due = tuple[int, tuple[int, ...]]


class Decided:
    """Up to which watermark the groups of one slot have decided."""

    def __init__(self, shelf: Shelf, table: GroupTable) -> None:
        self._shelf = shelf
        #: Whether the operator decides at all.
        self.any = any(layout.decided_after_us is not None for layout in shelf.layouts)
        known = table.decided_us if len(table) else np.full(shelf.groups, UNDECIDED)
        self.until: NDArray[np.int64] = known.copy()
        #: Whether groups were left out in this batch.
        self.left_out = False

    def due(self, watermark_us: int, kept: Collection[int]) -> list[Due]:
        """Returns the groups that have not decided up to a watermark, except those in `kept`."""
        behind = self.until < watermark_us
        behind[list(kept)] = False
        return [
            (since, tuple(np.flatnonzero(behind & (self.until == since)).tolist()))
            for since in np.unique(self.until[behind]).tolist()
        ]

    def advance(self, watermark_us: int, kept: Collection[int]) -> None:
        """Records that all groups except those in `kept` have decided up to a watermark."""
        others = np.ones(len(self.until), np.bool_)
        others[list(kept)] = False
        self.until[others] = np.maximum(self.until[others], watermark_us)
        self.left_out = bool(kept)

    def rows(
        self, stream: int, layers: Sequence[Layer], due: Due, watermark_us: int
    ) -> Iterator[Segment]:
        """Yields the rows of a part that the step up to a watermark decides, sorted by hash."""
        after = self._shelf.layouts[stream].decided_after_us
        assert after is not None, f"rows of stream {stream} are not decided"
        since, until = due[0] - after, watermark_us - after
        ranges: tuple[HashRange, ...] | None = None
        for piece in slices(layers):
            oldest, newest = piece.run.min_time, piece.run.max_time
            if oldest is None or newest is None or oldest > until or newest <= since:
                continue
            segment = self._shelf.segment(stream, piece)
            if found := _between(segment, since, until):
                ranges = ranges or group_ranges(due[1], self._shelf.groups)
                yield inside(found, ranges)

    def take_over(self, groups: GroupTable) -> None:
        """Takes what groups that came from another slot have decided."""
        here = np.flatnonzero(groups.here)
        self.until[here] = groups.decided_us[here]

    def with_parts(
        self,
        parts: Sequence[Sequence[tuple[Layer, ...]]],
        stream: int,
        watermark_us: int,
        kept: Collection[int],
    ) -> Iterator[tuple[Segment, list[list[Segment]]]]:
        """Yields what `rows` does, run by run, with all rows of the same part, for each stream.

        A group has one part, because groups that miss results are in `kept`.
        """
        due = self.due(watermark_us, kept)
        for part in parts:
            sides: list[list[Segment]] = []
            for some in due:
                for rows in self.rows(stream, part[stream], some, watermark_us):
                    sides = sides or [self._shelf.open(at, x) for at, x in enumerate(part)]
                    yield rows, sides

    def in_table(self, table: GroupTable, departed: Collection[int]) -> GroupTable:
        """Returns the table with the watermarks; a group without rows has decided nothing.

        Groups that are leaving have their rows elsewhere.
        """
        if not self.any:
            return table
        held = table.held
        held[list(departed)] = True
        return replace(table, decided_us=np.where(held, self.until, UNDECIDED))

    def least(self, table: GroupTable, kept: Collection[int]) -> int | None:
        """Returns the watermark up to which all groups that could decide have; None: there are none."""
        if not self.any:
            return None
        held = table.held
        held[list(kept)] = False
        return int(self.until[held].min()) if held.any() else None


def _between(segment: Segment, since: int, until: int) -> Segment | None:
    """Returns the rows of a segment with times in (since, until]; None: there are none."""
    times = segment.data.times
    assert times is not None
    mine = times[segment.begin : segment.end]
    at = np.flatnonzero((mine > since) & (mine <= until))
    if not len(at):
        return None
    if len(at) == len(mine):
        return segment
    rows = segment.batch().take(np.asarray(at))
    return Segment(RunData(rows, segment.data.time_column), 0, len(at))
