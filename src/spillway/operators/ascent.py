"""One pass up a join tree: from what is new of its streams to its results.

With S_j what there is of child j of a node, and D_j what is new of it, the node's new combinations are

    D_i  joined with  (S_j + D_j for every j < i)  and  (S_j for every j > i),   over its children i,

Equation 1 of DCAPE-TR; what is new of a node is new to the node above it. So one pass serves three ends:

    a batch        S is the state, and the new rows of the streams are given
    cleanup        S is two parts of the state, no row is new, and every node has beside what is new
                   below it the combinations of children of one part with children of the other
    a missing      S is nothing, and all there is of the states that it is made of is given
    state

Combinations are made in pieces of bounded size. A piece is sorted, kept, and at once joined upwards, so
a pass holds one piece per level, however many combinations a hot key has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spillway.operators.base import OperatorStats, StreamColumns
from spillway.operators.intermediate import Stored
from spillway.operators.term import Block, Side, Term, driven, mixed
from spillway.plan.shape import Shape
from spillway.state.merging import Segment, merged
from spillway.state.run import HASH_COLUMN, RunData

#: Bytes of combinations that are kept as one run, where memory is not short.
PIECE_BYTES = 32 << 20

Selectivity = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Keeps:
    """What becomes of combinations that are stored."""

    #: Takes sorted rows of a state; returns them as they are kept.
    keep: Callable[[str, RunData], Segment]
    #: Bytes that may be kept at a time.
    piece_bytes: int


class Ascent:
    """One pass up a tree, from what is new of the streams to the results."""

    def __init__(
        self,
        states: Mapping[str, Stored],
        shape: Shape,
        old: Mapping[str, Sequence[Segment]],
        new: dict[str, list[Segment]],
        stats: OperatorStats,
        selectivity: Selectivity,
        keeps: Keeps,
        pair_rows: int,
        parts: Sequence[Mapping[str, Sequence[Segment]]] = (),
    ) -> None:
        self._states = states
        self._shape = shape
        self._old = old
        #: What is new of each state: given, or found and kept.
        self._new = new
        self._given = frozenset(new)
        self._stats = stats
        self._selectivity = selectivity
        self._keep = keeps.keep
        self._piece_bytes = min(PIECE_BYTES, keeps.piece_bytes)
        self._pair_rows = pair_rows
        #: Two parts whose children are to be combined with each other.
        self._parts = parts

    def results(self, streams: Sequence[StreamColumns]) -> Iterator[pa.RecordBatch]:
        """The new combinations of the root, as rows: one struct column per stream."""
        shape = self._shape
        for term, block in self._blocks(shape):
            self._stats.produced(term.driving.h[block.source])
            wanted = {at: stream.shown for at, stream in enumerate(streams)}
            found = self._gathered(shape, term, block, wanted)
            columns = [stream.struct(found[at]) for at, stream in enumerate(streams)]
            yield pa.RecordBatch.from_arrays(columns, names=[stream.name for stream in streams])

    def make(self, node: Shape) -> None:
        """Keeps the new combinations of a node and of those below it, unless that was done."""
        if node.name not in self._new:
            for _ in self._pieces(node):
                pass

    def _blocks(self, node: Shape) -> Iterator[tuple[Term, Block]]:
        """The new combinations of a node, in blocks of positions."""
        names = [name_of(child) for child in node.children]
        sides = [self._states[name].side for name in names]
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
        term = Term(sides, source, driving, rows, self._stats, self._pair_rows)
        for block in term.blocks(self._selectivity):
            yield term, block

    def _pieces(self, child: Shape | str) -> Iterator[RunData]:
        """What is new of a child, sorted; that of an inner node is made and kept piece by piece."""
        if isinstance(child, str) or child.name in self._given:
            yield from driven(self._new[name_of(child)])
            return
        new = self._new.setdefault(child.name, [])
        held: list[pa.RecordBatch] = []
        size = 0
        for term, block in self._blocks(child):
            held.append(self._combined(child, term, block))
            size += held[-1].nbytes
            if size >= self._piece_bytes:
                for segment in self._kept(child, held):
                    new.append(segment)
                    yield from driven([segment])
                held, size = [], 0
        for segment in self._kept(child, held):
            new.append(segment)
            yield from driven([segment])

    def _kept(self, node: Shape, held: Sequence[pa.RecordBatch]) -> Iterator[Segment]:
        """Keeps combinations, sorted, a piece at a time: a block of them may be more than one."""
        if not held:
            return
        rows, time_column = merged(held), self._states[node.name].layout.time_column
        step = max(1, self._piece_bytes * rows.num_rows // max(rows.nbytes, 1))
        for at in range(0, rows.num_rows, step):
            piece = RunData(rows.slice(at, step), time_column)
            yield self._keep(node.name, piece)

    def _combined(self, node: Shape, term: Term, block: Block) -> pa.RecordBatch:
        """Combinations of a node as they are stored."""
        state = self._states[node.name]
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
            state = self._states[name_of(child)]
            places = [state.at[m][column] for m in state.members for column in wanted[m]]
            arrays = iter(term.columns(block, side, places))
            found |= {m: [next(arrays) for _ in wanted[m]] for m in state.members}
        return found


def name_of(child: Shape | str) -> str:
    """What the state of a child of a shape is called."""
    return child.name if isinstance(child, Shape) else child
