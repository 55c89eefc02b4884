"""One pass up a join tree: from the new rows of its streams to its results.

Let S_j be the existing rows of child j of a node, and D_j its new rows. The node's new combinations
are

    D_i  joined with  (S_j + D_j for every j < i)  and  (S_j for every j > i),   over its children i,

Equation 1 of DCAPE-TR. The new combinations of a node are new rows to its parent. So one pass has
three uses:

    a batch          S is the state, and the input is the new rows of the streams
    cleanup          S is two parts of the state, and no row is new; every node adds the combinations
                     of children of one part with children of the other
    a missing state  S is empty, and the input is all rows of the states that it is made from

A pass makes combinations in pieces of bounded size, and joins each piece upwards at once. So it
holds one piece of each kind per level, however many combinations a hot key has.

On a parallel track (state/slot/tracks.py) rows are old or new. A combination is old if one of its
children is. Each kind is kept apart, and the root omits combinations of only new rows (PLANS 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spillway.operators.equi.cases import driven, mixed
from spillway.operators.equi.intermediate import StoredState
from spillway.operators.equi.term import Block, Side, Term
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Work
from spillway.plan.shape import Shape
from spillway.rows import bounds
from spillway.rows.cutting import cut_rows
from spillway.state.runs.merging import Segment, merged
from spillway.state.runs.run import HASH_COLUMN, RunData

#: Bytes of combinations kept as one run, if memory is not short.
PIECE_BYTES = 32 << 20

#: The kinds of rows of a parallel track. Without a track, all rows are of the first kind.
OLD, NEW = 0, 1

#: Segments by state.
Segments = Mapping[str, Sequence[Segment]]


@dataclass(frozen=True)
class RowKind:
    """The rows of one kind in a pass."""

    #: The existing rows.
    there: Segments
    #: The new rows of the states: given, or found and kept.
    found: dict[str, list[Segment]]
    #: Takes sorted rows of a state; returns them as they are kept.
    keep: Callable[[str, RunData], Sequence[Segment]]

    def rows(self, name: str, *, found: bool) -> list[Segment]:
        """Returns the existing rows of a state, and with `found` the new ones too."""
        return [*self.there.get(name, ()), *(self.found.get(name, ()) if found else ())]


class Ascent:
    """One pass up a tree, from the new rows of the streams to the results."""

    def __init__(
        self,
        states: Mapping[str, StoredState],
        shape: Shape,
        kinds: Sequence[RowKind],
        work: Work,
        pair_rows: int,
        parts: Sequence[Segments] = (),
    ) -> None:
        self._states = states
        self._shape = shape
        self._kinds = kinds
        #: The states whose new rows are complete: they were given or have been made.
        self._known = {name for kind in kinds for name in kind.found}
        self._work = work
        #: Bytes of combinations that may be kept at a time.
        self._piece_bytes = min(PIECE_BYTES, bounds.JOINED_BYTES, work.keeping.piece_bytes)
        self._pair_rows = pair_rows
        #: Two parts whose children are combined with each other.
        self._parts = parts

    def results(self, streams: Sequence[StreamColumns]) -> Iterator[pa.RecordBatch]:
        """Yields the new combinations of the root as rows: one struct column per stream."""
        shape, wanted = self._shape, {at: stream.shown for at, stream in enumerate(streams)}
        places = self._places(shape, wanted)
        for kind, term, whole in self._blocks(shape):
            for block in term.gatherable(whole, places) if kind == OLD else ():
                self._work.stats.count_outputs(term.driving.h[block.source])
                found = self._gathered(shape, term, block, wanted)
                columns = [stream.struct(found[at]) for at, stream in enumerate(streams)]
                yield pa.RecordBatch.from_arrays(columns, names=[one.name for one in streams])

    def make(self, node: Shape) -> None:
        """Keeps the new combinations of a node and of the nodes below it, once."""
        if node.name not in self._known:
            for _ in self._pieces(node):
                pass

    def _blocks(self, node: Shape) -> Iterator[tuple[int, Term, Block]]:
        """Yields the new combinations of a node in blocks of positions, each of one kind."""
        names = [name_of(child) for child in node.children]
        sides = [self._states[name].side for name in names]
        for i, child in enumerate(node.children):
            for kind, driving in self._pieces(child):
                met = self._met(node, kind)
                rows = [
                    [one.rows(name, found=j < i) for one in met] for j, name in enumerate(names)
                ]
                yield from self._term(sides, i, kind, driving, rows)
        if self._parts:
            base, delta = ([part[name] for name in names] for part in self._parts)
            for i in range(len(names)):
                for sources in mixed(base, delta, i):
                    for driving in driven(delta[i]):
                        yield from self._term(sides, i, OLD, driving, [[one] for one in sources])

    def _met(self, node: Shape, kind: int) -> Sequence[RowKind]:
        """Returns the rows that rows of a kind join with at a node.

        At a root with two children, new rows need no new ones; with more, one of the others must be
        old.
        """
        alone = kind == NEW and node is self._shape and len(node.children) == 2
        return self._kinds[:NEW] if alone else self._kinds

    def _term(
        self,
        sides: Sequence[Side],
        source: int,
        kind: int,
        driving: RunData,
        rows: Sequence[Sequence[Sequence[Segment]]],
    ) -> Iterator[tuple[int, Term, Block]]:
        """Builds the term that joins rows of a kind with the other sides, separated by kind."""
        segments = [[one for some in kinds for one in some] for kinds in rows]
        term = Term(sides, source, driving, segments, self._work.stats, self._pair_rows)
        olds = [len(kinds[OLD]) for kinds in rows]
        for block in term.blocks(self._work.known):
            for which, some in _by_kind(kind, block, olds):
                yield which, term, some

    def _pieces(self, child: Shape | str) -> Iterator[tuple[int, RunData]]:
        """Yields the new rows of a child, sorted, by kind; makes and keeps those of an inner node."""
        name = name_of(child)
        if isinstance(child, str) or name in self._known:
            for kind, one in enumerate(self._kinds):
                for rows in driven(one.found.get(name, ())):
                    yield kind, rows
            return
        held: list[list[pa.RecordBatch]] = [[] for _ in self._kinds]
        sizes = [0 for _ in self._kinds]
        places = self._places(child, self._stored(child))
        for kind, term, whole in self._blocks(child):
            for block in term.gatherable(whole, places):
                held[kind].append(self._combined(child, term, block))
                sizes[kind] += held[kind][-1].nbytes
                if sizes[kind] >= self._piece_bytes:
                    yield from self._keep(child, kind, held[kind])
                    held[kind], sizes[kind] = [], 0
        for kind, left in enumerate(held):
            yield from self._keep(child, kind, left)
        self._known.add(name)

    def _keep(
        self, node: Shape, kind: int, held: Sequence[pa.RecordBatch]
    ) -> Iterator[tuple[int, RunData]]:
        """Keeps combinations, sorted, one piece at a time: a block may be larger than a piece."""
        if not held:
            return
        time_column = self._states[node.name].layout.time_column
        mine = self._kinds[kind]
        for rows in (some for whole in merged(held) for some in cut_rows(whole, self._piece_bytes)):
            segments = mine.keep(node.name, RunData(rows, time_column))
            mine.found.setdefault(node.name, []).extend(segments)
            for driving in driven(segments):
                yield kind, driving

    def _combined(self, node: Shape, term: Term, block: Block) -> pa.RecordBatch:
        """Returns combinations of a node in their stored form, sorted by hash."""
        state = self._states[node.name]
        if np.any(np.diff(block.source) < 0):
            block = block.take(np.argsort(block.source, kind="stable"))
        found = self._gathered(node, term, block, self._stored(node))
        columns = [column for member in state.members for column in found[member]]
        if block.deadline is not None and state.side.window_us is not None:
            columns.append(pa.array(block.deadline - state.side.window_us))
        names = [HASH_COLUMN, *(f"c{at}" for at in range(len(columns)))]
        h = term.driving.h[block.source].astype(np.uint32)
        return pa.RecordBatch.from_arrays([pa.array(h), *columns], names=names)

    def _stored(self, node: Shape) -> Mapping[int, Sequence[int]]:
        """Returns the columns of each stream that combinations of a node have."""
        at = self._states[node.name].at
        return {member: list(columns) for member, columns in at.items()}

    def _places(self, node: Shape, wanted: Mapping[int, Sequence[int]]) -> dict[int, Sequence[int]]:
        """Returns where the wanted columns of each stream are, for each side of a node."""
        states = (self._states[name_of(child)] for child in node.children)
        return {
            side: [state.at[m][column] for m in state.members for column in wanted[m]]
            for side, state in enumerate(states)
        }

    def _gathered(
        self, node: Shape, term: Term, block: Block, wanted: Mapping[int, Sequence[int]]
    ) -> dict[int, list[pa.Array]]:
        """Gathers the wanted columns of each stream of a node, for the combinations of a block."""
        found: dict[int, list[pa.Array]] = {}
        for side, places in self._places(node, wanted).items():
            state = self._states[name_of(node.children[side])]
            arrays = iter(term.columns(block, side, places))
            found |= {m: [next(arrays) for _ in wanted[m]] for m in state.members}
        return found


def _by_kind(kind: int, block: Block, olds: Sequence[int]) -> Iterator[tuple[int, Block]]:
    """Splits combinations by kind; the first `olds` segments of a side are old."""
    if kind == OLD:
        yield OLD, block
        return
    old = np.zeros(len(block.source), np.bool_)
    for side, refs in block.found.items():
        old |= refs.segment < olds[side]
    for which, mine in ((OLD, old), (NEW, ~old)):
        if mine.all():
            yield which, block
        elif mine.any():
            yield which, block.take(np.flatnonzero(mine))


def name_of(child: Shape | str) -> str:
    """Returns the name of the state of a shape's child."""
    return child.name if isinstance(child, Shape) else child
