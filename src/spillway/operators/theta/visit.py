"""One step of a time-sliced join: combinations look for partners in the slices of one stream.

Partners of a combination have times in a range (PSP section 2). With T the largest time so far and
E the least t_i + W_i, a row at t of a stream with window W fits when T - W < t < E. Runs are sorted
by place in time (routing/slices.py), so candidates are ranges of rows. If the bands of a predicate
(plan/sql/bands.py) hold fewer rows, candidates are ranges in the order of a column, made once per
run. A visit searches a run once, however many pieces it has (operators/theta/pieces.py).

Candidates become pairs, a bounded number at a time. The step drops pairs out of time, then applies
the predicates that the stream completes, cheapest first. It tests a predicate that a band answers
only at the ends of the band. Rows travel as positions; the step gathers columns only of pairs that
pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.probe import expand_within
from spillway.operators.input import StreamColumns
from spillway.operators.predicates.columns import Rows, stream_of
from spillway.operators.predicates.predicate import Predicate, judged
from spillway.operators.stats import OperatorStats
from spillway.operators.theta.banded import InBand, Ordered, in_all, in_band, ordered
from spillway.operators.theta.candidates import (
    NOTHING,
    CandidateLimits,
    Candidates,
    CandidatesByTime,
    Positions,
    candidates_of,
)
from spillway.operators.theta.combinations import Combinations
from spillway.operators.theta.pieces import Pieces, pieces_of, placed
from spillway.operators.theta.search import Found, Search
from spillway.operators.theta.tiling import Tiling, Times, tile_rows
from spillway.plan.sql.bands import Band
from spillway.rows import bounds
from spillway.rows.cutting import TakenRows, cut_taken
from spillway.rows.joining import joined_column
from spillway.state.runs.run import RunData, as_numpy

#: Candidates in a run up to which the step does not try to find fewer.
FEW_PAIRS = 256
_NO_ROWS = np.empty(0, np.int64)


class Visit:
    """Combinations against some segments of one stream."""

    def __init__(self, search: Search, left: Combinations, stats: OperatorStats) -> None:
        self._streams = search.streams
        self._slicing = search.slicing
        self._predicates = search.predicates
        self._left = left
        self._target = search.target
        self._runs = pieces_of(search.segments)
        self._stats = stats
        self._pair_rows = search.pair_rows
        self._wanted = search.wanted
        #: Columns of the combinations that search bands.
        self._sought: dict[tuple[int, int], Ordered | None] = {}
        self._before = search.before
        #: For each stream, the columns that predicates read.
        self._read = {at: self._columns_read(at) for at in range(len(search.streams))}
        self._asked_widths = left.widths(self._read)
        window = search.streams[search.target].window_us
        assert window is not None
        #: The times between which partners are, both inclusive.
        self._first, self._last = left.latest - window + 1, left.deadline - 1

    def blocks(self) -> Iterator[dict[int, list[pa.Array]]]:
        """Yields the columns of combinations that found partners, a bounded number at a time."""
        if not self._left.count or not self._runs:
            return
        matched = 0
        held: list[Found] = []
        rows = size = 0
        for found, found_bytes in self._cut_found():
            if held and size + found_bytes > bounds.BLOCK_BYTES:
                yield self._gathered(held)
                held, rows, size = [], 0, 0
            held.append(found)
            rows, size = rows + len(found.left), size + found_bytes
            matched += len(found.left)
            if rows >= self._pair_rows:
                yield self._gathered(held)
                held, rows, size = [], 0, 0
        if held:
            yield self._gathered(held)
        source, target = str(self._left.source), str(self._target)
        self._stats.count_probed(source, target, self._left.count, matched)

    def _cut_found(self) -> Iterator[tuple[Found, int]]:
        """Yields matches, each few enough for a block, and no fewer bytes than they have."""
        mine = self._left.widths(dict(enumerate(self._wanted)))
        for number, pieces in enumerate(self._runs):
            theirs = pieces.data.widths(self._wanted[self._target])
            for found in self._found(number, pieces):
                taken = [TakenRows(mine, found.left), TakenRows(theirs, found.right)]
                for begin, end in cut_taken(taken, len(found.left)):
                    some = Found(found.left[begin:end], number, found.right[begin:end])
                    size = (end - begin) * (mine.widest + theirs.widest)
                    if size > bounds.BLOCK_BYTES:
                        size = int((mine.at(some.left) + theirs.at(some.right)).sum())
                    yield some, size

    def _found(self, number: int, pieces: Pieces) -> Iterator[Found]:
        data = pieces.data
        unsure = self._unsure(data)
        if unsure is None:
            return
        by_time = self._by_time(pieces)
        banded = self._fewest(data, by_time.pairs)
        # If all rows are in all time ranges, those in a band are, too.
        whole = by_time.pairs == self._left.count * pieces.rows
        timed = by_time.wide or (banded is not None and not whole)
        cut = banded is not None and not pieces.whole
        limits = CandidateLimits(
            pieces.begins if cut else _NO_ROWS,
            pieces.ends if cut else _NO_ROWS,
            data.times if timed and data.times is not None else _NO_ROWS,
            _marks(data, self._streams[self._target]) if unsure else NOTHING,
            1.0 if banded is None else by_time.pairs / max(sum(one.pairs for one in banded), 1),
        )
        for some in by_time.candidates() if banded is None else banded:
            yield from self._among(number, data, some, limits)

    def _among(
        self, number: int, data: RunData, some: Candidates, limits: CandidateLimits
    ) -> Iterator[Found]:
        """Turns candidates of a run into matches."""
        ranges = (some.which, some.start, some.count)
        wanted = (
            some.order, limits.begins, limits.ends, limits.times, self._first, self._last,
            limits.marks, self._before or 0,
        )  # fmt: skip
        at, offset = 0, 0
        asked = [one for one in self._predicates if one is not some.answered]
        if asked and (tiling := self._tiling(asked[0], data, limits)) is not None:
            yield from self._in_tiles(number, data, some, tiling, asked)
            return
        while at < len(some.which):
            since = time.perf_counter()
            found = expand_within(ranges, wanted, at, offset, self._pair_rows)
            left, right, at, offset, seen = found
            took = time.perf_counter() - since
            considered = round(seen * limits.share)
            if some.answered is not None:
                self._stats.count_judged(some.answered.label, considered, len(left), took)
                considered = len(left)
            for mine, theirs in self._passed(data, left, right, considered, asked):
                self._stats.count_outputs_of(data.h, theirs)
                yield Found(mine, number, theirs)

    def _tiling(
        self, predicate: Predicate, data: RunData, limits: CandidateLimits
    ) -> Tiling | None:
        """The tiles of a predicate between the visited stream and another; None: it has none."""
        if predicate.tiles is None:
            return None
        name = self._streams[self._target].name
        mine = [at for at in self._left.columns if self._streams[at].name in predicate.streams]
        if name not in predicate.streams or len(mine) != 1:
            return None
        theirs = data.widths(self._read[self._target])
        return Tiling(
            predicate.tiles,
            predicate.prefilter,
            self._of(mine[0], None, self._left.count),
            self._target_rows(data, None, data.rows),
            predicate.streams[0] == name,
            tile_rows(self._asked_widths.widest, theirs.widest),
            limits,
            Times(self._first, self._last, self._before or 0),
        )

    def _in_tiles(
        self,
        number: int,
        data: RunData,
        some: Candidates,
        tiling: Tiling,
        asked: Sequence[Predicate],
    ) -> Iterator[Found]:
        """Turns candidates into matches, tile by tile for the first predicate."""
        for found in tiling.judged(some):
            considered = round(found.candidates * tiling.limits.share)
            if some.answered is not None:
                self._stats.count_judged(some.answered.label, considered, found.candidates, 0.0)
                considered = found.candidates
            self._stats.count_judged(asked[0].label, considered, len(found.left), found.seconds)
            for begin in range(0, len(found.left), self._pair_rows):
                end = begin + self._pair_rows
                left, right = found.left[begin:end], found.right[begin:end]
                for mine, theirs in self._passed(data, left, right, len(left), asked[1:]):
                    self._stats.count_outputs_of(data.h, theirs)
                    yield Found(mine, number, theirs)

    def _columns_read(self, at: int) -> tuple[int, ...]:
        stream = self._streams[at]
        read = {n for one in self._predicates for n in one.reads(stream.name, stream.visible)}
        return tuple(sorted(map(stream.visible.index, read)))

    def _unsure(self, data: RunData) -> bool | None:
        """Whether some rows must be left out by their batch; None: all of them."""
        if self._before is None:
            return False
        marks = _marks(data, self._streams[self._target])
        least, most = data.derived("marks", lambda: (int(marks.min()), int(marks.max())))
        return None if least >= self._before else most >= self._before

    # Candidates

    def _by_time(self, pieces: Pieces) -> CandidatesByTime:
        """Returns candidates by place."""
        slicing = self._slicing
        # Skip times that no row has.
        least, most = pieces.data.time_span
        first, last = np.maximum(self._first, least), np.minimum(self._last, most)
        parts = [
            placed(some, slicing.ranges(self._target, first, last, plane), first <= last)
            for plane, some in pieces.by_plane(slicing)
        ]
        wide = not slicing.unaliased(self._target, most - least)
        return CandidatesByTime(parts, sum(part.pairs for part in parts), wide)

    def _fewest(self, data: RunData, least: int) -> Sequence[Candidates] | None:
        """Returns the fewest candidates of any band; None unless they are fewer than `least`."""
        best: Sequence[Candidates] | None = None
        if least <= FEW_PAIRS:
            return best
        for predicate in self._predicates:
            for found in self._by_bands(data, predicate):
                if (pairs := sum(one.pairs for one in found)) < least:
                    best, least = found, pairs
        return best

    def _by_bands(self, data: RunData, predicate: Predicate) -> Iterator[tuple[Candidates, ...]]:
        """Yields the candidates in the bands of a predicate, for each column of the target.

        If one column has numbers that are too large, it uses none, so that the predicate fails.
        """
        target = self._streams[self._target].name
        inside: dict[str, list[InBand]] = {}
        for band in predicate.bands:
            for at in self._left.columns:
                if (fitting := band.between(target, self._streams[at].name)) is None:
                    continue
                if (found := self._in_band(data, fitting)) is None:
                    return
                inside.setdefault(fitting.right.name, []).append(found)
        for some in inside.values():
            whole = predicate.answered and len(some) == len(predicate.bands)
            yield self._in_bands(some, predicate if whole else None)

    def _in_bands(
        self, found: Sequence[InBand], answered: Predicate | None
    ) -> tuple[Candidates, ...]:
        """Returns candidates in all bands, separated by whether the bands answer the predicate."""
        shared = in_all(found, self._left.count)
        which, order, (begin, end) = shared.which, shared.order, shared.wide
        # Rows with NaN come last in the order.
        rest = np.full(len(which), shared.unordered, np.int64)
        unordered = candidates_of(which, rest, len(order) - rest, order)
        if answered is None:
            return (candidates_of(which, begin, end - begin, order), unordered)
        inner, outer = shared.sure
        none = inner >= outer
        inner, outer = np.where(none, end, inner), np.where(none, end, outer)
        begins, ends = np.concatenate([begin, outer]), np.concatenate([inner, end])
        return (
            candidates_of(which, inner, outer - inner, order, answered),
            candidates_of(np.concatenate([which, which]), begins, ends - begins, order),
            unordered,
        )

    def _in_band(self, data: RunData, band: Band) -> InBand | None:
        stream = next(at for at, s in enumerate(self._streams) if s.name == band.left.stream)
        place = (stream, self._column(band.left))
        if place not in self._sought:
            self._sought[place] = ordered(self._left.columns[stream][place[1]])
        mine = self._sought[place]
        return None if mine is None else in_band(data, self._column(band.right), mine, band)

    def _column(self, column: Any) -> int:
        stream = next(one for one in self._streams if one.name == column.stream)
        return stream.visible.index(column.name)

    # Matches

    def _passed(
        self,
        data: RunData,
        left: Positions,
        right: Positions,
        considered: int,
        asked: Sequence[Predicate],
    ) -> Iterator[tuple[Positions, Positions]]:
        """Yields the pairs that pass; a predicate gets a bounded number of bytes at a time."""
        taken = [
            TakenRows(self._asked_widths, left),
            TakenRows(data.widths(self._read[self._target]), right),
        ]
        for begin, end in cut_taken(taken, len(left)) if asked else [(0, len(left))]:
            share = considered * end // len(left) - considered * begin // len(left) if end else 0
            some = self._judged(asked, data, left[begin:end], right[begin:end], share)
            if len(some[0]):
                yield some

    def _judged(
        self,
        asked: Sequence[Predicate],
        data: RunData,
        left: Positions,
        right: Positions,
        considered: int,
    ) -> tuple[Positions, Positions]:
        """Applies predicates to pairs that were selected from `considered` ones."""
        for predicate in asked:
            if not len(left):
                break
            keep = judged(
                predicate, self._rows(data, left, right), len(left), considered, self._stats
            )
            if keep is not None:
                left, right = left.take(keep), right.take(keep)
            considered = len(left)
        return left, right

    def _rows(
        self, data: RunData, left: Positions, right: Positions
    ) -> Callable[[Positions | None], tuple[Mapping[str, Rows], int]]:
        def some(keep: Positions | None) -> tuple[Mapping[str, Rows], int]:
            mine = left if keep is None else left.take(keep)
            theirs = right if keep is None else right.take(keep)
            found = [self._of(at, mine, len(mine)) for at in self._left.columns]
            found.append(self._target_rows(data, theirs, len(theirs)))
            return {stream_of(one): one for one in found}, len(mine)

        return some

    def _of(self, at: int, rows: Positions | None, count: int) -> Rows:
        """The rows of a stream in some combinations; None: in all."""
        stream = self._streams[at]
        return Rows(stream.name, stream.visible, self._left.columns[at].__getitem__, rows, count)

    def _target_rows(self, data: RunData, rows: Positions | None, count: int) -> Rows:
        stream = self._streams[self._target]
        return Rows(stream.name, stream.visible, data.payload.column, rows, count)

    def _gathered(self, held: Sequence[Found]) -> dict[int, list[pa.Array]]:
        """Gathers the columns that go on, of combinations and their partners."""
        left = pa.array(_together([one.left for one in held]))
        found = {
            at: [columns[place].take(left) for place in self._wanted[at]]
            for at, columns in self._left.columns.items()
        }
        parts = []
        for number, same in groupby(held, key=lambda one: one.run):
            rows = pa.array(_together([one.right for one in same]))
            payload = self._runs[number].data.payload
            parts.append([payload.column(at).take(rows) for at in self._wanted[self._target]])
        mine = [joined_column(same) for same in zip(*parts, strict=True)]
        return found | {self._target: mine}


def _together(parts: Sequence[Positions]) -> Positions:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _marks(data: RunData, stream: StreamColumns) -> NDArray[np.int32]:
    """Returns the batch of each row, which is stored after its columns."""
    return as_numpy(data.payload.column(len(stream.lanes)), np.int32)
