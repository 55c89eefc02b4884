"""Staging: rows that wait for the rest of their batch.

The input of a slot comes in pieces, in an order that differs between attempts. A cumulative
operator (operators/cumulative.py) needs the rows of a batch together. So staging takes pieces, and
returns all rows of one hash range after the other. The amount processed at a time is bounded, and
does not depend on how the exchange cut the input.

Older rows that wait for their results are staged too: rows of groups that arrived from another
slot, of groups in cleanup (slot/cleanup.py), and of groups that open again (slot/admission.py).

Pieces stay in the process up to a limit; more go to the disk tier as runs that no manifest names. A
repeated attempt receives its rows again, so these runs are not durable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.ids import HASH_END
from spillway.routing.groups import group_bounds
from spillway.routing.routing import HashRange
from spillway.state.layout.shelf import Shelf
from spillway.state.runs.merging import Segment, below, cut_for
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
        if rows := [segment.batch() for segment in segments if segment.rows]:
            time_column = self._shelf.layouts[stream].time_column
            self.add(stream, RunData(self._merged(stream, rows), time_column))

    def add_slices(self, found: Sequence[Sequence[Slice]]) -> None:
        """Takes the rows of slices, for each stream, without copying them."""
        for stream, pieces in enumerate(found):
            opened = [(piece, self._shelf.segment(stream, piece)) for piece in pieces]
            self._written[stream] += [piece for piece, segment in opened if segment.rows]
            for _, segment in opened:
                bounds = group_bounds(self._shelf.groups)
                rows = segment.data.group_sizes(bounds, segment.begin, segment.end)[0]
                self.groups |= rows > 0

    def take(self) -> Iterator[tuple[RunData | None, ...]]:
        """Yields all rows, one hash range after the other; None for a stream without rows in it."""
        pieces = [
            [Segment(data, 0, data.rows) for data in held]
            + [self._shelf.segment(stream, piece) for piece in self._written[stream]]
            for stream, held in enumerate(self._held)
        ]
        self._held, self._held_bytes = [[] for _ in pieces], 0
        self._written = [[] for _ in pieces]
        while everything := [s for stream in pieces for s in stream]:
            # The byte limit of `cut_for` ends a range.
            cut = cut_for(everything, HASH_END)
            yield tuple(self._below(stream, found, cut) for stream, found in enumerate(pieces))
            pieces = [[rest for s in found if (rest := _after(s, cut))] for found in pieces]
        self.groups[:] = False

    def _below(self, stream: int, pieces: Sequence[Segment], cut: int) -> RunData | None:
        spans = [(s, *below(s, cut)) for s in pieces]
        spans = [(s, begin, end) for s, begin, end in spans if begin < end]
        time_column = self._shelf.layouts[stream].time_column
        if not spans:
            return None
        if len(spans) == 1:
            [(s, begin, end)] = spans
            whole = begin == 0 and end == s.data.rows
            return s.data if whole else RunData(s.data.part(begin, end).batch, time_column)
        rows = [s.data.batch.slice(begin, end - begin) for s, begin, end in spans]
        return RunData(self._merged(stream, rows), time_column)

    def _merged(self, stream: int, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Merges rows; all of them wait for their results."""
        return self._shelf.merged(stream, parts, np.ones(self._shelf.groups, np.bool_))

    def _write(self) -> None:
        for stream, held in enumerate(self._held):
            if held:
                rows = self._merged(stream, [data.batch for data in held])
                whole = HashRange(0, HASH_END)
                piece = self._shelf.write(stream, rows, whole, "disk", durable=False)
                self._written[stream].append(piece)
        self._held, self._held_bytes = [[] for _ in self._held], 0


def _after(segment: Segment, cut: int) -> Segment | None:
    """Returns the rows of a segment with hashes at or above the cut."""
    begin = below(segment, cut)[1]
    return Segment(segment.data, begin, segment.end) if begin < segment.end else None
