"""The join tree: joins of joins, with stored intermediate states (PLANS section 1).

Each inner node of a shape (plan/shape.py), below the root, has a state: one more stream of runs
after the input streams (operators/equi/intermediate.py). For every part of a group
(state/layout/generations.py), it holds

    the valid combinations of the part's own rows, as long as a future row can complete them.

So it spills, moves and recovers with its group, and cleanup adds the combinations between parts.
operators/equi/ascent.py makes the combinations.

A state is missing (state/layout/gaps.py) after a change of shape, or when groups came from a slot
with another shape. Then the tree dissolves the node: the parent joins its children. A batch also
fills a bounded part of the gaps, from the lowest hash upwards. PLANS 4.1 recomputes states before a
plan may continue; here the plan continues meanwhile. A slot drops states that its shape no longer
has (`arranged` in state/manifest/matching.py).

On a parallel track (state/slot/tracks.py) all rows, old and new, go up as usual; only the root
omits combinations of only new rows (PLANS 3.1).

Known limitation: while a gap fills, its hash range may use a join order that neither plan would
choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from spillway.errors import QueryError
from spillway.operators.equi.ascent import Ascent, RowKind, Segments
from spillway.operators.equi.filling import Effort, Filling
from spillway.operators.equi.intermediate import combined_stored, stream_stored
from spillway.operators.equi.join import unbounded
from spillway.operators.input import StreamColumns, rows_inside
from spillway.operators.lookup import candidates
from spillway.operators.operator import Keep, Keeping, Made, Work
from spillway.operators.stats import OperatorStats
from spillway.plan.shape import Shape
from spillway.state.layout.gaps import Gaps, Ranges, patched
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment, inside
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

#: Rows that a batch reads, plus combinations that it examines, to fill missing intermediate states
#: (operators/equi/filling.py): 30 to 50 ms.
FILL_ROWS = 262_144
#: New rows per stream whose partners in all other streams are counted, to choose a shape.
SAMPLE_ROWS = 256


class TreeOperator:
    """Joins streams on equal keys in a given shape, optionally within windows."""

    def __init__(
        self, streams: Sequence[StreamColumns], shape: Shape, block_rows: int = 65_536
    ) -> None:
        self.streams = tuple(streams)
        self.shape = shape
        self.pair_rows = max(1, block_rows // 2)
        number = {stream.name: at for at, stream in enumerate(self.streams)}
        if shape.streams != tuple(sorted(number)):
            raise QueryError(
                f"the shape {shape} joins {', '.join(shape.streams)}, but the streams are "
                f"{', '.join(sorted(number))}",
                hint="use each stream once in the shape",
            )
        inner = [[number[name] for name in node.streams] for node in shape.inner()]
        self.states = (
            *(stream_stored(at, stream) for at, stream in enumerate(self.streams)),
            *(combined_stored(members, self.streams) for members in inner),
        )
        #: The position of each named state among the layouts.
        self.place = {state.name: at for at, state in enumerate(self.states)}
        self._by_name = {state.name: state for state in self.states}
        #: The gaps last seen, and how they divide the hash domain.
        self._known: tuple[Gaps, list[tuple[Ranges, frozenset[int]]]] | None = None

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The layouts: the streams as they come, then the intermediate states."""
        return tuple(state.layout for state in self.states)

    def stored(self, deltas: Sequence[RunData], _: int) -> tuple[RunData, ...]:
        """Returns the rows unchanged."""
        return tuple(deltas)

    def process(self, state: SlotState, deltas: Sequence[RunData], work: Work) -> Made:
        """Yields the results that the deltas complete; keeps new combinations."""
        there = [self._segments(state.segments)]
        yield from self._results(there, deltas, work)

    def missing(
        self, base: Sequence[Sequence[Segment]], delta: Sequence[Sequence[Segment]], work: Work
    ) -> Made:
        """Yields the combinations with rows of both `base` and `delta`; keeps intermediate ones."""
        both = {name: [*base[at], *delta[at]] for name, at in self.place.items()}
        older = {name: base[at] for name, at in self.place.items()}
        for ranges, shape in self._patches(work.keeping.gaps):
            newer = {name: _inside(delta[at], ranges) for name, at in self.place.items()}
            kinds = [RowKind(both, {}, self._keeper_of(work.keeping.keep))]
            ascent = self._ascent(shape, kinds, work, (older, newer))
            yield from ascent.results(self.streams)

    @property
    def untracked(self) -> str:
        """Why there is no parallel track: without a window, rows count forever."""
        return unbounded(self.streams)

    def crossing(self, state: SlotState, deltas: Sequence[RunData], work: Work) -> Made:
        """Yields the results that the deltas complete with an old row; keeps made rows."""
        there = [self._segments(state.segments), self._segments(state.tracker.segments)]
        yield from self._results(there, deltas, work)

    def fill(self, state: SlotState, most_bytes: int) -> None:
        """Makes missing intermediate states, from the lowest hash upwards.

        One batch does `FILL_ROWS` rows and `most_bytes`, or one hash.
        """
        effort, left = Effort(FILL_ROWS, most_bytes), 1.0
        while any(state.gaps) and left > 0.0:
            share = self._fill_step(state, effort, left)
            left = left - share if share is not None else 0.0

    def _fill_step(self, state: SlotState, effort: Effort, left: float) -> float | None:
        """Fills gaps of the same states; returns the share of the effort it used, or None: no room."""
        lacking = [(ranges, missing) for ranges, missing in self._patched(state.gaps) if missing]
        ranges, missing = min(lacking, key=lambda one: one[0][0].lo)
        nodes = [n for n in self.shape.inner() if self.place[n.name] - len(self.streams) in missing]
        filling = Filling(tuple(nodes), ranges)
        # Rows of a track are new; all others count as old.
        sources = (state.segments, state.tracker.segments)
        there = [{n: opened(self.place[n]) for n in filling.needed} for opened in sources]
        portion = filling.portion(there, effort, left)
        if not portion.ranges:
            return None
        kinds = [
            RowKind({}, {n: _whole(rows.get(n)) for n in filling.needed}, self._keeper_of(keep))
            for rows, keep in zip(portion.given, (state.keep, state.tracker.add), strict=True)
        ]
        keeping = Keeping(state.keep, state.gaps, effort.bytes)
        work = Work(OperatorStats(state.groups), {}, keeping)
        ascent = self._ascent(self.shape, kinds, work)
        # Larger nodes first: they make the smaller ones that they need.
        for node in reversed(nodes):
            ascent.make(node)
        state.parts.fill(
            tuple(portion.ranges if at in missing else () for at in range(len(state.gaps)))
        )
        return portion.share

    def _results(
        self,
        there: Sequence[Segments],
        deltas: Sequence[RunData],
        work: Work,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the results of deltas with the existing rows of each kind."""
        self._sample(there, deltas, work.stats)
        keeps = (work.keeping.keep, work.keeping.keep_new)[: len(there)]
        for ranges, shape in self._patches(work.keeping.gaps):
            kinds = [
                RowKind(one, {}, self._keeper_of(keep))
                for one, keep in zip(there, keeps, strict=True)
            ]
            for stream, rows in zip(self.streams, deltas, strict=True):
                kinds[-1].found[stream.name] = _whole(rows_inside(rows, ranges))
            ascent = self._ascent(shape, kinds, work)
            yield from ascent.results(self.streams)

    def _ascent(
        self, shape: Shape, kinds: Sequence[RowKind], work: Work, parts: Sequence[Segments] = ()
    ) -> Ascent:
        return Ascent(self._by_name, shape, kinds, work, self.pair_rows, parts)

    def _segments(self, opened: Callable[[int], list[Segment]]) -> Segments:
        """Returns the existing segments of each state, by name."""
        return {name: opened(at) for name, at in self.place.items()}

    def _keeper_of(self, keep: Keep) -> Callable[[str, RunData], Sequence[Segment]]:
        """Returns a function that takes rows of a state by name."""
        return lambda name, rows: keep(self.place[name], rows)

    def _sample(
        self, there: Sequence[Segments], deltas: Sequence[RunData], stats: OperatorStats
    ) -> None:
        """Counts partners of a few new rows in every other stream, whatever the shape joins.

        It counts rows of equal hash, so it costs only a lookup.
        """
        for source, delta in enumerate(deltas):
            few = np.ascontiguousarray(delta.h[:: max(1, delta.rows // SAMPLE_ROWS)])
            for target, stream in enumerate(self.streams):
                if target != source and len(few):
                    segments = [segment for kind in there for segment in kind[stream.name]]
                    found = sum(int(candidates(few, segment)[2].sum()) for segment in segments)
                    pairs = len(few) * sum(segment.rows for segment in segments)
                    stats.count_sampled(str(source), str(target), pairs, found)

    def _patches(self, gaps: Gaps) -> list[tuple[Ranges, Shape]]:
        """Returns which shape applies in which ranges: without the missing states."""
        states = self.states[len(self.streams) :]
        return [
            (ranges, self.shape.dissolved([states[at].name for at in missing]))
            for ranges, missing in self._patched(gaps)
        ]

    def _patched(self, gaps: Gaps) -> list[tuple[Ranges, frozenset[int]]]:
        """Splits the hash domain by missing states; recomputes only after a change."""
        if self._known is None or self._known[0] != gaps:
            self._known = (gaps, patched(gaps))
        return self._known[1]


def _whole(rows: RunData | None) -> list[Segment]:
    return [Segment(rows, 0, rows.rows)] if rows is not None and rows.rows else []


def _inside(segments: Sequence[Segment], ranges: Ranges) -> list[Segment]:
    """Returns the rows of segments with hashes in the ranges."""
    found = (inside(one, ranges) for one in segments)
    return [segment for segment in found if segment.rows]
