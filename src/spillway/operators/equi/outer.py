"""Outer, semi and anti joins, on the state of the n-way join.

The n-way join gives combinations with a row of every stream, as new rows complete them. The rest is
decided later, by SQL's definition itself. With W_i the windows, and a row of time t in stream i:

    at the watermark t + W_i no partner of the row can come any more. Then the slot joins the row once
    along the chain of outer joins (plan/kind.py), and gives the combinations that lack a stream.

This needs all partners of the row, also those that came and left the window before it. So a stream j
that a decision about stream i reads keeps its rows for W_i + W_j, instead of W_j. In return there are
no marks, no numbers of rows and no counts: the rows themselves are the only witness, so they
spill, move, merge and come back as in any join. A group is decided when its parts have met, up to a
watermark that travels with it (state/slot/decided.py).

    left, n streams   decides about the rows of the first stream, along all others
    right, full       decide about rows of the second stream too
    anti              decides like left, gives only rows without partners, and joins nothing before
    semi              decides nothing. A row comes out with the first partner in its part of the group
                      (state/layout/generations.py): it has come out before exactly if it has an older
                      partner there. So a partner stays while rows that it met may meet another one.

Rows of a source that have a NULL key or time match nothing. If all other streams may be missing, they
come out as they arrive; they are never stored, and have no part in anything else.

Known limitations: the second look at partners costs as much as the first, so rows with very many
partners are expensive twice. A stream that others look at stores about twice as many rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.operators.equi.cases import driven
from spillway.operators.equi.chain import Chain, unmeasured
from spillway.operators.equi.join import JoinOperator
from spillway.operators.equi.residual import Residual
from spillway.operators.equi.term import Block
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Made, Work
from spillway.operators.predicates.predicate import Predicate
from spillway.operators.stats import OperatorStats
from spillway.plan.kind import ANTI, SEMI, Decision, JoinKind
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

#: Steps of the watermark in the least window of a source: how finely rows are decided. Each step reads
#: the times of about a quarter of the window, so a row is read about eight times.
STEPS = 32
#: The types of the visible columns of each stream.
Types = Sequence[Sequence[pa.DataType]]


class OuterJoin:
    """Joins streams on equal keys, and gives rows without partners too."""

    def __init__(
        self,
        streams: Sequence[StreamColumns],
        kind: JoinKind,
        types: Types,
        block_rows: int = 65_536,
        predicates: Sequence[Predicate] = (),
    ) -> None:
        self.streams = tuple(streams)
        self.kind = kind
        self.block_rows = block_rows
        self.decisions = kind.decisions([stream.name for stream in streams])
        self._inner = JoinOperator(streams, block_rows, predicates)
        # Along a chain no condition guards those of another stream, which may be missing.
        self._residual = Residual(streams, predicates, guards=False) if predicates else None
        self._outputs = kind.outputs(len(self.streams))
        self._structs = tuple(
            pa.struct([(stream.visible[at], of[at]) for at in stream.shown])
            for stream, of in zip(streams, types, strict=True)
        )

    @property
    def sources(self) -> tuple[int, ...]:
        """The streams whose rows come out without partners."""
        return tuple(one.source for one in self.decisions)

    @property
    def kept(self) -> tuple[int, ...]:
        """Those of them whose rows all come out: the others must find a partner first."""
        return tuple(one.source for one in self.decisions if one.keeps_all)

    @property
    def untracked(self) -> str:
        """Why there is no parallel track: of two slots, neither has all rows to decide about."""
        return "rows without partners are decided once, by a slot that has all rows of a group"

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The layouts: rows are stored as they come, for as long as a decision needs them."""
        return tuple(map(self._layout, range(len(self.streams))))

    def _layout(self, number: int) -> StreamLayout:
        stream, sources = self.streams[number], set(self.sources)
        # A semi join decides nothing, but looks back as if it decided about the first stream.
        readers = sources or {0}
        longest = max((self.streams[i].window_us or 0 for i in readers - {number}), default=0)
        window = None if stream.window_us is None else stream.window_us + longest
        after = stream.window_us if number in sources else None
        return StreamLayout(stream.name, stream.time, window, decided_after_us=after)

    def stored(self, deltas: Sequence[RunData], _: int) -> tuple[RunData, ...]:
        """Returns the rows unchanged."""
        return tuple(deltas)

    # Combinations

    def process(self, state: SlotState, deltas: Sequence[RunData], work: Work) -> Made:
        """Yields the results that new rows complete at once."""
        if self.kind.how == ANTI:
            return
        old = [self._recent(state.segments(at), at, deltas) for at in range(len(self.streams))]
        if self.kind.how == SEMI:
            yield from self._first_partners(state.segments(1), old, deltas, work.stats)
        else:
            yield from self._inner.terms(old, deltas, work.stats, work.known)

    def missing(
        self, base: Sequence[Sequence[Segment]], delta: Sequence[Sequence[Segment]], work: Work
    ) -> Made:
        """Yields the results at once that need rows of both parts."""
        if self.kind.how == SEMI:
            for rows, among, unless in ((base, delta, base), (delta, base, delta)):
                yield from self._semi(rows[0], work.stats, among[1], unless[1])
        elif self.kind.how != ANTI:
            yield from self._inner.missing(base, delta, work)

    def _recent(
        self, segments: Sequence[Segment], at: int, deltas: Sequence[RunData]
    ) -> list[Segment]:
        """Returns the segments with rows within the window of a new row.

        The others are only here for decisions.
        """
        window = self.streams[at].window_us
        first = min(
            (delta.time_span[0] for delta in deltas if delta.rows and delta.times is not None),
            default=None,
        )
        if window is None or first is None:
            return list(segments)
        return [one for one in segments if one.rows and one.data.time_span[1] + window > first]

    # The semi join

    def _first_partners(
        self,
        known: Sequence[Segment],
        old: Sequence[Sequence[Segment]],
        deltas: Sequence[RunData],
        stats: OperatorStats,
    ) -> Made:
        """Yields the rows that find their first partner with new rows.

        `known` has all partners that came before, `old` those that new rows can still find.
        """
        new, partners = map(_whole, deltas)
        yield from self._semi(new, stats, among=[*old[1], *partners])
        yield from self._semi(self._met(old[0], partners), stats, unless=known)

    def _met(self, segments: Sequence[Segment], partners: Sequence[Segment]) -> Iterator[Segment]:
        """Yields the rows of the first stream that new partners find, each once."""
        for segment in segments:
            at = np.zeros(segment.data.rows, np.bool_)
            for driving in self._pieces(partners):
                chain = self._chain(1, driving, [[segment], []])
                for pairs in chain.blocks_of_pairs(chain.first_block(), 0):
                    at[pairs.refs.row] = True
            if at.any():
                yield _selected(segment.data, at)

    def _semi(
        self,
        rows: Iterable[Segment],
        stats: OperatorStats,
        among: Sequence[Segment] | None = None,
        unless: Sequence[Segment] = (),
    ) -> Made:
        """Yields the rows with a partner `among` some segments, and none in others; None: any."""
        for driving in self._pieces(rows):
            some = driving if among is None else self._matching(driving, among, wanted=True)
            some = self._matching(some, unless, wanted=False) if unless else some
            if some.rows:
                chain = self._chain(0, some, [[], []])
                yield from self._given(chain, chain.first_block(), stats)

    def _matching(self, rows: RunData, among: Sequence[Segment], *, wanted: bool) -> RunData:
        """Returns the rows of the first stream that have a partner, or those that have none."""
        found = self._chain(0, rows, [[], among]).matched(1)
        return _selected(rows, found if wanted else ~found).data

    # Decisions

    @property
    def step_us(self) -> int:
        """How far the watermark must come before rows are decided again."""
        windows = [self.streams[one.source].window_us or 0 for one in self.decisions]
        return max(1, min(windows, default=0) // STEPS)

    def decide(self, state: SlotState, watermark_us: int, stats: OperatorStats) -> Made:
        """Yields what lacks a stream, for all rows that no partner can meet after a watermark."""
        for decision in self.decisions:
            for rows, sides in state.decide(decision.source, watermark_us):
                for driving in self._pieces([rows]):
                    yield from self._decided(decision, driving, sides, stats)

    def _decided(
        self,
        decision: Decision,
        driving: RunData,
        sides: Sequence[Sequence[Segment]],
        stats: OperatorStats,
    ) -> Made:
        chain = self._chain(decision.source, driving, sides, stats)
        for block in chain.unmatched(decision.targets, decision.optional):
            yield from self._given(chain, block, stats)

    def alone(self, number: int, columns: Sequence[pa.Array], count: int) -> pa.RecordBatch:
        """Returns rows of a stream that match nothing as results; `columns` are those shown."""
        structs = [
            self.streams[number].struct(columns) if at == number else pa.nulls(count, kind)
            for at, kind in enumerate(self._structs)
        ]
        return self._batch(structs)

    # Results

    def _given(self, chain: Chain, block: Block, stats: OperatorStats) -> Iterator[pa.RecordBatch]:
        """Yields combinations in bounded blocks, with NULL for what is missing."""
        there = {chain.source, *block.found}
        shown = {at: self.streams[at].shown for at in self._outputs if at in there}
        for some in chain.gatherable(block, shown):
            stats.count_outputs(chain.driving.h[some.source])
            structs = [
                self.streams[at].struct(chain.columns(some, at, shown[at]))
                if at in shown
                else pa.nulls(len(some.source), kind)
                for at, kind in enumerate(self._structs)
            ]
            yield self._batch(structs)

    def _batch(self, structs: Sequence[pa.Array]) -> pa.RecordBatch:
        names = [self.streams[at].name for at in self._outputs]
        return pa.RecordBatch.from_arrays([structs[at] for at in self._outputs], names=names)

    def _chain(
        self,
        source: int,
        driving: RunData,
        sides: Sequence[Sequence[Segment]],
        stats: OperatorStats | None = None,
    ) -> Chain:
        nobody = OperatorStats(1) if stats is None else unmeasured(stats)
        how = (nobody, self._inner.pair_rows, self._residual)
        return Chain(self._inner.sides, source, driving, sides, *how)

    def _pieces(self, rows: Iterable[Segment]) -> Iterator[RunData]:
        """Yields rows, at most as many at a time as a block has pairs."""
        return driven(rows, self._inner.pair_rows)


def _whole(rows: RunData) -> list[Segment]:
    return [Segment(rows, 0, rows.rows)] if rows.rows else []


def _selected(data: RunData, keep: NDArray[np.bool_]) -> Segment:
    """Returns some rows of a run as a run of their own."""
    rows = data.batch.filter(pa.array(keep))
    return Segment(RunData(rows, data.time_column), 0, rows.num_rows)
