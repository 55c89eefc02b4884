"""The state of one slot during one batch: opened from a manifest, written back as the next one.

`SlotState` is the only way an operator sees state. It offers segments to probe, takes the sorted rows
of the batch, expires, compacts, moves groups out of memory and back, and ends in a new manifest. It
changes no file: everything it makes is a new run with a name unique to this attempt, so two attempts
at the same batch never meet.

What a batch gives does not depend on when in it groups leave memory: until the batch ends they are
probed where they went, and the rows that come for them follow. So two attempts that spill at different
rows, because the exchange brought these in another order, give the same results.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from spillway.ids import Version
from spillway.routing.groups import group_bounds, group_of
from spillway.routing.routing import HashRange, group_ranges
from spillway.state.compaction import finish_merges
from spillway.state.compactor import Compactor
from spillway.state.gaps import Gaps, all_gaps, gaps_inside, gaps_outside, without
from spillway.state.generations import (
    Generation,
    by_number,
    cut_layers,
    next_number,
    taken_out,
    united,
)
from spillway.state.groups import GroupNews, GroupSizes, GroupTable
from spillway.state.layers import SETTLED, Layer, side_by_side
from spillway.state.manifest import Manifest, arranged, part_manifest
from spillway.state.merging import Segment
from spillway.state.moving import Departure, Parked, of_move
from spillway.state.run import RunData, Slice
from spillway.state.shelf import Shelf, StreamLayout, slices
from spillway.state.spool import Spooler
from spillway.state.staging import Staging
from spillway.state.store import Store
from spillway.state.tracks import Tracker

#: Layers of a stream in one generation from which on they are written anew as one.
CROWDED_GENERATION = 8
#: Bytes of rows cut out of a layer's files that are not worth writing it anew.
LEAST_WASTE_BYTES = 1 << 16


class SlotState:
    """One slot's state in the making."""

    def __init__(
        self,
        manifest: Manifest,
        store: Store,
        layouts: Sequence[StreamLayout],
        *,
        groups: int,
        version: Version,
        attempt: str,
        now_s: float = 0.0,
    ) -> None:
        self.layouts = tuple(layouts)
        #: The names of the made streams.
        self.made = tuple(layout.name for layout in layouts if layout.made)
        manifest = arranged(manifest, self.made)
        self.manifest = manifest
        self.groups = groups
        self.version = version
        self.now_s = now_s
        self.news = GroupNews.none(version, groups, now_s)
        self.delta_rows = [0] * len(layouts)
        self.expired_rows = 0
        #: Runs that came with groups from another slot.
        self.arrived: set[str] = set()
        #: Groups that may miss results between their parts.
        self.pending: set[int] = set(np.flatnonzero(manifest.groups.pending).tolist())
        self._shelf = Shelf(
            store, layouts, slot=manifest.slot, groups=groups, version=version, attempt=attempt
        )
        self.inputs = self._shelf.inputs
        #: Rows whose results are made when the batch is whole.
        self.staging = Staging(self._shelf)
        #: Rows that wait for a later batch.
        self.spooler = Spooler(self._shelf, manifest.spool, now_s)
        #: Groups that another slot serves as well, from their new rows on.
        self.tracker = Tracker(self._shelf, manifest.track)
        self._layers: list[tuple[Layer, ...]] = [tuple(layers) for layers in manifest.streams]
        self._generations: list[Generation] = list(manifest.generations)
        #: The generation that this batch makes, still probed by it.
        self._leaving: Generation | None = None
        #: Where made streams are not there in memory.
        self._gaps: Gaps = manifest.gaps or ((),) * len(self.made)
        #: For each stream, what cleanup has made that belongs into the generation it ends in.
        self._settling: list[list[Layer]] = [[] for _ in layouts]
        self._departures: tuple[Departure, ...] = manifest.departures
        self._parked: tuple[Parked, ...] = manifest.parked
        #: Whether groups have come or gone, so that the table of the manifest is out of date.
        self.moved = False
        #: The statistics that this batch adds to.
        self._known = manifest.groups
        if not len(self._known):
            self._known = GroupTable.empty(groups, len(layouts))

    # What is there

    def segments(self, stream: int) -> list[Segment]:
        """Everything of the stream that new rows meet: memory, and what leaves it in this batch."""
        leaving = self._leaving.streams[stream] if self._leaving else ()
        return self._shelf.opened(stream, (*self._layers[stream], *leaving))

    def parts(self, chosen: Sequence[int]) -> list[list[list[Segment]]]:
        """The parts of some groups, oldest first, memory last: for each, the streams' segments.

        The chosen groups must be neighbours among those that are pending. Then one range holds them
        all, and the others in it have one part, which meets nothing.
        """
        bounds = group_bounds(self.groups)
        hull = HashRange(int(bounds[min(chosen)]), int(bounds[max(chosen) + 1]))
        stacks = [[cut_layers(layers, [hull]) for layers in g.streams] for g in self._generations]
        parts = [
            [_alone(self._shelf.opened(stream, layers)) for stream, layers in enumerate(stack)]
            for stack in [*stacks, [cut_layers(layers, [hull]) for layers in self._layers]]
        ]
        return [part for part in parts if any(part)]

    @property
    def deferred(self) -> NDArray[np.bool_]:
        """The groups with a part on disk from an earlier batch.

        What they have in memory has not met that part. For an operator whose results need all that
        came before, the rows in memory of these groups wait for their results.
        """
        found = np.zeros(self.groups, np.bool_)
        for generation in self._generations:
            found |= self._groups_in(generation)
        return found

    def take_waiting(self, chosen: Collection[int]) -> list[list[Segment]]:
        """Takes all parts of groups but the oldest out of the state: for each stream, their rows."""
        taken: list[list[Segment]] = [[] for _ in self.layouts]
        met: set[int] = set()
        for at, generation in enumerate(self._generations):
            here = set(np.flatnonzero(self._groups_in(generation)).tolist()) & set(chosen)
            younger, rest = generation.split(here & met, self.groups)
            met |= here
            if younger and rest:
                self._generations[at] = rest
            elif younger:
                self._generations[at] = replace(generation, groups=(), streams=((),) * len(taken))
            self._open_into(taken, younger.streams if younger else ())
        self._generations = [g for g in self._generations if any(g.streams)]
        if met:
            self._open_into(taken, self._cut_out(met))
        return taken

    def frozen(self, chosen: Collection[int]) -> list[list[Segment]]:
        """What some groups have on disk: for each stream, its segments."""
        found: list[list[Segment]] = [[] for _ in self.layouts]
        for part in taken_out(self._generations, set(chosen), self.groups)[0]:
            self._open_into(found, part.streams)
        return found

    def memory_bytes(self) -> int:
        """Exact bytes in memory, of what is probed."""
        found = (self._shelf.opened(stream, layers) for stream, layers in enumerate(self._layers))
        return sum(s.bytes for segments in found for s in segments)

    def group_sizes(self) -> GroupSizes:
        """Exact rows and bytes of each group, from the slices alone."""
        in_memory = [self._shelf.sizes(stream, x) for stream, x in enumerate(self._layers)]
        rows, sizes = (np.stack(column) for column in zip(*in_memory, strict=True))
        disk_rows, disk_bytes, count = (np.zeros(self.groups, np.int64) for _ in range(3))
        for generation in self._all_generations():
            found = [self._shelf.sizes(stream, x) for stream, x in enumerate(generation.streams)]
            mine = sum(one[0] for one in found)
            disk_rows += mine
            disk_bytes += sum(one[1] for one in found)
            count += mine > 0
        return GroupSizes(rows, sizes, disk_rows, disk_bytes, count)

    def table(self) -> GroupTable:
        """The statistics of the groups as of now."""
        return self._known.after(self.group_sizes(), self.news)

    @property
    def written(self) -> set[str]:
        """Every run this attempt has written, also those it has merged away again."""
        return self._shelf.written

    @property
    def layer_counts(self) -> tuple[int, ...]:
        """Layers per stream, which is what a probe has to look into."""
        return tuple(len(layers) for layers in self._layers)

    @property
    def gaps(self) -> Gaps:
        """For each made stream, where it is not there in what new rows meet."""
        return all_gaps([self._gaps, self._leaving.gaps]) if self._leaving else self._gaps

    def gaps_between(self, chosen: Sequence[int]) -> Gaps:
        """For each made stream, where it is not there in one of the parts of some groups."""
        parts = [g.gaps for g in self._generations]
        return gaps_inside(all_gaps([self._gaps, *parts]), group_ranges(chosen, self.groups))

    def fill(self, filled: Gaps) -> None:
        """Notes that made streams are now there in memory, in these ranges."""
        assert self._leaving is None, "what leaves memory keeps its gaps"
        pairs = zip(self._gaps, filled, strict=True)
        self._gaps = tuple(without(old, ranges) for old, ranges in pairs)

    # What a batch does

    def add(self, stream: int, data: RunData) -> None:
        """Adds the sorted rows of the batch as a new layer."""
        if data.rows:
            self.add_made(stream, data)

    def add_made(self, stream: int, data: RunData) -> Segment:
        """Adds sorted rows that the operator has made of the batch's, and opens them."""
        self.news.took(np.diff(data.group_starts(group_bounds(self.groups))))
        return self.keep(stream, data)

    def keep(self, stream: int, data: RunData) -> Segment:
        """Adds sorted rows that were made of rows that are here already, and opens them."""
        piece = self._shelf.write(stream, data.batch)
        self._layers[stream] = (*self._layers[stream], Layer(0, (piece,)))
        self.delta_rows[stream] += data.rows
        return self._shelf.segment(stream, piece)

    def keep_on_disk(self, stream: int, data: RunData) -> Segment:
        """The same, of groups that `settle` is about to make one part on disk."""
        piece = self._shelf.write(stream, data.batch, tier="disk")
        self._settling[stream].append(Layer(0, (piece,)))
        return self._shelf.segment(stream, piece)

    def expiring(self, watermark_us: int | None) -> list[int]:
        """The pending groups of which a frozen part can find no partner at or after the watermark.

        Their missing results must be made before that part goes.
        """
        due: set[int] = set()
        for generation in self._generations:
            for stream, layers in enumerate(generation.streams):
                bound = self._bound(stream, watermark_us)
                for piece in slices(layers):
                    if bound is not None and _over(piece, bound):
                        ends = np.array([piece.range.lo, piece.range.hi - 1]).astype(np.uint32)
                        first, last = group_of(ends, self.groups).tolist()
                        due |= {g for g in generation.groups if first <= g <= last}
        return sorted(due & self.pending)

    def expire(self, watermark_us: int | None) -> None:
        """Lets go of every slice whose rows can find no partner at or after the watermark.

        The groups that miss results keep theirs until they are cleaned up, and those with staged
        or spooled rows until these have been processed.
        """
        self.note_pending()
        waiting = np.flatnonzero(self.staging.groups | self.spooler.groups).tolist()
        kept = group_ranges(self.pending | set(waiting), self.groups)
        for stream in range(len(self.layouts)):
            bound = self._bound(stream, watermark_us)
            if bound is None:
                continue
            left = partial(self._left, stream, bound=bound, kept=kept)
            self._layers[stream] = left(self._layers[stream])
            if stream < self.inputs:
                self.tracker.expire(stream, left)
            for at, generation in enumerate(self._generations):
                stacks = list(generation.streams)
                rest = self._without_over(stream, stacks[stream], bound, kept)
                stacks[stream] = tuple(layer for layer in rest if layer.slices)
                self._generations[at] = replace(generation, streams=tuple(stacks))
        self._generations = [g for g in self._generations if any(g.streams)]

    def compact(self, watermark_us: int | None) -> int:
        """Does this batch's share of merging; returns the rows it rewrote."""
        done, waiting = self.spooler.compact() + self.tracker.compact(), self.deferred
        self.note_pending()
        # Of groups that miss results, or whose rows wait, all rows are kept.
        needed = bool(self.pending) or bool(self.spooler.groups.any())
        for stream, layers in enumerate(self._layers):
            bound = None if needed else self._bound(stream, watermark_us)
            merging = Compactor(self._shelf, stream, layers, bound, waiting)
            merging.run(self.delta_rows[stream])
            self._layers[stream] = merging.layers
            self.expired_rows += merging.expired_rows
            done += merging.merged_rows
        return done

    def spill(self, victims: Collection[int]) -> None:
        """Moves groups out of memory, into the generation that this batch makes.

        The rows are read and written once; what stays in memory is only cut out anew.
        """
        if not victims:
            return
        waiting = self.deferred
        streams = tuple(
            self._shelf.moved(stream, layers, victims, tier="disk", waiting=waiting)
            for stream, layers in enumerate(self._cut_out(victims))
        )
        ranges = group_ranges(victims, self.groups)
        if any(streams):
            number = next_number(self._generations)
            gaps = gaps_inside(self._gaps, ranges)
            more = Generation(number, tuple(sorted(victims)), streams, gaps)
            self._leaving = united(number, [self._leaving, more] if self._leaving else [more])
        # A part that has no rows yet misses none.
        self._gaps = gaps_outside(self._gaps, ranges)
        self.news.moved_out(victims)

    def seal(self) -> None:
        """Ends the generation that this batch has made: rows that came for its groups follow them."""
        if self._leaving is None:
            return
        late = [group for group, rows in self._rows_by_group(self._leaving.groups) if rows]
        if late:
            self.spill(late)
        self._generations.append(self._leaving)
        self._leaving = None

    def trim(self, bound_bytes: int) -> None:
        """Writes layers anew, those with the most rows cut out first, until files fit a bound.

        A cut frees no memory by itself: the file stays until no slice needs it. Layers that are being
        merged are left alone, since merging frees them.
        """
        everything = range(self.groups)
        while self._file_bytes() > bound_bytes:
            wasted = [
                (self._wasted_bytes(stream, layer), stream, at)
                for stream, layers in enumerate(self._layers)
                for at, layer in enumerate(layers)
                if layer.role == SETTLED
            ]
            most, stream, at = max(wasted, default=(0, 0, 0))
            if most <= LEAST_WASTE_BYTES:
                return
            layers = list(self._layers[stream])
            anew = self._shelf.moved(
                stream, [layers[at]], everything, tier="memory", waiting=self.deferred
            )
            layers[at : at + 1] = [replace(one, level=layers[at].level) for one in anew]
            self._layers[stream] = tuple(layers)

    def settle(self, chosen: Sequence[int], *, in_memory: bool) -> None:
        """Makes the parts of some groups one, in memory or on disk; no result may be missing."""
        if not in_memory:
            self.spill([group for group, rows in self._rows_by_group(chosen) if rows])
            self.seal()
            self._settle_made(chosen)
        parts, self._generations = taken_out(self._generations, set(chosen), self.groups)
        if parts and in_memory:
            here = gaps_inside(self._gaps, group_ranges(chosen, self.groups))
            no_rows = Generation(0, (), ((),) * len(self.layouts), here)
            whole = united(0, [*parts, no_rows])
            self._widen(whole.gaps)
            for stream, layers in enumerate(whole.streams):
                for layer in self._shelf.moved(stream, layers, chosen, tier="memory"):
                    fitting = replace(layer, level=self._level_for(stream, layer))
                    self._layers[stream] = (fitting, *self._layers[stream])
        elif parts:
            whole = united(next_number(self._generations), parts)
            streams = tuple(
                self._shelf.moved(stream, layers, chosen, tier="disk")
                if len(layers) >= CROWDED_GENERATION
                else layers
                for stream, layers in enumerate(whole.streams)
            )
            self._generations.append(replace(whole, streams=streams))
        self.pending -= set(chosen)

    def _settle_made(self, chosen: Sequence[int]) -> None:
        """What was made for groups that end on disk is one more generation of them."""
        if any(self._settling):
            streams = tuple(tuple(layers) for layers in self._settling)
            number = next_number(self._generations)
            self._generations.append(Generation(number, tuple(sorted(chosen)), streams))
            self._settling = [[] for _ in self.layouts]

    # What moves

    def depart(self, move: int, chosen: Collection[int]) -> None:
        """Cuts groups out of everything that is probed; their rows stay as they are from now on."""
        frozen, self._generations = taken_out(self._generations, set(chosen), self.groups)
        groups = tuple(sorted(chosen))
        streams = tuple(self._cut_out(groups))
        sizes = tuple(
            tuple(self._shelf.sizes(stream, layers)[1][list(groups)].tolist())
            for stream, layers in enumerate(streams)
        )
        ranges = group_ranges(groups, self.groups)
        gaps = gaps_inside(self._gaps, ranges)
        self._departures += (
            Departure(move, groups, streams, sizes, tuple(frozen), self.made, gaps),
        )
        self._gaps = gaps_outside(self._gaps, ranges)
        self.pending -= set(chosen)
        self.moved = True

    def park(self, move: int, stream: int, data: RunData) -> None:
        """Keeps rows for groups that are on their way, as they came."""
        if data.rows == 0:
            return
        known = of_move(self._parked, move) or Parked(move, ((),) * self.inputs)
        more = known.with_layer(stream, Layer(0, (self._shelf.write(stream, data.batch),)))
        self._parked = (*(part for part in self._parked if part.move != move), more)

    def waiting(self, parked: Parked) -> list[RunData | None]:
        """The parked rows of each stream, sorted by hash; None where none came."""
        found: list[RunData | None] = []
        everything = np.ones(self.groups, np.bool_)
        for stream, layers in enumerate(parked.streams):
            rows = [s.batch() for s in self._shelf.opened(stream, layers)]
            whole = self._shelf.merged(stream, rows, everything) if rows else None
            time_column = self.layouts[stream].time_column
            found.append(None if whole is None else RunData(whole, time_column))
        return found

    def install(self, part: Manifest) -> None:
        """Takes groups over, with their rows, what they have on disk, and their statistics.

        Of made streams only those are taken that are here too; others are gaps.
        """
        came = set(part.runs())
        part = arranged(part, self.made)
        ranges = group_ranges(np.flatnonzero(part.groups.here).tolist(), self.groups)
        self._gaps = all_gaps([gaps_outside(self._gaps, ranges), part.gaps])
        for stream, layers in enumerate(part.streams):
            more = [layer for layer in self._shelf.filled(stream, layers) if layer.slices]
            if len(more) == 1:
                # What was sent has come as one layer, which has no level yet.
                more = [replace(more[0], level=self._level_for(stream, more[0]))]
            self._layers[stream] = side_by_side(self._layers[stream], more)
        self._generations = by_number([*self._generations, *part.generations])
        self.arrived |= came
        self._known = self._known.merged(part.groups)
        self.pending |= set(np.flatnonzero(self.table().pending).tolist())
        self.moved = True

    def take_back(self, move: int) -> None:
        """Undoes `depart`."""
        part = of_move(self._departures, move)
        if part is not None:
            table = self._known.only(part.groups)
            self.leave(move)
            self.install(part_manifest(self.manifest.slot, part, part.streams, table))

    def leave(self, move: int) -> None:
        """Lets go of what a move has here: groups that left, and rows that were parked."""
        part = of_move(self._departures, move)
        if part is not None:
            self._known = self._known.only(set(range(self.groups)) - set(part.groups))
        self._departures = tuple(one for one in self._departures if one.move != move)
        self._parked = tuple(one for one in self._parked if one.move != move)

    def begin_track(self, move: int, chosen: Collection[int]) -> None:
        """From now on another slot gets the new rows of groups as well; what is here is old."""
        spooled = self.spooler.streams
        old = [(self._layers[stream], spooled[stream]) for stream in range(self.inputs)]
        self.tracker.begin(move, chosen, old)

    @property
    def tracked(self) -> tuple[int, ...]:
        """The groups that another slot serves as well."""
        return self.tracker.track.groups if self.tracker.track else ()

    def follow(self, stream: int, data: RunData) -> None:
        """Keeps new rows of groups that another slot has as well, beside the old ones."""
        if data.rows:
            self.news.took(np.diff(data.group_starts(group_bounds(self.groups))))
            self.tracker.add(stream, data)

    def rejoin(self) -> None:
        """Ends a track here: old and new rows are one, and no other slot has them.

        What the operator makes of rows was not made of these, so it is a gap.
        """
        ranges = self.tracker.ranges
        self._widen((ranges,) * len(self.made))
        for stream, layers in enumerate(self.tracker.taken()):
            self._layers[stream] += cut_layers(layers, ranges)

    def delete(self, chosen: Collection[int]) -> None:
        """Lets go of groups that another slot serves."""
        self.tracker.taken()
        _, self._generations = taken_out(self._generations, set(chosen), self.groups)
        self._cut_out(chosen)
        self._gaps = gaps_outside(self._gaps, group_ranges(chosen, self.groups))
        self._known = self._known.only(set(range(self.groups)) - set(chosen))
        self.news.forget(chosen)
        self.pending -= set(chosen)
        self.moved = True

    @property
    def parked_bytes(self) -> int:
        """Bytes of rows that wait for their groups."""
        stacks = [part.streams for part in self._parked]
        return sum(self._shelf.totals(stacks)[1])

    def next_manifest(self, selectivity: dict[str, tuple[float, float]], calm: int) -> Manifest:
        """The manifest of this version."""
        self.seal()
        moving = [part.streams for part in self._departures]
        moving += [part.streams for part in self._parked]
        moving += [self.tracker.track.streams] if self.tracker.track else []
        rows, sizes = self._shelf.totals([self._layers, *moving])
        frozen = [g for part in self._departures for g in part.generations]
        disk_rows, disk_bytes = self._shelf.totals(
            [g.streams for g in (*self._generations, *frozen)]
        )
        return Manifest(
            self.version,
            self.manifest.slot,
            tuple(self._layers),
            groups=self.table(),
            selectivity=selectivity,
            generations=tuple(self._generations),
            departures=self._departures,
            parked=self._parked,
            made=self.made,
            gaps=self._gaps,
            spool=self.spooler.spool(),
            track=self.tracker.track,
            calm=calm,
            state_rows=rows,
            state_bytes=sizes,
            disk_rows=disk_rows,
            disk_bytes=disk_bytes,
        )

    # How

    def _widen(self, gaps: Gaps) -> None:
        """Makes the gaps of memory as wide as these, too: the made rows in them go."""
        self._gaps = all_gaps([self._gaps, gaps])
        for at, ranges in enumerate(gaps, self.inputs):
            if ranges:
                _, self._layers[at] = self._shelf.parted(at, self._layers[at], ranges)

    def _bound(self, stream: int, watermark_us: int | None) -> int | None:
        """Rows up to this time find no partner any more."""
        window = self.layouts[stream].window_us
        return None if window is None or watermark_us is None else watermark_us - window

    def _file_bytes(self) -> int:
        """Bytes of the files that memory is named in, with the rows that were cut out of them."""
        runs = {p.run.name: p.run for layers in self._layers for p in slices(layers)}
        return sum(run.size_bytes for run in runs.values())

    def _wasted_bytes(self, stream: int, layer: Layer) -> int:
        """What rows take in the layer's files that were cut out of it."""
        runs = {piece.run.name: piece.run for piece in layer.slices}
        left = sum(s.rows for s in self._shelf.opened(stream, [layer]))
        total = sum(run.rows for run in runs.values())
        return sum(run.size_bytes for run in runs.values()) * (total - left) // max(total, 1)

    def _all_generations(self) -> list[Generation]:
        return [*self._generations, self._leaving] if self._leaving else self._generations

    def note_pending(self) -> None:
        """Takes note of groups that have got a part in memory beside one on disk."""
        deferred = np.flatnonzero(self.deferred).tolist()
        if deferred:
            self.pending |= {group for group, rows in self._rows_by_group(deferred) if rows}

    def _groups_in(self, generation: Generation) -> NDArray[np.bool_]:
        """Which groups have rows in a generation; its list may name some whose rows have expired."""
        rows = sum(self._shelf.sizes(stream, x)[0] for stream, x in enumerate(generation.streams))
        return np.asarray(rows, np.int64) > 0

    def _open_into(self, found: list[list[Segment]], streams: Sequence[Sequence[Layer]]) -> None:
        for stream, layers in enumerate(streams):
            found[stream] += _alone(self._shelf.opened(stream, layers))

    def _rows_by_group(self, chosen: Collection[int]) -> list[tuple[int, int]]:
        """Rows in memory of some groups."""
        rows = sum(
            self._shelf.sizes(stream, layers)[0] for stream, layers in enumerate(self._layers)
        )
        return [(group, int(np.asarray(rows)[group])) for group in sorted(chosen)]

    def _cut_out(self, chosen: Collection[int]) -> list[tuple[Layer, ...]]:
        """Takes groups out of memory: for each stream, their layers."""
        ranges = group_ranges(chosen, self.groups)
        taken = []
        for stream, layers in enumerate(self._layers):
            inside, self._layers[stream] = self._shelf.parted(stream, layers, ranges)
            taken.append(inside)
        return taken

    def _left(
        self, stream: int, layers: Sequence[Layer], bound: int, kept: Sequence[HashRange]
    ) -> tuple[Layer, ...]:
        return finish_merges(self._without_over(stream, layers, bound, kept))

    def _without_over(
        self, stream: int, layers: Sequence[Layer], bound: int, kept: Sequence[HashRange]
    ) -> tuple[Layer, ...]:
        result = []
        for layer in layers:
            left: list[Slice] = []
            for piece in layer.slices:
                if not _over(piece, bound):
                    left.append(piece)
                    continue
                saved = [part for within in kept if (part := piece.cut(within))]
                lost = self._shelf.segment(stream, piece).rows
                self.expired_rows += lost - sum(self._shelf.segment(stream, p).rows for p in saved)
                left += saved
            result.append(replace(layer, slices=tuple(left)))
        return tuple(result)

    def _level_for(self, stream: int, layer: Layer) -> int:
        """The level of the least layer that is as large, so that merging keeps its proportions."""
        rows = _described_rows(layer)
        others = self._layers[stream]
        larger = [x.level for x in others if _described_rows(x) >= rows]
        return min(larger, default=max((x.level for x in others), default=0))


def _alone(segments: Sequence[Segment]) -> list[Segment]:
    """Segments as runs of their own, so that an index is made of their rows only."""
    return [Segment(s.data.part(s.begin, s.end), 0, s.rows, s.range) for s in segments if s.rows]


def _described_rows(layer: Layer) -> int:
    return sum(piece.run.rows for piece in layer.slices)


def _over(piece: Slice, bound: int) -> bool:
    return piece.run.max_time is not None and piece.run.max_time <= bound
