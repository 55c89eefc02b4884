"""The time-sliced join (PSP): any number of streams, any predicate, within windows.

Without a key, only time tells where partners are. Slices of time divide the state of every stream,
each in one slot (routing/slices.py), and every new row visits every slot. With S_j the rows of
stream j before the batch and D_j its new rows, a new row of stream i meets

    S_j + D_j for every j < i    and    S_j for every j > i

This is Equation 1 of DCAPE-TR: every combination has exactly one last stream with a new row. The
state stores a row once, with its batch number, which tells D from S even after merges, spills and
moves.

PSP-I marks the start and end of the states for each row on the ring (4.4), because later rows
change them. Here a slot stores a whole batch before its rows look for partners, and expired rows
are outside the windows of all rows that are not late. So any number of rows may visit at once
without marks: `interleave` limits the candidates in memory, not the results.

This `Operator` only stores rows. A visit is a step (operators/theta/visit.py), and the next visit
makes the next step (slot/visits.py). Visitors search everything in a slot, including disk, so no
result is ever missing, and cleanup has nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from spillway.errors import PlanError
from spillway.metrics.counts import Counts
from spillway.operators.input import StreamColumns
from spillway.operators.predicates.predicate import Predicate, due, guarded, with_implied
from spillway.operators.predicates.probing import Measured, in_order
from spillway.operators.stats import OperatorStats
from spillway.operators.theta.combinations import Combinations, complete, travelling
from spillway.operators.theta.search import Search
from spillway.operators.theta.visit import Visit
from spillway.routing.groups import group_bounds
from spillway.routing.routing import HashRange
from spillway.routing.slices import Slicing
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

#: Combinations that visit at a time.
VISITING_ROWS = 65_536


@dataclass(frozen=True)
class Probing:
    """How the new rows of one batch look for partners: the same for all its slots and visits."""

    #: For each starting stream, the order in which it visits the others.
    orders: tuple[tuple[int, ...], ...]
    #: For each starting stream, the groups to search when slices have copies, and the slots that
    #: have them (policies/ring/covering.py); None: all.
    chosen: tuple[tuple[int, ...], ...] | None = None
    visits: tuple[tuple[int, ...], ...] | None = None
    #: Predicate counts of all slots in all visits; a manifest knows only those of the first.
    measured: Counts = field(default_factory=dict)

    @property
    def visit_count(self) -> int:
        """The number of visits to each slot in a batch."""
        return len(self.orders) - 1

    def sources_at(self, slot: int) -> tuple[int, ...]:
        """Returns the streams whose rows look for partners in a slot."""
        if self.visits is None:
            return tuple(range(len(self.orders)))
        return tuple(at for at, slots in enumerate(self.visits) if slot in slots)


class SlicedJoin:
    """Joins any number of streams on any predicates, within windows."""

    def __init__(
        self,
        streams: Sequence[StreamColumns],
        types: Sequence[Sequence[pa.DataType]],
        predicates: Sequence[Predicate],
        slicing: Slicing,
        block_rows: int = 65_536,
        interleave: int = VISITING_ROWS,
    ) -> None:
        """`types` are those of each stream's visible columns; `interleave` rows visit at a time."""
        for stream in streams:
            if stream.window_us is None:
                raise PlanError(
                    f"stream {stream.name} has no window, but a join without equal keys needs one",
                    detail=(
                        "without a window, every row must be compared with all rows that ever came"
                    ),
                    hint='add .within("10 minutes", time="..."), or .on(...) for equal keys',
                )
        self.streams = tuple(streams)
        self.types = tuple(tuple(some) for some in types)
        self.predicates = with_implied(predicates)
        self._guarded = guarded(self.predicates)
        self.slicing = slicing
        self.interleave = interleave
        #: Pairs made at a time: held and added pairs together are at most one block.
        self.pair_rows = max(1, block_rows // 2)

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The layouts: rows as they come, followed by their batch number."""
        return tuple(
            StreamLayout(
                s.name, s.time, s.window_us, over=partial(self.slicing.over, at), visited=True
            )
            for at, s in enumerate(self.streams)
        )

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """Returns the rows with their batch number."""
        return tuple(delta if delta.rows == 0 else _marked(delta, batch) for delta in deltas)

    @property
    def untracked(self) -> str:
        """Why there is no parallel track: rows find a slice even while it moves."""
        return "rows visit all slots, and find a slice wherever it is"

    def step(
        self,
        left: Combinations,
        state: SlotState,
        probing: Probing,
        stats: OperatorStats,
    ) -> Iterator[pa.RecordBatch]:
        """Lets combinations visit the next stream; yields those that found partners."""
        done = len(left.columns)
        target = probing.orders[left.source][done - 1]
        chosen = None if probing.chosen is None else probing.chosen[left.source]
        segments = list(self._looked_into(state.everything(target), chosen))
        there = [self.streams[at].name for at in left.columns]
        measured = Measured({**state.manifest.selectivity, **probing.measured})
        asked = in_order(due(self._guarded, there, self.streams[target].name), measured)
        before = int(state.version) if target > left.source else None
        last = done + 1 == len(self.streams)
        wanted = self._going_on([*there, self.streams[target].name], last)
        step = Search(
            self.streams, self.slicing, asked, target, segments, self.pair_rows, wanted, before
        )
        for begin in range(0, left.count, self.interleave):
            some = left.slice(begin, min(self.interleave, left.count - begin))
            for columns in Visit(step, some, stats).blocks():
                if last:
                    yield complete(columns, self.streams)
                else:
                    yield self._sent(left.source, columns, wanted)

    def _going_on(self, there: Sequence[str], last: bool) -> list[list[int]]:
        """Returns, for each stream, the columns needed after some streams have joined.

        These are the columns in results, times, and columns of predicates that a later stream
        completes.
        """
        if last:
            return [list(stream.shown) for stream in self.streams]
        later = [one for one in self._guarded if not {*there}.issuperset(one.needs)]
        found = []
        for stream in self.streams:
            read = {name for one in later for name in one.reads(stream.name, stream.visible)}
            times = () if stream.time is None else (stream.time,)
            found.append(sorted({*stream.shown, *times, *map(stream.visible.index, read)}))
        return found

    def _sent(
        self,
        source: int,
        columns: Mapping[int, Sequence[pa.Array]],
        wanted: Sequence[Sequence[int]],
    ) -> pa.RecordBatch:
        """Returns combinations that go on, with NULL for columns that nothing reads later."""
        count = len(next(iter(columns.values()))[0])
        whole = {}
        for at, some in columns.items():
            known = dict(zip(wanted[at], some, strict=True))
            whole[at] = [
                known[place] if place in known else pa.nulls(count, kind)
                for place, kind in enumerate(self.types[at])
            ]
        return travelling(source, whole, count, self.streams, self.types)

    def _looked_into(
        self, segments: Sequence[Segment], chosen: tuple[int, ...] | None
    ) -> Iterator[Segment]:
        """Selects the segments to probe: one plane at a time, and only chosen groups.

        Groups that are neighbours in a run, with no row between them, are probed together: each
        part searches the bands of the whole run.
        """
        if chosen is None:
            yield from segments
            return
        bounds = group_bounds(self.slicing.groups).tolist()
        ranges = _runs_of(chosen, self.slicing.slices)
        for segment in segments:
            held: tuple[int, Segment] | None = None
            for first, last in ranges:
                met = segment.range.meet(HashRange(bounds[first], bounds[last + 1]))
                if met is None:
                    continue
                part = Segment(segment.data, *segment.data.rows_in(met), met)
                if not part.rows:
                    continue
                plane = first // self.slicing.slices
                if held is not None and held[0] == plane and held[1].end == part.begin:
                    begin, low = held[1].begin, held[1].range.lo
                    part = Segment(segment.data, begin, part.end, HashRange(low, met.hi))
                elif held is not None:
                    yield held[1]
                held = plane, part
            if held is not None:
                yield held[1]


def _runs_of(chosen: Sequence[int], slices: int) -> list[tuple[int, int]]:
    """Returns neighbouring groups of one plane, as first and last."""
    found: list[tuple[int, int]] = []
    for group in sorted(chosen):
        if found and found[-1][1] == group - 1 and group % slices:
            found[-1] = (found[-1][0], group)
        else:
            found.append((group, group))
    return found


def _marked(delta: RunData, batch: int) -> RunData:
    marks = pa.array(np.full(delta.rows, batch, np.int32))
    rows = delta.batch.append_column(f"c{delta.batch.num_columns - 1}", marks)
    return RunData(rows, delta.time_column)
