"""A pool: the segments of one side of a join, looked into and read as one.

A slot has tens of segments for each stream. A kernel that gets the addresses of all of them
(kernels/many.py) finds and gathers rows in one call, for columns that lie in memory as plain values,
bits or 32-bit byte strings. Other columns, such as nested ones, are read one segment at a time.

A row of a pool is a pair: the number of its segment, and its row there (operators/equi/refs.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.equality import equal_pairs, fixed_words, plain_bytes
from spillway.kernels.many import (
    BEGIN,
    END,
    equal_bytes,
    gather_bits,
    gather_bytes,
    gather_words,
    match_many,
)
from spillway.rows.joining import joined_column
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData, as_numpy

Positions = NDArray[Any]
_Addresses = NDArray[np.int64]

#: Ranges that a call makes room for, relative to the probing rows.
_ROOM = 2


@dataclass(frozen=True)
class Refs:
    """Rows of a pool: the segment and the row number of each."""

    segment: Positions
    row: Positions

    def take(self, at: Positions | slice) -> Refs:
        """Selects some of the rows."""
        return Refs(self.segment[at], self.row[at])


class Ranges(NamedTuple):
    """Rows with the hash of a probing row: neighbours in one segment."""

    which: Positions
    segment: Positions
    start: Positions
    rows: Positions


class Pool:
    """The segments of one side."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)
        some = [number for number, segment in enumerate(segments) if segment.rows]
        self._numbers = np.array(some, np.int32)
        ends = [(segments[n].data.h, segments[n].begin, segments[n].end - 1) for n in some]
        self._low = np.array([h[begin] for h, begin, _ in ends], np.uint32)
        self._high = np.array([h[last] for h, _, last in ends], np.uint32)
        self._columns: dict[int, _Column] = {}

    def near(self, probe: NDArray[np.uint32]) -> list[int]:
        """Returns the segments that can hold hashes of probing rows (both ascending).

        A run that groups have left is many segments, and a block of probing rows may have few hashes.
        """
        if not len(probe):
            return []
        near = (self._low <= probe[-1]) & (self._high >= probe[0])
        found: list[int] = self._numbers[near].tolist()
        return found

    def ranges(self, probe: NDArray[np.uint32]) -> Iterator[Ranges]:
        """Yields the rows with probing hashes (ascending), a bounded number of ranges at a time."""
        near = self.near(probe)
        if not near:
            return
        numbers = np.array(near, np.int32)
        table = np.stack([self._place(number) for number in near])
        found = np.empty((4, _ROOM * len(probe)), np.int32)
        at = 0
        while at < len(near):
            count, at = match_many(probe, table, at, found)
            if count:
                which, segment, start, rows = found[:, :count].copy()
                yield Ranges(which, numbers[segment], start, rows)

    def times(self, column: int, refs: Refs) -> NDArray[np.int64]:
        """Returns the values of a column of event times."""
        words: NDArray[np.uint8] = gather_words(self._column(column).values, 8, *_narrow(refs))
        return words.view(np.int64)

    def equal(self, mine: pa.Array, rows: Positions, column: int, refs: Refs) -> NDArray[np.bool_]:
        """For each pair, whether a row of `mine` equals a row of a column; NULL equals nothing."""
        theirs = self._column(column)
        alike = theirs.plain and mine.type == theirs.kind
        if alike and not (mine.null_count or theirs.nulls):
            if theirs.width in (1, 2, 4, 8):
                gathered = gather_words(theirs.values, theirs.width, *_narrow(refs))
                values = as_numpy(mine, f"u{theirs.width}")
                return np.asarray(values[rows] == gathered.view(f"u{theirs.width}"), np.bool_)
            if theirs.strings:
                at, data = plain_bytes(mine)
                same = equal_bytes(
                    (at, data, rows.astype(np.int32)), theirs.values, theirs.data, *_narrow(refs)
                )
                return np.asarray(same, np.bool_)
        same = np.empty(len(rows), np.bool_)
        for number, at in self._by_segment(refs):
            payload = self.segments[number].data.payload
            row = refs.row[at].astype(np.int32)
            same[at] = equal_pairs(mine, rows[at], payload.column(column), row)
        return same

    def gather(self, refs: Refs, wanted: Sequence[int]) -> list[pa.Array]:
        """Gathers columns of rows, in order."""
        return [self._gathered(self._column(column), refs) for column in wanted]

    def _gathered(self, column: _Column, refs: Refs) -> pa.Array:
        if not column.plain:
            return self._taken(column, refs)
        at, count = _narrow(refs), len(refs.row)
        valid = None
        if column.nulls:
            bits = gather_bits(column.validity, column.shifts, *at)
            valid = pa.py_buffer(np.packbits(bits, bitorder="little"))
        if column.strings:
            offsets, data = gather_bytes(column.values, column.data, *at)
            buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
        elif column.width:
            words = gather_words(column.values, column.width, *at)
            buffers = [valid, pa.py_buffer(words)]
        else:
            bits = gather_bits(column.values, column.shifts, *at)
            buffers = [valid, pa.py_buffer(np.packbits(bits, bitorder="little"))]
        return pa.Array.from_buffers(column.kind, count, buffers)

    def _taken(self, column: _Column, refs: Refs) -> pa.Array:
        """Gathers any column, one segment at a time."""
        if not len(refs.row):
            return pa.array([], column.kind)
        found, order = [], []
        for number, at in self._by_segment(refs):
            values = self.segments[number].data.payload.column(column.at)
            found.append(values.take(pa.array(refs.row[at])))
            order.append(at)
        back = np.empty(len(refs.row), np.int64)
        back[np.concatenate(order)] = np.arange(len(back))
        values = joined_column(found)
        return values if len(found) == 1 else values.take(pa.array(back))

    def _by_segment(self, refs: Refs) -> list[tuple[int, Positions]]:
        """Returns the positions of the rows of each referenced segment."""
        if not len(refs.segment):
            return []
        order = np.argsort(refs.segment, kind="stable")
        where = refs.segment[order]
        starts = np.flatnonzero(np.diff(where, prepend=-1)).tolist()
        ends = [*starts[1:], len(where)]
        return [(int(where[a]), order[a:b]) for a, b in zip(starts, ends, strict=True)]

    def _place(self, number: int) -> _Addresses:
        """Returns the row of a segment in the table of `match_many`."""
        segment = self.segments[number]
        place: _Addresses = segment.data.derived("place", lambda: _place_of(segment.data)).copy()
        place[BEGIN], place[END] = segment.begin, segment.end
        return place

    def _column(self, at: int) -> _Column:
        if at not in self._columns:
            self._columns[at] = _Column(at, [one.data for one in self.segments])
        return self._columns[at]


