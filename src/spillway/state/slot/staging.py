"""Staging: rows that wait for the rest of their batch.

The input of a slot comes in pieces, in an order that differs between attempts. A cumulative
operator (operators/cumulative.py) needs the rows of a batch together. So staging takes pieces, and
returns all rows of one hash range after the other. Each amount is bounded, and does not depend on
how the exchange cut the input.

Older rows that wait for their results are staged too: rows of groups that arrived from another
slot, of groups in cleanup (slot/cleanup.py), and of groups that open again (slot/admission.py).

A range has bounded bytes, or one hash. One hash may have too many rows for one batch (rows/bounds.py).
An additive operator or a visitor then gets several batches. A cumulative operator gets one wide batch
(rows/joining.py).

Pieces stay in the process up to a limit; more go to the disk tier as runs that no manifest names.
These are not durable, since a repeated attempt receives its rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from spillway.ids import HASH_END
from spillway.routing.groups import group_bounds
from spillway.rows.joining import conserve, fit
from spillway.state.layout.shelf import Shelf
from spillway.state.runs.merging import (
    WHOLE,
    Segment,
    below,
    cut_for,
    ranges_in_order,
    sorted_whole,
)
from spillway.state.runs.run import RunData, Slice

#: Bytes of staged rows that stay in the process.
STAGED_BYTES = 64 << 20


class Staging:
    """The staged rows of all input streams of one slot."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._held: list[list[RunData]] = [[] for _ in range(shelf.inputs)]
        self._held_bytes = 0
        self._written: list[list[Slice]] = [[] for _ in range(shelf.inputs)]
        #: For each group, whether it has rows here.
        self.groups: NDArray[np.bool_] = np.zeros(shelf.groups, np.bool_)

    def add(self, stream: int, data: RunData) -> None:
        """Takes sorted rows, combined as the stream's layout says."""
        if data.rows == 0:
            return
        self._held[stream].append(data)
        self._held_bytes += data.bytes_in(0, data.rows)
        self.groups |= np.diff(data.group_starts(group_bounds(self._shelf.groups))) > 0
        if self._held_bytes > STAGED_BYTES:
            self._write()

    def add_segments(self, stream: int, segments: Sequence[Segment]) -> None:
        """Takes the rows of segments."""
        time_column = self._shelf.layouts[stream].time_column
        for some in ranges_in_order(segments):
            rows = [segment.batch() for segment in some]
            for batch in self._shelf.merged(stream, rows, self._everything):
                self.add(stream, RunData(batch, time_column))

    def add_slices(self, found: Sequence[Sequence[Slice]]) -> None:
        """Takes the rows of slices, for each stream, without copying them."""
        for stream, pieces in enumerate(found):
            opened = [(piece, self._shelf.segment(stream, piece)) for piece in pieces]
            self._written[stream] += [piece for piece, segment in opened if segment.rows]
            for _, segment in opened:
                bounds = group_bounds(self._shelf.groups)
                rows = segment.data.group_sizes(bounds, segment.begin, segment.end)[0]
                self.groups |= rows > 0

    def take(self, *, whole: bool = False) -> Iterator[tuple[RunData | None, ...]]:
        """Yields all rows, one hash range after the other; None for a stream without rows in it.

        `whole`: all rows of a hash come at once.
        """
        streams = [
            [Segment(data, 0, data.rows) for data in held]
            + [self._shelf.segment(stream, piece) for piece in self._written[stream]]
            for stream, held in enumerate(self._held)
        ]
        self._held, self._held_bytes = [[] for _ in streams], 0
        self._written = [[] for _ in streams]
        staged, given = _rows(streams), 0
        while everything := [s for stream in streams for s in stream]:
            cut = cut_for(everything, HASH_END)
            taken = [[rows for s in found if (rows := _below(s, cut))] for found in streams]
            given += _rows(taken)
            yield from self._in_batches(taken, whole=whole)
            streams = [[rest for s in found if (rest := _after(s, cut))] for found in streams]
        conserve("taking staged rows", staged, given)
        self.groups[:] = False

    def _in_batches(
        self, taken: Sequence[Sequence[Segment]], *, whole: bool
    ) -> Iterator[tuple[RunData | None, ...]]:
        """Yields the rows of one range, merged: at once, or the first batch of each stream first."""
        if whole:
            yield tuple(self._whole(stream, found) for stream, found in enumerate(taken))
            return
        batches = [self._merged(stream, found) for stream, found in enumerate(taken)]
        yield from zip_longest(*batches)

    def _merged(self, stream: int, found: Sequence[Segment]) -> Iterator[RunData]:
        time_column = self._shelf.layouts[stream].time_column
        if len(found) == 1 and fit([found[0].bytes]):
            yield _alone(found[0], time_column)
        elif found:
            rows = [segment.batch() for segment in found]
            for batch in self._shelf.merged(stream, rows, self._everything):
                yield RunData(batch, time_column)

    def _whole(self, stream: int, found: Sequence[Segment]) -> RunData | None:
        time_column = self._shelf.layouts[stream].time_column
        if len(found) <= 1:
            return _alone(found[0], time_column) if found else None
        merged = self._merged(stream, found)
        return RunData(sorted_whole([rows.batch for rows in merged]), time_column)

    @property
    def _everything(self) -> NDArray[np.bool_]:
        """All staged rows wait for their results."""
        return np.ones(self._shelf.groups, np.bool_)

    def _write(self) -> None:
        for stream, held in enumerate(self._held):
            if held:
                rows = self._shelf.merged(stream, [data.batch for data in held], self._everything)
                found = self._shelf.write_each(stream, rows, WHOLE, "disk", durable=False)
                self._written[stream] += found
        self._held, self._held_bytes = [[] for _ in self._held], 0


def _alone(segment: Segment, time_column: int | None) -> RunData:
    """Returns the rows of a segment as a run of their own, which has an index of its own."""
    data = segment.data
    if segment.begin == 0 and segment.end == data.rows:
        return data
    return RunData(data.part(segment.begin, segment.end).batch, time_column)


def _rows(streams: Sequence[Sequence[Segment]]) -> int:
    return sum(segment.rows for stream in streams for segment in stream)


def _below(segment: Segment, cut: int) -> Segment | None:
    """Returns the rows of a segment with hashes below the cut."""
    end = below(segment, cut)[1]
    return Segment(segment.data, segment.begin, end) if segment.begin < end else None


def _after(segment: Segment, cut: int) -> Segment | None:
    """Returns the rows of a segment with hashes at or above the cut."""
    begin = below(segment, cut)[1]
    return Segment(segment.data, begin, segment.end) if begin < segment.end else None
