"""The parts of a slot's groups during one batch: what they have in memory, and their generations.

`Parts` moves groups out of memory and back, and knows which of them may miss results between their
parts (state/layout/generations.py). Generations are immutable; what a batch moves out of memory is one
more, which it goes on to probe until it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import GroupNews, GroupSizes, GroupTable
from spillway.routing.groups import group_bounds, group_of
from spillway.routing.routing import HashRange, group_ranges
from spillway.state.layout.expiry import bound_of, is_over
from spillway.state.layout.gaps import Gaps, all_gaps, gaps_inside, gaps_outside
from spillway.state.layout.generations import (
    Generation,
    by_number,
    cut_layers,
    next_number,
    taken_out,
    united,
)
from spillway.state.layout.layers import Layer
from spillway.state.layout.shelf import Shelf, slices
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.memory import Memory

#: Layers of a stream in one generation from which on they are written anew as one.
CROWDED_GENERATION = 8


class Parts:
    """Where the rows of groups are in one slot, and what becomes of their parts."""

    def __init__(
        self,
        shelf: Shelf,
        memory: Memory,
        generations: Sequence[Generation],
        table: GroupTable,
        news: GroupNews,
    ) -> None:
        self._shelf = shelf
        self._memory = memory
        self._news = news
        self._groups = shelf.groups
        #: Whether new rows look into all parts.
        self._visited = all(layout.visited for layout in shelf.layouts)
        #: What earlier batches have moved out of memory.
        self.generations: list[Generation] = list(generations)
        #: The generation that this batch makes, still probed by it.
        self._leaving: Generation | None = None
        #: For each stream, what cleanup has made that belongs into the generation it ends in.
        self._settling: list[list[Layer]] = [[] for _ in shelf.layouts]
        #: Groups that may miss results between their parts.
        self.pending = self.missing_in(table)

    # What is there

    def probed(self, stream: int) -> list[Segment]:
        """Everything of the stream that new rows meet: memory, and what leaves it in this batch."""
        leaving = self._leaving.streams[stream] if self._leaving else ()
        return self._shelf.opened(stream, (*self._memory.layers[stream], *leaving))

    def stacks(self) -> list[Sequence[tuple[Layer, ...]]]:
        """For each part, memory first, the layers of all streams."""
        return [self._memory.layers, *(generation.streams for generation in self._all())]

    def of(self, chosen: Sequence[int]) -> list[list[list[Segment]]]:
        """The parts of some groups, oldest first, memory last: for each, the streams' segments.

        The chosen groups must be neighbours among those that are pending. Then one range holds them
        all, and the others in it have one part, which meets nothing.
        """
        bounds = group_bounds(self._groups)
        hull = HashRange(int(bounds[min(chosen)]), int(bounds[max(chosen) + 1]))
        stacks = [*(generation.streams for generation in self.generations), self._memory.layers]
        cut = [[cut_layers(layers, [hull]) for layers in stack] for stack in stacks]
        parts = [
            [_alone(self._shelf.opened(stream, layers)) for stream, layers in enumerate(stack)]
            for stack in cut
        ]
        return [part for part in parts if any(part)]

    def frozen(self, chosen: Collection[int]) -> list[list[Segment]]:
        """What some groups have on disk: for each stream, its segments."""
        found: list[list[Segment]] = [[] for _ in self._shelf.layouts]
        for part in taken_out(self.generations, set(chosen), self._groups)[0]:
            self._open_into(found, part.streams)
        return found

    @property
    def deferred(self) -> NDArray[np.bool_]:
        """The groups with a part on disk from an earlier batch.

        What they have in memory has not met that part. For an operator whose results need all that
        came before, the rows in memory of these groups wait for their results.
        """
        found = np.zeros(self._groups, np.bool_)
        for generation in self.generations:
            found |= self._groups_in(generation)
        return found

    def sizes(self) -> GroupSizes:
        """Exact rows and bytes of each group, from the slices alone."""
        disk_rows, disk_bytes, count = (np.zeros(self._groups, np.int64) for _ in range(3))
        for generation in self._all():
            found = [self._shelf.sizes(stream, x) for stream, x in enumerate(generation.streams)]
            mine = sum(one[0] for one in found)
            disk_rows += mine
            disk_bytes += sum(one[1] for one in found)
            count += mine > 0
        return GroupSizes(*self._memory.sizes(), disk_rows, disk_bytes, count)

    @property
    def gaps(self) -> Gaps:
        """For each made stream, where it is not there in what new rows meet."""
        memory = self._memory.gaps
        return all_gaps([memory, self._leaving.gaps]) if self._leaving else memory

    def gaps_between(self, chosen: Sequence[int]) -> Gaps:
        """For each made stream, where it is not there in one of the parts of some groups."""
        parts = [generation.gaps for generation in self.generations]
        whole = all_gaps([self._memory.gaps, *parts])
        return gaps_inside(whole, group_ranges(chosen, self._groups))

    def fill(self, filled: Gaps) -> None:
        """Notes that made streams are now there in memory, in these ranges."""
        assert self._leaving is None, "what leaves memory keeps its gaps"
        self._memory.fill(filled)

    # Which miss results

    def missing_in(self, table: GroupTable) -> set[int]:
        """The groups of a table that may miss results between their parts."""
        return set() if self._visited else set(np.flatnonzero(table.pending).tolist())

    def note_pending(self) -> None:
        """Takes note of groups that have got a part in memory and one on disk."""
        deferred = [] if self._visited else np.flatnonzero(self.deferred).tolist()
        if deferred:
            self.pending |= set(self._memory.having(deferred))

    def expiring(self, watermark_us: int | None) -> list[int]:
        """The pending groups of which a frozen part can find no partner at or after the watermark.

        Their missing results must be made before that part goes.
        """
        due: set[int] = set()
        for generation in self.generations:
            for stream, layers in enumerate(generation.streams):
                bound = bound_of(self._shelf.layouts[stream], watermark_us)
                for piece in slices(layers):
                    if bound is not None and is_over(piece, bound):
                        ends = np.array([piece.range.lo, piece.range.hi - 1]).astype(np.uint32)
                        first, last = group_of(ends, self._groups).tolist()
                        due |= {g for g in generation.groups if first <= g <= last}
        return sorted(due & self.pending)

    # What becomes of them

    def keep_on_disk(self, stream: int, data: RunData) -> Segment:
        """Adds rows that were made of groups that `settle` is about to make one part on disk."""
        piece = self._shelf.write(stream, data.batch, tier="disk")
        self._settling[stream].append(Layer(0, (piece,)))
        return self._shelf.segment(stream, piece)

    def expire(self, stream: int, left: Callable[[Sequence[Layer]], tuple[Layer, ...]]) -> None:
        """Keeps what is left of a stream on disk."""
        for at, generation in enumerate(self.generations):
            stacks = list(generation.streams)
            stacks[stream] = left(stacks[stream])
            self.generations[at] = replace(generation, streams=tuple(stacks))

    def drop_empty(self) -> None:
        """Lets go of generations of which nothing is left."""
        self.generations = [one for one in self.generations if any(one.streams)]

    def spill(self, victims: Collection[int]) -> None:
        """Moves groups out of memory, into the generation that this batch makes.

        The rows are read and written once; what stays in memory is only cut out anew.
        """
        if not victims:
            return
        waiting = self.deferred
        streams = tuple(
            self._shelf.rewrite(stream, layers, victims, tier="disk", waiting=waiting)
            for stream, layers in enumerate(self._memory.cut_out(victims))
        )
        ranges, gaps = group_ranges(victims, self._groups), self._memory.gaps
        if any(streams):
            number = next_number(self.generations)
            here = gaps_inside(gaps, ranges)
            more = Generation(number, tuple(sorted(victims)), streams, here)
            self._leaving = united(number, [self._leaving, more] if self._leaving else [more])
        # A part that has no rows yet misses none.
        self._memory.gaps = gaps_outside(gaps, ranges)
        self._news.moved_out(victims)

    def seal(self) -> None:
        """Ends the generation that this batch has made: rows that came for its groups follow them."""
        self.follow()
        if self._leaving is not None:
            self.generations.append(self._leaving)
            self._leaving = None

    def follow(self) -> None:
        """Moves rows out of memory that came for groups which leave it in this batch."""
        if self._leaving is not None:
            self.spill(self._memory.having(self._leaving.groups))

    def trim(self, bound_bytes: int) -> None:
        """Writes layers in memory anew until their files fit a bound."""
        if self._memory.file_bytes() > bound_bytes:
            self._memory.trim(bound_bytes, self.deferred)

    def settle(self, chosen: Sequence[int], *, in_memory: bool) -> None:
        """Makes the parts of some groups one, in memory or on disk; no result may be missing."""
        if not in_memory:
            self.spill(self._memory.having(chosen))
            self.seal()
            self._settle_made(chosen)
        parts = self.take_out(chosen)
        if parts and in_memory:
            here = gaps_inside(self._memory.gaps, group_ranges(chosen, self._groups))
            no_rows = Generation(0, (), ((),) * len(self._shelf.layouts), here)
            whole = united(0, [*parts, no_rows])
            self._memory.widen(whole.gaps)
            for stream, layers in enumerate(whole.streams):
                for layer in self._shelf.rewrite(stream, layers, chosen, tier="memory"):
                    self._memory.put_under(stream, layer)
        elif parts:
            whole = united(next_number(self.generations), parts)
            streams = tuple(
                self._shelf.rewrite(stream, layers, chosen, tier="disk")
                if len(layers) >= CROWDED_GENERATION
                else layers
                for stream, layers in enumerate(whole.streams)
            )
            self.generations.append(replace(whole, streams=streams))

    def take_waiting(self, chosen: Collection[int]) -> list[list[Segment]]:
        """Takes all parts of groups but the oldest out of the state: for each stream, their rows."""
        taken: list[list[Segment]] = [[] for _ in self._shelf.layouts]
        met: set[int] = set()
        for at, generation in enumerate(self.generations):
            here = set(np.flatnonzero(self._groups_in(generation)).tolist()) & set(chosen)
            younger, rest = generation.split(here & met, self._groups)
            met |= here
            if younger and rest:
                self.generations[at] = rest
            elif younger:
                self.generations[at] = replace(generation, groups=(), streams=((),) * len(taken))
            self._open_into(taken, younger.streams if younger else ())
        self.drop_empty()
        if met:
            self._open_into(taken, self._memory.cut_out(met))
        return taken

    def take_out(self, chosen: Collection[int]) -> list[Generation]:
        """Takes what groups have on disk out, oldest first; nothing of them is missing any more."""
        parts, self.generations = taken_out(self.generations, set(chosen), self._groups)
        self.pending -= set(chosen)
        return parts

    def add_groups(self, generations: Sequence[Generation]) -> None:
        """Adds what groups have on disk that had nothing here."""
        self.generations = by_number([*self.generations, *generations])

    # How

    def _all(self) -> list[Generation]:
        return [*self.generations, self._leaving] if self._leaving else self.generations

    def _groups_in(self, generation: Generation) -> NDArray[np.bool_]:
        """Which groups have rows in a generation; its list may name some whose rows have expired."""
        rows = sum(self._shelf.sizes(stream, x)[0] for stream, x in enumerate(generation.streams))
        return np.asarray(rows, np.int64) > 0

    def _open_into(self, found: list[list[Segment]], streams: Sequence[Sequence[Layer]]) -> None:
        for stream, layers in enumerate(streams):
            found[stream] += _alone(self._shelf.opened(stream, layers))

    def _settle_made(self, chosen: Sequence[int]) -> None:
        """What was made for groups that end on disk is one more generation of them."""
        if any(self._settling):
            streams = tuple(tuple(layers) for layers in self._settling)
            number = next_number(self.generations)
            self.generations.append(Generation(number, tuple(sorted(chosen)), streams))
            self._settling = [[] for _ in self._shelf.layouts]


def _alone(segments: Sequence[Segment]) -> list[Segment]:
    """Segments as runs of their own, so that an index is made of their rows only."""
    return [Segment(s.data.part(s.begin, s.end), 0, s.rows, s.range) for s in segments if s.rows]
