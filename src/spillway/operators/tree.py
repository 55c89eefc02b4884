"""The join tree: joins of joins, with stored intermediate states (PLANS section 1).

A shape (plan/shape.py) says what is joined with what. Each of its inner nodes below the root has a
state, which is one more stream of runs after the input streams. Of every part of a group (see
state/generations.py) the state of a node holds

    the combinations of the part's own rows that stand, as long as a row to come can complete them,

as a stream's state holds its rows. So an intermediate state is spilled, moved and restored with its
group like any other. All nodes are joined by one formula. With S_j what there is of child j, and D_j
what is new of it, a node's new combinations are

    D_i  joined with  (S_j + D_j for every j < i)  and  (S_j for every j > i),   over its children i,

Equation 1 of DCAPE-TR. At run time D of a stream is its new rows. In cleanup, which adds one part of a
group to others, S is both, no row is new, and every node adds the combinations that have children of
both sides (`mixed` in operators/term.py); what it finds is new to its parent.

Combinations are made in pieces of bounded size. A piece is sorted, kept, and at once joined upwards, so
a batch holds one piece per level, however many combinations a hot key has.

A combination expires with the first of its rows that does: at min(t_i + W_i). It is stored with that
time less the least window of its streams, and has that window, so that it expires like a row of them.
The largest time of its rows is not stored, but found in them when it is probed.

Known limitation: of each stream of a combination all visible columns are stored, also where an output
needs few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from spillway.ids import HASH_END
from spillway.operators.base import Keeping, OperatorStats, Results, StreamColumns
from spillway.operators.intake import rows_inside
from spillway.operators.join import stream_side
from spillway.operators.lookup import candidates
from spillway.operators.term import Block, Side, Term, driven, mixed
from spillway.plan.shape import Shape, state_name
from spillway.routing.routing import HashRange
from spillway.state.gaps import Gaps, Ranges, either
from spillway.state.merging import WHOLE, Segment, cut_for, merged
from spillway.state.run import HASH_COLUMN, RunData
from spillway.state.shelf import StreamLayout
from spillway.state.slot import SlotState

#: Bytes of combinations that are kept as one run.
PIECE_BYTES = 32 << 20
#: Rows that a batch takes or makes to have an intermediate state that it lacks.
FILL_ROWS = 262_144
#: New rows of a stream whose partners in all other streams are counted, for the choice of a shape.
SAMPLE_ROWS = 256

Selectivity = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Stored:
    """A stored state: the rows of a stream, or combinations of several."""

    name: str
    #: The streams that it has rows of, ascending.
    members: tuple[int, ...]
    #: For each of them, where its stored columns are here.
    at: Mapping[int, Mapping[int, int]]
    side: Side
    layout: StreamLayout


def stream_stored(number: int, stream: StreamColumns) -> Stored:
    """A stream, stored as it comes."""
    at = {number: {column: column for column in range(len(stream.lanes))}}
    layout = StreamLayout(stream.name, stream.time, stream.window_us)
    return Stored(stream.name, (number,), at, stream_side(number, stream), layout)


def combined_stored(members: Sequence[int], streams: Sequence[StreamColumns]) -> Stored:
    """The combinations of some streams: the columns of each, and the time by which they expire.

    The keys are those of the first stream; of the others only what is visible is kept, and the time.
    """
    at: dict[int, dict[int, int]] = {}
    width = 0
    for member in sorted(members):
        stream = streams[member]
        kept = set(range(len(stream.visible) if at else len(stream.lanes)))
        kept |= set() if stream.time is None else {stream.time}
        at[member] = {column: width + place for place, column in enumerate(sorted(kept))}
        width += len(kept)
    first = streams[min(members)]
    times = tuple(at[m][t] for m in at if (t := streams[m].time) is not None)
    windows = [w for m in at if (w := streams[m].window_us) is not None]
    window = min(windows) if len(windows) == len(at) else None
    keys = tuple(at[min(members)][key] for key in first.keys)
    name = state_name(streams[member].name for member in at)
    side = Side("+".join(str(member) for member in at), keys, times, window)
    layout = StreamLayout(name, width if window is not None else None, window, made=True)
    return Stored(name, tuple(at), at, side, layout)


class TreeOperator:
    """Joins streams on equal keys in a given shape, optionally within windows."""

    cumulative = False

    def __init__(
        self, streams: Sequence[StreamColumns], shape: Shape, block_rows: int = 65_536
    ) -> None:
        self.streams = tuple(streams)
        self.shape = shape
        self.pair_rows = max(1, block_rows // 2)
        number = {stream.name: at for at, stream in enumerate(self.streams)}
        inner = [[number[name] for name in node.streams] for node in shape.inner()]
        self.states = (
            *(stream_stored(at, stream) for at, stream in enumerate(self.streams)),
            *(combined_stored(members, self.streams) for members in inner),
        )
        #: Where the state of each name is among the layouts.
        self.place = {state.name: at for at, state in enumerate(self.states)}

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
        for ranges, shape in self._patches(state.gaps):
            new = {
                stream.name: _whole(rows_inside(rows, ranges))
                for stream, rows in zip(self.streams, deltas, strict=True)
            }
            work = _Work(self, shape, old, new, stats, state.manifest.selectivity, state.add_made)
            yield from work.results()
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
            work = _Work(self, shape, both, none, stats, selectivity, keeping.keep, parts)
            yield from work.results()
        return ()

    def fill(self, state: SlotState) -> int:
        """Makes intermediate states where they are not there, from the lowest hash upwards.

        A step takes a range with few rows of what they are made of. The work of a batch ends when it
        has taken or made `FILL_ROWS` rows.
        """
        done = 0
        while done < FILL_ROWS and any(state.gaps):
            lo = min(ranges[0].lo for ranges in state.gaps if ranges)
            ranges, names = next(one for one in _patched(state.gaps) if one[0][0].lo == lo)
            there = {
                state_.name: _inside(state.segments(at), ranges[:1])
                for at, state_ in enumerate(self.states)
                if at - len(self.streams) not in names
            }
            pieces = [segment for segments in there.values() for segment in segments]
            cut = min(cut_for(pieces, FILL_ROWS // 8), ranges[0].hi) if pieces else ranges[0].hi
            step = (HashRange(lo, cut),)
            there = {name: _inside(segments, step) for name, segments in there.items()}
            done += sum(s.rows for segments in there.values() for s in segments)
            done += self._filled(state, there)
            made = range(len(state.gaps))
            state.fill(tuple(step if at in names else () for at in made))
        return done

    def _sample(
        self, old: Sequence[Sequence[Segment]], deltas: Sequence[RunData], stats: OperatorStats
    ) -> None:
        """Counts partners of a few new rows in every other stream, whatever the shape joins.

        Rows that have the hash are counted, so that this costs a lookup and no more.
        """
        for source, delta in enumerate(deltas):
            few = delta.h[:: max(1, delta.rows // SAMPLE_ROWS)]
            for target, segments in enumerate(old):
                if target != source and len(few):
                    found = sum(int(candidates(few, segment)[2].sum()) for segment in segments)
                    stats.sampled(str(source), str(target), len(few), found)

    def _filled(self, state: SlotState, there: dict[str, list[Segment]]) -> int:
        """Makes the intermediate states that are not among those that are there; returns the rows."""
        nothing: dict[str, list[Segment]] = {state_.name: [] for state_ in self.states}
        given = dict(there)
        stats = OperatorStats(state.groups)
        selectivity = state.manifest.selectivity
        work = _Work(self, self.shape, nothing, given, stats, selectivity, state.keep)
        # The larger first: they make the smaller ones that they need.
        for node in reversed(list(self.shape.inner())):
            work.make(node)
        return sum(s.rows for name in given if name not in there for s in given[name])

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


class _Work:
    """One pass over a tree, from what is new of the streams up to the results."""

    def __init__(
        self,
        tree: TreeOperator,
        shape: Shape,
        old: Mapping[str, Sequence[Segment]],
        new: dict[str, list[Segment]],
        stats: OperatorStats,
        selectivity: Selectivity,
        keep: Callable[[int, RunData], Segment],
        parts: Sequence[Mapping[str, Sequence[Segment]]] = (),
    ) -> None:
        self._tree = tree
        self._shape = shape
        self._old = old
        #: What is new of each state: given, or found and kept.
        self._new = new
        self._given = frozenset(new)
        self._stats = stats
        self._selectivity = selectivity
        self._keep = keep
        #: Two parts whose children are to be combined with each other.
        self._parts = parts

    def results(self) -> Iterator[pa.RecordBatch]:
        """The new combinations of the root, as rows: one struct column per stream."""
        shape, streams = self._shape, self._tree.streams
        for term, block in self._blocks(shape):
            self._stats.produced(term.driving.h[block.source])
            wanted = {at: range(len(stream.visible)) for at, stream in enumerate(streams)}
            found = self._gathered(shape, term, block, wanted)
            columns = [
                pa.StructArray.from_arrays(found[at], names=list(stream.visible))
                for at, stream in enumerate(streams)
            ]
            yield pa.RecordBatch.from_arrays(columns, names=[stream.name for stream in streams])

    def make(self, node: Shape) -> None:
        """Keeps the new combinations of a node and of those below it, unless that was done."""
        if node.name not in self._new:
            for _ in self._pieces(node):
                pass

    def _blocks(self, node: Shape) -> Iterator[tuple[Term, Block]]:
        """The new combinations of a node, in blocks of positions."""
        names = [_name(child) for child in node.children]
        sides = [self._state(name).side for name in names]
        for i, child in enumerate(node.children):
            for driving in self._pieces(child):
                rows = [
                    [*self._old[name], *self._new[name]] if j < i else list(self._old[name])
                    for j, name in enumerate(names)
                ]
                yield from self._term(sides, i, driving, rows)
        if self._parts:
            base, delta = ([part[name] for name in names] for part in self._parts)
            for i in range(len(names)):
                for rows in mixed(base, delta, i):
                    for driving in driven(delta[i]):
                        yield from self._term(sides, i, driving, rows)

    def _term(
        self,
        sides: Sequence[Side],
        source: int,
        driving: RunData,
        rows: Sequence[Sequence[Segment]],
    ) -> Iterator[tuple[Term, Block]]:
        term = Term(sides, source, driving, rows, self._stats, self._tree.pair_rows)
        for block in term.blocks(self._selectivity):
            yield term, block

    def _pieces(self, child: Shape | str) -> Iterator[RunData]:
        """What is new of a child, sorted; that of an inner node is made and kept piece by piece."""
        if isinstance(child, str) or child.name in self._given:
            yield from driven(self._new[_name(child)])
            return
        new = self._new.setdefault(child.name, [])
        held: list[pa.RecordBatch] = []
        size = 0
        for term, block in self._blocks(child):
            held.append(self._combined(child, term, block))
            size += held[-1].nbytes
            if size >= PIECE_BYTES:
                new.append(self._kept(child, held))
                yield from driven(new[-1:])
                held, size = [], 0
        if held:
            new.append(self._kept(child, held))
            yield from driven(new[-1:])

    def _kept(self, node: Shape, held: Sequence[pa.RecordBatch]) -> Segment:
        rows = RunData(merged(held), self._state(node.name).layout.time_column)
        return self._keep(self._tree.place[node.name], rows)

    def _combined(self, node: Shape, term: Term, block: Block) -> pa.RecordBatch:
        """Combinations of a node as they are stored."""
        state = self._state(node.name)
        wanted = {member: list(columns) for member, columns in state.at.items()}
        found = self._gathered(node, term, block, wanted)
        columns = [column for member in state.members for column in found[member]]
        if block.deadline is not None and state.side.window_us is not None:
            columns.append(pa.array(block.deadline - state.side.window_us))
        names = [HASH_COLUMN, *(f"c{at}" for at in range(len(columns)))]
        h = term.driving.h[block.source].astype(np.uint32)
        return pa.RecordBatch.from_arrays([pa.array(h), *columns], names=names)

    def _gathered(
        self, node: Shape, term: Term, block: Block, wanted: Mapping[int, Sequence[int]]
    ) -> dict[int, list[pa.Array]]:
        """For each stream of a node, some of its columns, in the combinations of a block."""
        found: dict[int, list[pa.Array]] = {}
        for side, child in enumerate(node.children):
            state = self._state(_name(child))
            places = [state.at[m][column] for m in state.members for column in wanted[m]]
            arrays = iter(term.columns(block, side, places))
            found |= {m: [next(arrays) for _ in wanted[m]] for m in state.members}
        return found

    def _state(self, name: str) -> Stored:
        return self._tree.states[self._tree.place[name]]


def _name(child: Shape | str) -> str:
    return child.name if isinstance(child, Shape) else child