class _Column:
    """One column of all segments: where its values are."""

    def __init__(self, at: int, runs: Sequence[RunData]) -> None:
        self.at = at
        self._arrays = [run.payload.column(at) if run.rows else None for run in runs]
        kinds = {array.type for array in self._arrays if array is not None}
        #: The type of the values. If segments differ in the width of their offsets, any of them.
        self.kind = kinds.pop() if kinds else pa.null()
        alike = not kinds
        words = fixed_words(self.kind)
        #: Bytes of a value; 0 for bits and strings.
        self.width = 0 if words is None else words[0].itemsize * words[1]
        self.strings = self.kind in (pa.string(), pa.binary())
        #: Whether the kernels can read it.
        self.plain = alike and bool(self.width or self.strings or pa.types.is_boolean(self.kind))

    @cached_property
    def nulls(self) -> bool:
        """Whether any segment has a NULL."""
        return any(array is not None and array.null_count for array in self._arrays)

    @cached_property
    def values(self) -> _Addresses:
        """Where the values of each segment are, or their offsets, or their bits."""
        step = 4 if self.strings else self.width
        return self._addresses(1, step)

    @cached_property
    def data(self) -> _Addresses:
        """Where the bytes of the strings of each segment are."""
        return self._addresses(2, 0)

    @cached_property
    def validity(self) -> _Addresses:
        """Where the bits that tell NULLs are; 0: no NULLs."""
        return self._addresses(0, 0)

    @cached_property
    def shifts(self) -> _Addresses:
        """The bits before those of the first row of each segment."""
        return np.array([0 if one is None else one.offset for one in self._arrays], np.int64)

    def _addresses(self, buffer: int, step: int) -> _Addresses:
        found = np.zeros(len(self._arrays), np.int64)
        for number, array in enumerate(self._arrays):
            held = None if array is None else array.buffers()[buffer]
            if array is not None and held is not None:
                found[number] = held.address + array.offset * step
        return found


def _place_of(data: RunData) -> _Addresses:
    """Returns where the hashes and the index of a run are; it has all rows."""
    first, present, base, shift = data.index
    addresses = (data.h.ctypes.data, first.ctypes.data, present.ctypes.data)
    return np.array([*addresses, base, shift, len(present), 0, data.rows, data.rows], np.int64)


def _narrow(refs: Refs) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return refs.segment.astype(np.int32, copy=False), refs.row.astype(np.int32, copy=False)
