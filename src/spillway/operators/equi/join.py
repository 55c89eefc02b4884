"""The n-way equi-join, without intermediate state.

One batch adds deltas to all streams at once. With S_j the state before the batch and D_j its new
rows, the new results are the disjoint union, over the streams i, of

    D_i  joined with  (S_j + D_j for every j < i)  and  (S_j for every j > i)

This is Equation 1 of DCAPE-TR for n streams. Every new combination has exactly one last stream i
with a new row, and only that term produces it.

operators/equi/term.py explains terms and windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spillway.metrics.counts import Counts
from spillway.operators.equi.cases import crossed, driven, mixed
from spillway.operators.equi.residual import Residual
from spillway.operators.equi.term import Block, Side, Term
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Made, Work
from spillway.operators.predicates.predicate import Predicate
from spillway.operators.stats import OperatorStats
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState


class JoinOperator:
    """Joins any number of streams on equal keys, optionally within windows and on predicates."""

    def __init__(
        self,
        streams: Sequence[StreamColumns],
        block_rows: int = 65_536,
        predicates: Sequence[Predicate] = (),
    ) -> None:
        """`predicates` filter rows with equal keys."""
        self.streams = tuple(streams)
        self.residual = Residual(streams, predicates) if predicates else None
        self.block_rows = block_rows
        #: Pairs made at a time: held and added pairs together are at most one block.
        self.pair_rows = max(1, block_rows // 2)
        self.sides = tuple(stream_side(at, stream) for at, stream in enumerate(self.streams))

    @property
    def untracked(self) -> str:
        """Why there is no parallel track: without a window, rows count forever."""
        return unbounded(self.streams)

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The layouts: rows are stored as they come."""
        return tuple(StreamLayout(s.name, s.time, s.window_us) for s in self.streams)

    def stored(self, deltas: Sequence[RunData], _: int) -> tuple[RunData, ...]:
        """Returns the rows unchanged."""
        return tuple(deltas)

    def process(self, state: SlotState, deltas: Sequence[RunData], work: Work) -> Made:
        """Yields the results that the deltas complete, in blocks of bounded rows and bytes."""
        old = [state.segments(stream) for stream in range(len(self.streams))]
        yield from self.terms(old, deltas, work.stats, work.known)

    def terms(
        self,
        old: Sequence[Sequence[Segment]],
        deltas: Sequence[RunData],
        stats: OperatorStats,
        known: Counts,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the terms of Equation 1, one per stream with new rows."""
        for i, delta in enumerate(deltas):
            if delta.rows == 0:
                continue
            sides = [
                [*segments, Segment(deltas[j], 0, deltas[j].rows)] if j < i else list(segments)
                for j, segments in enumerate(old)
            ]
            yield from self._term(i, delta, sides, stats, known)

    def missing(
        self, base: Sequence[Sequence[Segment]], delta: Sequence[Sequence[Segment]], work: Work
    ) -> Made:
        """Yields the combinations that have rows of both `base` and `delta`."""
        for i, segments in enumerate(delta):
            for sides in mixed(base, delta, i):
                for driving in driven(segments):
                    yield from self._term(i, driving, sides, work.stats, work.known)

    def crossing(self, state: SlotState, deltas: Sequence[RunData], work: Work) -> Made:
        """Yields the combinations that the deltas complete and that have an old row."""
        old = [state.segments(stream) for stream in range(len(self.streams))]
        new = [state.tracker.segments(stream) for stream in range(len(self.streams))]
        for i, delta in enumerate(deltas):
            if delta.rows:
                for sides in crossed(old, new, deltas, i):
                    yield from self._term(i, delta, sides, work.stats, work.known)

    def _term(
        self,
        source: int,
        driving: RunData,
        sides: Sequence[Sequence[Segment]],
        stats: OperatorStats,
        known: Counts,
    ) -> Iterator[pa.RecordBatch]:
        term = Term(self.sides, source, driving, sides, stats, self.pair_rows, self.residual)
        shown = {number: stream.shown for number, stream in enumerate(self.streams)}
        for whole in term.blocks(known):
            for block in term.gatherable(whole, shown):
                stats.count_outputs(driving.h[block.source])
                yield self._gathered(term, block)

    def _gathered(self, term: Term, block: Block) -> pa.RecordBatch:
        """Gathers complete combinations as rows: one struct column per stream."""
        columns = []
        for number, stream in enumerate(self.streams):
            columns.append(stream.struct(term.columns(block, number, stream.shown)))
        return pa.RecordBatch.from_arrays(columns, names=[s.name for s in self.streams])


def unbounded(streams: Sequence[StreamColumns]) -> str:
    """Names the streams whose rows never expire; "" if all expire."""
    names = ", ".join(stream.name for stream in streams if stream.window_us is None)
    return f"rows of {names} never expire: there is no window" if names else ""


def stream_side(number: int, stream: StreamColumns) -> Side:
    """Describes a stream as a side of a term."""
    times = () if stream.time is None else (stream.time,)
    return Side(str(number), stream.keys, times, stream.window_us, stream.time)
