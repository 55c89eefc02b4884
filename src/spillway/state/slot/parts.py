"""The parts of a slot's groups during one batch: memory and generations on disk.

`Parts` spills groups and loads them back. It knows which groups may miss results between their
parts (state/layout/generations.py). Generations are immutable. A batch spills into one new
generation, and probes it until the batch ends. `unite` merges parts of groups on disk
(slot/uniting.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import GroupNews, GroupSizes, GroupTable
from spillway.routing.groups import group_bounds, group_of
from spillway.routing.routing import HashRange, group_ranges
from spillway.state.layout.expiry import bound_of, due_bound, is_over
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
from spillway.state.layout.shelf import Shelf, StreamLayout, slices
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData, Slice
from spillway.state.slot.due import DueRows
from spillway.state.slot.memory import Memory

#: Layers of a stream in one generation at which they are rewritten as one.
CROWDED_GENERATION = 8


class Parts:
    """Where the rows of groups are in one slot, and what happens to their parts."""

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
        #: Whether new rows probe all parts.
        self._visited = all(layout.visited for layout in shelf.layouts)
        #: The generations that earlier batches spilled.
        self.generations: list[Generation] = list(generations)
        #: The generation of this batch, which it still probes.
        self._leaving: Generation | None = None
        #: For each stream, the rows that cleanup made for the generation it ends in.
        self._settling: list[list[Layer]] = [[] for _ in shelf.layouts]
        #: Groups that may miss results between their parts.
        self.pending = self.missing_in(table)

    # Contents

    def probed(self, stream: int) -> list[Segment]:
        """Returns all layers that new rows probe: memory, and what this batch spilled."""
        leaving = self._leaving.streams[stream] if self._leaving else ()
        return self._shelf.open(stream, (*self._memory.layers[stream], *leaving))

    def stacks(self) -> list[Sequence[tuple[Layer, ...]]]:
        """Returns the layers of all streams for each part, memory first."""
        return [self._memory.layers, *(generation.streams for generation in self._all())]

    def of(self, chosen: Sequence[int]) -> list[list[list[Segment]]]:
        """Returns the parts of the chosen groups, oldest first, memory last: segments by stream.

        The chosen groups must be neighbours among the pending groups. Then one range holds them
        all, and any other group in it has one part, which meets nothing.
        """
        bounds = group_bounds(self._groups)
        hull = HashRange(int(bounds[min(chosen)]), int(bounds[max(chosen) + 1]))
        stacks = [*(generation.streams for generation in self.generations), self._memory.layers]
        cut = [[cut_layers(layers, [hull]) for layers in stack] for stack in stacks]
        parts = [
            [_alone(self._shelf.open(stream, layers)) for stream, layers in enumerate(stack)]
            for stack in cut
        ]
        return [part for part in parts if any(part)]

    def frozen(self, chosen: Collection[int]) -> list[list[Segment]]:
        """Returns the segments on disk of the chosen groups, for each stream."""
        found: list[list[Segment]] = [[] for _ in self._shelf.layouts]
        for part in taken_out(self.generations, set(chosen), self._groups)[0]:
            self._open_into(found, part.streams)
        return found

    def part_sizes(self) -> dict[int, NDArray[np.int64]]:
        """Returns the bytes of each group in each generation, by its number; 0: no rows."""
        found: dict[int, NDArray[np.int64]] = {}
        for one in self.generations:
            sizes = (self._shelf.sizes(stream, x)[1] for stream, x in enumerate(one.streams))
            found[one.number] = sum(sizes, np.zeros(self._groups, np.int64))
        return found

    def some_of(self, group: int, numbers: Collection[int]) -> list[list[list[Segment]]]:
        """Returns the parts of a group in some generations, oldest first: segments by stream."""
        found = []
        for part in self._some(group, numbers):
            segments: list[list[Segment]] = [[] for _ in self._shelf.layouts]
            self._open_into(segments, part.streams)
            found.append(segments)
        return found

    def gaps_of(self, group: int, numbers: Collection[int]) -> Gaps:
        """Returns, for each made stream, where it is missing in these parts of a group."""
        return all_gaps([part.gaps for part in self._some(group, numbers)])

    @property
    def deferred(self) -> NDArray[np.bool_]:
        """The groups with a part on disk from an earlier batch.

        Their rows in memory have not met that part. With a cumulative operator, these rows wait for
        their results.
        """
        found = np.zeros(self._groups, np.bool_)
        for generation in self.generations:
            found |= self._groups_in(generation)
        return found

    def sizes(self) -> GroupSizes:
        """Returns the exact rows and bytes of each group, from the slices alone."""
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
        """Returns, for each made stream, where it is missing in what new rows probe."""
        memory = self._memory.gaps
        return all_gaps([memory, self._leaving.gaps]) if self._leaving else memory

    def due(
        self, stream: int, bound: int, waiting: NDArray[np.bool_], silent: Collection[int]
    ) -> DueRows:
        """Returns the rows that expire; groups in `waiting` keep theirs.

        So do groups with a part on disk whose rows in memory wait for their results.
        """
        stacks = [stack[stream] for stack in self.stacks()]
        apart = None if self._visited else self.deferred
        return DueRows(self._shelf, stream, stacks, bound, waiting, silent, apart)

    def gaps_between(self, chosen: Sequence[int]) -> Gaps:
        """Returns, for each made stream, where it is missing in a part of the chosen groups."""
        parts = [generation.gaps for generation in self.generations]
        whole = all_gaps([self._memory.gaps, *parts])
        return gaps_inside(whole, group_ranges(chosen, self._groups))

    def fill(self, filled: Gaps) -> None:
        """Records that made streams now exist in memory, in these ranges."""
        assert self._leaving is None, "groups that spill keep their gaps"
        self._memory.fill(filled)

    # Missing results

    def missing_in(self, table: GroupTable) -> set[int]:
        """Returns the groups of a table that may miss results between their parts."""
        return set() if self._visited else set(np.flatnonzero(table.pending).tolist())

    def note_pending(self) -> None:
        """Records the groups that now have a part in memory and one on disk."""
        deferred = [] if self._visited else np.flatnonzero(self.deferred).tolist()
        if deferred:
            self.pending |= set(self._memory.having(deferred))

    def expiring(self, watermark_us: int | None, decided_us: NDArray[np.int64]) -> list[int]:
        """Returns the pending groups with a frozen part that expires at the watermark.

        The slot must produce their missing results before that part goes, or before it decides which
        of its rows stay without partners. `decided_us` says what groups have decided.
        """
        due: set[int] = set()
        for generation in self.generations:
            for stream, layers in enumerate(generation.streams):
                layout = self._shelf.layouts[stream]
                bound = due_bound(layout, watermark_us)
                for piece in slices(layers):
                    if bound is not None and is_over(piece, bound):
                        ends = np.array([piece.range.lo, piece.range.hi - 1]).astype(np.uint32)
                        first, last = group_of(ends, self._groups).tolist()
                        open_until = _open_until(layout, piece, watermark_us)
                        due |= {
                            g
                            for g in generation.groups
                            if first <= g <= last and decided_us[g] < open_until
                        }
        return sorted(due & self.pending)

    # Changes

    def keep_on_disk(self, stream: int, data: RunData) -> list[Segment]:
        """Adds rows made from groups that `settle` is about to merge on disk."""
        layer = Layer(0, self._shelf.write_all(stream, data.batch, tier="disk"))
        self._settling[stream].append(layer)
        return self._shelf.open(stream, [layer])

    def expire(self, stream: int, left: Callable[[Sequence[Layer]], tuple[Layer, ...]]) -> None:
        """Keeps what is left of a stream on disk."""
        for at, generation in enumerate(self.generations):
            stacks = list(generation.streams)
            stacks[stream] = left(stacks[stream])
            self.generations[at] = replace(generation, streams=tuple(stacks))

    def drop_empty(self) -> None:
        """Drops empty generations."""
        self.generations = [one for one in self.generations if any(one.streams)]

    def spill(self, victims: Collection[int]) -> None:
        """Spills groups into the generation of this batch.

        It reads and writes the rows once; rows that stay in memory are only cut again.
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
        # A part without rows misses none.
        self._memory.gaps = gaps_outside(gaps, ranges)
        self._news.end_parts(victims)

    def seal(self) -> None:
        """Ends the generation of this batch: later rows of its groups follow them to disk."""
        self.follow()
        if self._leaving is not None:
            self.generations.append(self._leaving)
            self._leaving = None

    def follow(self) -> None:
        """Spills rows that arrived for groups which this batch spilled."""
        if self._leaving is not None:
            self.spill(self._memory.having(self._leaving.groups))

    def trim(self, bound_bytes: int) -> None:
        """Rewrites layers in memory until their files fit a bound."""
        if self._memory.file_bytes() > bound_bytes:
            self._memory.trim(bound_bytes, self.deferred)

    def settle(self, chosen: Sequence[int], *, in_memory: bool) -> None:
        """Merges the parts of the chosen groups, in memory or on disk; no result may be missing."""
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

    def unite(self, chosen: Mapping[int, Collection[int]], *, waiting: bool) -> None:
        """Merges parts on disk into a new generation: for each group, those of some generations.

        No result between the parts of a group may be missing, unless they wait for their results.
        """
        parts, rest = [], []
        for generation in self.generations:
            groups = [group for group, numbers in chosen.items() if generation.number in numbers]
            mine, others = generation.split(groups, self._groups)
            parts += [mine] if mine else []
            rest += [others] if others else []
        made = tuple(tuple(layers) for layers in self._settling)
        self._settling = [[] for _ in self._shelf.layouts]
        number = next_number(self.generations)
        whole = united(number, [*parts, Generation(number, (), made)])
        still = np.ones(self._groups, np.bool_) if waiting else None
        streams = tuple(
            self._shelf.rewrite(stream, layers, chosen, tier="disk", waiting=still)
            for stream, layers in enumerate(whole.streams)
        )
        self.generations = [*rest, replace(whole, streams=streams)]

    def take_waiting(self, chosen: Collection[int]) -> list[list[Segment]]:
        """Removes all parts of groups except the oldest; returns their rows for each stream."""
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
        """Removes and returns the groups' parts on disk, oldest first."""
        parts, self.generations = taken_out(self.generations, set(chosen), self._groups)
        self.pending -= set(chosen)
        return parts

    def add_groups(self, generations: Sequence[Generation]) -> None:
        """Adds the parts on disk of groups that had nothing here."""
        self.generations = by_number([*self.generations, *generations])

    # Internals

    def _all(self) -> list[Generation]:
        return [*self.generations, self._leaving] if self._leaving else self.generations

    def _some(self, group: int, numbers: Collection[int]) -> list[Generation]:
        """Returns the parts of a group in some generations, oldest first."""
        some = [one for one in self.generations if one.number in numbers]
        return taken_out(some, {group}, self._groups)[0]

    def _groups_in(self, generation: Generation) -> NDArray[np.bool_]:
        """Returns the groups with rows in a generation; its list may name expired ones."""
        rows = sum(self._shelf.sizes(stream, x)[0] for stream, x in enumerate(generation.streams))
        return np.asarray(rows, np.int64) > 0

    def _open_into(self, found: list[list[Segment]], streams: Sequence[Sequence[Layer]]) -> None:
        for stream, layers in enumerate(streams):
            found[stream] += _alone(self._shelf.open(stream, layers))

    def _settle_made(self, chosen: Sequence[int]) -> None:
        """Turns the rows made for groups that end on disk into one more generation."""
        if any(self._settling):
            streams = tuple(tuple(layers) for layers in self._settling)
            number = next_number(self.generations)
            self.generations.append(Generation(number, tuple(sorted(chosen)), streams))
            self._settling = [[] for _ in self._shelf.layouts]


def _open_until(layout: StreamLayout, piece: Slice, watermark_us: int | None) -> float:
    """Returns the watermark at which all rows of a slice are decided; infinite if the rows leave."""
    after, leaving = layout.decided_after_us, bound_of(layout, watermark_us)
    if after is None or leaving is None or is_over(piece, leaving) or piece.run.max_time is None:
        return math.inf
    return piece.run.max_time + after


def _alone(segments: Sequence[Segment]) -> list[Segment]:
    """Copies segments into separate runs, so that the index covers only their rows."""
    parts = ((s, s.data.part(s.begin, s.end)) for s in segments if s.rows)
    return [Segment(data, 0, s.rows, s.range, s.final_us) for s, data in parts]
