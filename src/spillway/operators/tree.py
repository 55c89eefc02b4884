"""The join tree: joins of joins, with stored intermediate states (PLANS section 1).

A shape (plan/shape.py) says what is joined with what. Each of its inner nodes below the root has a
state, which is one more stream of runs after the input streams (operators/intermediate.py). Of every
part of a group (state/generations.py) the state of a node holds

    the combinations of the part's own rows that stand, as long as a row to come can complete them,

as a stream's state holds its rows. So an intermediate state is spilled, moved and restored with its
group like any other, and cleanup, which makes parts one, adds the combinations between them to it.
How combinations are made is in operators/ascent.py.

Where a state is not there (state/gaps.py), because the shape was another before, or was another where
the groups came from, the tree does without it: the node is dissolved, and its children are joined by
the node above it. A batch also fills a bounded part of the gaps, from the lowest hash upwards, as
compaction merges: what PLANS 4.1 recomputes before a plan may go on is made here while it goes on. What
a shape no longer has is dropped when the state is opened (`arranged` in state/manifest.py).

Known limitation: the rows of one hash are made in one step, however many they are. While a gap is filled
its part of the stream may be joined in a way that neither the old plan nor the new one would choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from spillway.errors import QueryError
from spillway.ids import HASH_END
from spillway.operators.ascent import Ascent, Selectivity, name_of
from spillway.operators.base import Keeping, OperatorStats, Results, StreamColumns
from spillway.operators.intake import rows_inside
from spillway.operators.intermediate import combined_stored, stream_stored
from spillway.operators.join import JoinOperator
from spillway.operators.lookup import candidates
from spillway.plan.shape import Shape
from spillway.routing.routing import HashRange
from spillway.state.gaps import Gaps, Ranges, either
from spillway.state.merging import WHOLE, Segment, cut_for, merged
from spillway.state.run import RunData
from spillway.state.shelf import StreamLayout
from spillway.state.slot import SlotState

#: Rows that a batch takes and makes to have intermediate states that it lacks: 30 to 50 ms.
FILL_ROWS = 262_144
#: New rows of a stream whose partners in all other streams are counted, for the choice of a shape.
SAMPLE_ROWS = 256


class TreeOperator:
    """Joins streams on equal keys in a given shape, optionally within windows."""

    cumulative = False

    def __init__(
        self, streams: Sequence[StreamColumns], shape: Shape, block_rows: int = 65_536
    ) -> None:
        self.streams = tuple(streams)
        self.shape = shape
        self.pair_rows = max(1, block_rows // 2)
        #: The same without intermediate states.
        self._flat = JoinOperator(streams, block_rows)
        number = {stream.name: at for at, stream in enumerate(self.streams)}
        if shape.streams != tuple(sorted(number)):
            raise QueryError(
                f"the shape {shape} joins {', '.join(shape.streams)}, "
                f"the streams are {', '.join(sorted(number))}"
            )
        inner = [[number[name] for name in node.streams] for node in shape.inner()]
        self.states = (
            *(stream_stored(at, stream) for at, stream in enumerate(self.streams)),
            *(combined_stored(members, self.streams) for members in inner),
        )
        #: Where the state of each name is among the layouts.
        self.place = {state.name: at for at, state in enumerate(self.states)}
        self._by_name = {state.name: state for state in self.states}

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The streams as they come, then the intermediate states."""
        return tuple(state.layout for state in self.states)

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:  # noqa: ARG002
        """The rows as they are."""
        return tuple(deltas)

    def process(self, state: SlotState, deltas: Sequence[RunData], stats: OperatorStats) -> Results:
        """Yields the results that the deltas complete; new combinations are added to the state."""
        old = {name: state.segments(at) for name, at in self.place.items()}
        self._sample([old[stream.name] for stream in self.streams], deltas, stats)
        learned = state.manifest.selectivity
        for ranges, shape in self._patches(state.gaps):
            new = {
                stream.name: _whole(rows_inside(rows, ranges))
                for stream, rows in zip(self.streams, deltas, strict=True)
            }
            ascent = self._ascent(shape, old, new, stats, learned, state.add_made)
            yield from ascent.results(self.streams)
        return tuple(deltas)

    def missing(
        self,
        base: Sequence[Sequence[Segment]],
        delta: Sequence[Sequence[Segment]],
        stats: OperatorStats,
        selectivity: Selectivity,
        keeping: Keeping,
    ) -> Results:
        """The combinations that have rows of both `base` and `delta`, those that are stored as well."""
        both = {name: [*base[at], *delta[at]] for name, at in self.place.items()}
        older = {name: base[at] for name, at in self.place.items()}
        for ranges, shape in self._patches(keeping.gaps):
            newer = {name: _inside(delta[at], ranges) for name, at in self.place.items()}
            none: dict[str, list[Segment]] = {stream.name: [] for stream in self.streams}
            parts = (older, newer)
            ascent = self._ascent(shape, both, none, stats, selectivity, keeping.keep, parts)
            yield from ascent.results(self.streams)
        return ()

    @property
    def untracked(self) -> str:
        """Rows count for ever in a stream without a window."""
        return self._flat.untracked

    def crossing(
        self,
        old: Sequence[Sequence[Segment]],
        new: Sequence[Sequence[Segment]],
        deltas: Sequence[RunData],
        stats: OperatorStats,
        selectivity: Selectivity,
    ) -> Iterator[pa.RecordBatch]:
        """The new combinations that have a row of `old`.

        Here all are found from the streams: combinations of old rows with new ones are as short-lived as
        the old ones, and none needs to be stored that the receiver will not have.
        """
        return self._flat.crossing(old, new, deltas, stats, selectivity)

    def fill(self, state: SlotState) -> int:
        """Makes intermediate states where they are not there, from the lowest hash upwards.

        The work of a batch ends when it has taken and made about `FILL_ROWS` rows. How many are made
        of those that are taken is known after a first small step.
        """
        taken = done = 0
        while any(state.gaps) and done <= FILL_ROWS - FILL_ROWS // 4:
            fuel = FILL_ROWS // 16 if not taken else (FILL_ROWS - done) * taken // done
            more, made = self._fill_step(state, max(1, fuel))
            taken, done = taken + more, done + more + made
        return done

    def _fill_step(self, state: SlotState, fuel: int) -> tuple[int, int]:
        """Fills the lowest gaps with what about `fuel` rows make; returns the rows taken and made."""
        lo = min(ranges[0].lo for ranges in state.gaps if ranges)
        ranges, missing = next(one for one in _patched(state.gaps) if one[0][0].lo == lo)
        nodes = [n for n in self.shape.inner() if self.place[n.name] - len(self.streams) in missing]
        needed = {name_of(child) for node in nodes for child in node.children}
        needed -= {node.name for node in nodes}
        there = {n: _inside(state.segments(self.place[n]), ranges[:1]) for n in sorted(needed)}
        pieces = [segment for segments in there.values() for segment in segments]
        cut = min(cut_for(pieces, fuel), ranges[0].hi) if pieces else ranges[0].hi
        step = (HashRange(lo, cut),)
        given = {name: self._as_one(name, _inside(found, step)) for name, found in there.items()}
        taken = sum(s.rows for segments in given.values() for s in segments)
        nothing: dict[str, list[Segment]] = {name: [] for name in self.place}
        made = dict(given)
        stats = OperatorStats(state.groups)
        ascent = self._ascent(self.shape, nothing, made, stats, {}, state.keep)
        # The larger first: they make the smaller ones that they need.
        for node in reversed(nodes):
            ascent.make(node)
        state.fill(tuple(step if at in missing else () for at in range(len(state.gaps))))
        return taken, sum(s.rows for name in made if name not in given for s in made[name])

    def _as_one(self, name: str, segments: Sequence[Segment]) -> list[Segment]:
        """Segments as one, so that all rows of a step are looked up at once."""
        if len(segments) < 2:
            return list(segments)
        rows = merged([segment.batch() for segment in segments])
        return _whole(RunData(rows, self._by_name[name].layout.time_column))

    def _ascent(
        self,
        shape: Shape,
        old: Mapping[str, Sequence[Segment]],
        new: dict[str, list[Segment]],
        stats: OperatorStats,
        selectivity: Selectivity,
        keep: Callable[[int, RunData], Segment],
        parts: Sequence[Mapping[str, Sequence[Segment]]] = (),
    ) -> Ascent:
        def kept(name: str, rows: RunData) -> Segment:
            return keep(self.place[name], rows)

        return Ascent(
            self._by_name, shape, old, new, stats, selectivity, kept, self.pair_rows, parts
        )

    def _sample(
        self, old: Sequence[Sequence[Segment]], deltas: Sequence[RunData], stats: OperatorStats
    ) -> None:
        """Counts partners of a few new rows in every other stream, whatever the shape joins.

        Rows that have the hash are counted, so that this costs a lookup and no more.
        """
        for source, delta in enumerate(deltas):
            few = np.ascontiguousarray(delta.h[:: max(1, delta.rows // SAMPLE_ROWS)])
            for target, segments in enumerate(old):
                if target != source and len(few):
                    found = sum(int(candidates(few, segment)[2].sum()) for segment in segments)
                    pairs = len(few) * sum(segment.rows for segment in segments)
                    stats.sampled(str(source), str(target), pairs, found)

    def _patches(self, gaps: Gaps) -> list[tuple[Ranges, Shape]]:
        """In which ranges which shape is followed: without the states that are not there."""
        states = self.states[len(self.streams) :]
        return [
            (ranges, self.shape.dissolved([states[at].name for at in missing]))
            for ranges, missing in _patched(gaps)
        ]


def _patched(gaps: Gaps) -> list[tuple[Ranges, frozenset[int]]]:
    """The hash domain by what is not there: ranges, and the made streams that they are gaps of."""
    edges = sorted({0, HASH_END, *(e for ranges in gaps for r in ranges for e in (r.lo, r.hi))})
    found: dict[frozenset[int], Ranges] = {}
    for lo, hi in pairwise(edges):
        here = frozenset(
            at for at, ranges in enumerate(gaps) if any(r.lo <= lo < r.hi for r in ranges)
        )
        found[here] = either(found.get(here, ()), (HashRange(lo, hi),))
    return [(ranges, here) for here, ranges in found.items()]


def _whole(rows: RunData) -> list[Segment]:
    return [Segment(rows, 0, rows.rows)] if rows.rows else []


def _inside(segments: Sequence[Segment], ranges: Ranges) -> list[Segment]:
    """The rows of segments whose hashes are in the ranges."""
    if ranges == (WHOLE,):
        return list(segments)
    spans = ((s, *s.data.rows_in(one)) for s in segments for one in ranges)
    cut = (Segment(s.data, max(s.begin, begin), min(s.end, end)) for s, begin, end in spans)
    return [segment for segment in cut if segment.begin < segment.end]
