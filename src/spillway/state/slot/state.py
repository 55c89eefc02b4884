"""The state of one slot during one batch: opened from a manifest, written as the next one.

An operator sees state only through `SlotState`: segments to probe, new rows, expiry, compaction,
moves of groups, and a new manifest at the end. `memory` holds the state in memory; `parts` spills
groups and loads them back. No file changes: new runs have names unique to this attempt, so two
attempts at one batch never conflict.

The results of a batch do not depend on when groups spill: until the batch ends, the slot probes
them on disk, and their new rows follow. So all attempts give the same results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spillway.ids import Version
from spillway.metrics.counts import Counts
from spillway.metrics.groups import GroupNews, GroupTable
from spillway.routing.groups import group_bounds
from spillway.routing.routing import HashRange, group_ranges
from spillway.state.layout.compactor import Compactor
from spillway.state.layout.expiry import Expiry, bound_of
from spillway.state.layout.gaps import Gaps, all_gaps, gaps_inside, gaps_outside
from spillway.state.layout.generations import cut_layers
from spillway.state.layout.layers import Layer
from spillway.state.layout.moving import Departure, Parked, of_move
from spillway.state.layout.shelf import Shelf, StreamLayout
from spillway.state.manifest.combining import part_manifest
from spillway.state.manifest.manifest import Manifest
from spillway.state.manifest.matching import arranged
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.runs.store import Store
from spillway.state.slot.decided import Decided
from spillway.state.slot.due import DueRows
from spillway.state.slot.memory import Memory
from spillway.state.slot.parts import Parts
from spillway.state.slot.spool import Spooler
from spillway.state.slot.staging import Staging
from spillway.state.slot.tracks import Tracker


class SlotState:
    """The state of one slot, while a batch changes it."""

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
        self.manifest = manifest = arranged(manifest, self.made)
        self.groups = groups
        self.version = version
        self.now_s = now_s
        self.news = GroupNews.none(version, groups, now_s)
        self.delta_rows = [0] * len(layouts)
        self.expired_rows = 0
        #: Marks the groups that keep expired rows, because some of their rows wait.
        self.withheld = np.zeros(groups, np.bool_)
        #: For final streams, the hashes of groups that keep expired rows.
        self._keeping: dict[int, tuple[HashRange, ...]] = {}
        #: Rows that merging has rewritten.
        self.merged_rows = 0
        #: Runs that came with groups from another slot.
        self.arrived: set[str] = set()
        self._shelf = Shelf(
            store,
            layouts,
            slot=manifest.slot,
            groups=groups,
            version=version,
            attempt=attempt,
            named=manifest.slices(),
        )
        #: Streams whose operator gives results when rows expire.
        self.final = tuple(at for at, layout in enumerate(layouts) if layout.final)
        self.inputs = self._shelf.inputs
        #: Rows whose results the operator produces when the batch is complete.
        self.staging = Staging(self._shelf)
        #: Rows that only look for partners here, in this batch.
        self.visiting = Staging(self._shelf)
        #: Rows that wait for a later batch.
        self.spooler = Spooler(self._shelf, manifest.spool, now_s)
        #: Groups that another slot also serves, starting with their new rows.
        self.tracker = Tracker(self._shelf, manifest.track)
        #: State in memory, and the parts of groups in memory and on disk.
        self.memory = Memory(self._shelf, manifest.streams, manifest.gaps)
        self.parts = Parts(
            self._shelf, self.memory, manifest.generations, manifest.groups, self.news
        )
        self._departures: tuple[Departure, ...] = manifest.departures
        self._parked: tuple[Parked, ...] = manifest.parked
        #: Whether groups have come or gone, so that the manifest's table is out of date.
        self.moved = False
        known = manifest.groups
        self._learn(known if len(known) else GroupTable.empty(groups, len(layouts)))
        self.decided = Decided(self._shelf, self._known)

    def _learn(self, table: GroupTable) -> None:
        """Takes the statistics of the groups, which this batch adds to."""
        self._known = table
        self._shelf.final_us = table.final_us

    # Contents

    def segments(self, stream: int) -> list[Segment]:
        """Returns all segments that new rows probe: memory, and what this batch spilled."""
        return self.parts.probed(stream)

    def everything(self, stream: int) -> list[Segment]:
        """Returns all rows of the stream in this slot: in memory, on disk, leaving or waiting."""
        stacks = self.parts.stacks()
        for part in self._departures:
            stacks += [part.streams, *(generation.streams for generation in part.generations)]
        stacks += [part.streams for part in self._parked] + [self.spooler.streams]
        found = [self._shelf.open(stream, stack[stream]) for stack in stacks]
        return [segment for some in found for segment in some if segment.rows]

    def held_bytes(self) -> int:
        """Returns the exact bytes of the slot's rows in memory: probed, leaving and waiting."""
        return sum(self._shelf.totals([self.memory.layers, *self._moving()], "memory")[1])

    @property
    def demoted_bytes(self) -> int:
        """The bytes of groups that should be in memory and are not, because they move."""
        tracked = [self.tracker.track.streams] if self.tracker.track else []
        leaving = [part.streams for part in self._departures]
        stacks = [self.memory.layers, *leaving, *tracked]
        return sum(self._shelf.totals(stacks, "disk")[1])

    @property
    def leaving_bytes(self) -> int:
        """The bytes in memory of groups that are leaving."""
        leaving = [part.streams for part in self._departures]
        return sum(self._shelf.totals(leaving, "memory")[1])

    def _moving(self) -> list[Sequence[tuple[Layer, ...]]]:
        """Returns the stacks of layers that are apart from memory because groups move."""
        moving: list[Sequence[tuple[Layer, ...]]] = [part.streams for part in self._departures]
        moving += [part.streams for part in self._parked]
        return [*moving, self.tracker.track.streams] if self.tracker.track else moving

    def demote(self, pinned: Collection[int]) -> None:
        """Takes rows that cannot spill out of memory, without a change to what the slot probes.

        These are the groups that two slots serve, and those that leave in this batch. The files of
        those that left earlier stay: they may be on their way.
        """
        waiting = self.parts.deferred
        self.memory.demote(pinned, waiting)
        self.tracker.demote()
        known = {part.move for part in self.manifest.departures}
        self._departures = tuple(
            part if part.move in known else self._demote_departure(part, waiting)
            for part in self._departures
        )

    def _demote_departure(self, part: Departure, waiting: NDArray[np.bool_]) -> Departure:
        streams = tuple(
            self._shelf.rewrite(stream, layers, part.groups, tier="disk", waiting=waiting)
            for stream, layers in enumerate(part.streams)
        )
        return replace(part, streams=streams)

    def table(self) -> GroupTable:
        """Returns the current statistics of the groups."""
        table = self._known.after(self.parts.sizes(), self.news)
        return self.decided.in_table(table, self._departed)

    @property
    def _departed(self) -> set[int]:
        return {group for part in self._departures for group in part.groups}

    @property
    def written(self) -> set[str]:
        """Every run this attempt has written, including those it has merged away."""
        return self._shelf.written

    @property
    def layer_counts(self) -> tuple[int, ...]:
        """The layers per stream: how many places a probe looks into."""
        return tuple(len(layers) for layers in self.memory.layers)

    @property
    def gaps(self) -> Gaps:
        """Returns, for each made stream, where it is missing in what new rows probe."""
        return self.parts.gaps

    # Changes of a batch

    def add(self, stream: int, data: RunData) -> None:
        """Adds the sorted rows of the batch as a new layer."""
        if data.rows:
            self.add_made(stream, data)

    def add_made(self, stream: int, data: RunData) -> list[Segment]:
        """Adds sorted rows that the operator made from rows of the batch, and opens them."""
        self.news.add_rows(np.diff(data.group_starts(group_bounds(self.groups))))
        return self.keep(stream, data)

    def keep(self, stream: int, data: RunData) -> list[Segment]:
        """Adds sorted rows made from rows that are already here, and opens them."""
        self.delta_rows[stream] += data.rows
        return self.memory.add(stream, Layer(0, self._shelf.write_all(stream, data.batch)))

    def expire(self, watermark_us: int | None, staying: Collection[int] = ()) -> None:
        """Drops every slice whose rows can find no partner at or after the watermark.

        Groups that miss results keep their rows until cleanup. Groups with staged or spooled rows
        keep theirs until the slot has processed these. Groups in `staying` keep theirs too.
        """
        kept = group_ranges(self._unfinished | set(staying), self.groups)
        for stream, layout in enumerate(self.layouts):
            bound = bound_of(layout, watermark_us)
            if bound is None:
                continue
            mine = self._keeping.get(stream, ()) if layout.final else kept
            expiry = Expiry(self._shelf, stream, bound, mine)
            self.memory.layers[stream] = expiry.expire_probed(self.memory.layers[stream])
            self.tracker.expire(stream, expiry.expire_probed)
            self.parts.expire(stream, expiry.expire_frozen)
            self.expired_rows += 0 if layout.final else expiry.rows
        self.parts.drop_empty()

    @property
    def _unfinished(self) -> set[int]:
        """The groups that miss results, or have rows that the slot has not processed yet."""
        self.parts.note_pending()
        waiting = np.flatnonzero(self.staging.groups | self.spooler.groups).tolist()
        return self.parts.pending | set(waiting)

    def decide(
        self, stream: int, watermark_us: int
    ) -> Iterator[tuple[Segment, list[list[Segment]]]]:
        """Yields the rows of a stream that are decided up to a watermark, with those of their part."""
        stacks = self.parts.stacks()
        return self.decided.with_parts(stacks, stream, watermark_us, self.undecidable)

    @property
    def undecidable(self) -> set[int]:
        """The groups that cannot decide now."""
        return self._unfinished | self._departed

    def due(self, stream: int, watermark_us: int | None, silent: Collection[int]) -> DueRows | None:
        """Returns the rows of a final stream that expire at the watermark; None: no row can.

        Another slot gives the results of the groups in `silent`.
        """
        bound = bound_of(self.layouts[stream], watermark_us)
        if bound is None:
            return None
        found = self.parts.due(stream, bound, self.staging.groups | self.spooler.groups, silent)
        self.withheld |= found.withheld
        return found

    def finish(self, due: DueRows) -> None:
        """Records that rows which were due have given their results."""
        self._learn(replace(self._known, final_us=due.final_us))
        self._keeping[due.stream] = due.keeping

    def compact(self, watermark_us: int | None) -> None:
        """Does the merging work of this batch."""
        self.merged_rows += self.spooler.compact()
        waiting = self.parts.deferred
        self.parts.note_pending()
        # Keep all rows of groups that miss results or have waiting rows, or that could not decide.
        waits = bool(self.spooler.groups.any()) or self.decided.left_out
        needed = bool(self.parts.pending) or waits

        def merge(stream: int, layers: tuple[Layer, ...], new_rows: int) -> tuple[Layer, ...]:
            # The shelf drops rows of final streams that are gone.
            keeps = needed or self.layouts[stream].final
            bound = None if keeps else bound_of(self.layouts[stream], watermark_us)
            merging = Compactor(self._shelf, stream, layers, bound, waiting)
            merging.run(new_rows)
            self.expired_rows += merging.expired_rows
            self.merged_rows += merging.merged_rows
            return merging.layers

        for stream, layers in enumerate(self.memory.layers):
            self.memory.layers[stream] = merge(stream, layers, self.delta_rows[stream])
        self.tracker.compact(merge)

    # Moves

    def depart(self, move: int, chosen: Collection[int]) -> None:
        """Removes groups from everything that is probed; their rows no longer change."""
        frozen = self.parts.take_out(chosen)
        groups = tuple(sorted(chosen))
        streams = tuple(self.memory.cut_out(groups))
        sizes = tuple(
            tuple(self._shelf.sizes(stream, layers)[1][list(groups)].tolist())
            for stream, layers in enumerate(streams)
        )
        ranges = group_ranges(groups, self.groups)
        gaps = gaps_inside(self.memory.gaps, ranges)
        self._departures += (
            Departure(move, groups, streams, sizes, tuple(frozen), self.made, gaps),
        )
        self.memory.gaps = gaps_outside(self.memory.gaps, ranges)
        self.moved = True

    def park(self, move: int, stream: int, data: RunData) -> None:
        """Keeps rows for groups in transit, as they arrive."""
        if data.rows == 0:
            return
        known = of_move(self._parked, move) or Parked(move, ((),) * self.inputs)
        written = self._shelf.write_all(stream, data.batch, tier="disk")
        size = data.bytes_in(0, data.rows)
        more = known.with_layer(stream, Layer(0, written), size)
        self._parked = (*(part for part in self._parked if part.move != move), more)

    def install(self, part: Manifest) -> None:
        """Takes over groups, with all that they have; made streams that are not here become gaps."""
        came = set(part.runs())
        self._shelf.expect(part.slices())
        part = arranged(part, self.made)
        ranges = group_ranges(np.flatnonzero(part.groups.here).tolist(), self.groups)
        self.memory.gaps = all_gaps([gaps_outside(self.memory.gaps, ranges), part.gaps])
        for stream, layers in enumerate(part.streams):
            self.memory.add_groups(stream, layers)
        self.parts.add_groups(part.generations)
        self.arrived |= came
        self._learn(self._known.merged(part.groups))
        self.decided.take_over(part.groups)
        self.parts.pending |= self.parts.missing_in(self.table())
        self.moved = True

    def take_back(self, move: int) -> None:
        """Undoes `depart`."""
        part = of_move(self._departures, move)
        if part is not None:
            table = self._known.only(part.groups)
            self.leave(move)
            self.install(part_manifest(self.manifest.slot, part, part.streams, table))

    def leave(self, move: int) -> None:
        """Drops what a move has here: groups that left, and parked rows."""
        part = of_move(self._departures, move)
        if part is not None:
            self._learn(self._known.only(set(range(self.groups)) - set(part.groups)))
        self._departures = tuple(one for one in self._departures if one.move != move)
        self._parked = tuple(one for one in self._parked if one.move != move)

    def begin_track(self, move: int, chosen: Collection[int]) -> None:
        """Begins a track: another slot also gets the groups' new rows, and rows here are old."""
        spooled = self.spooler.streams
        old = [(self.memory.layers[stream], spooled[stream]) for stream in range(self.inputs)]
        self.tracker.begin(move, chosen, old)

    @property
    def tracked(self) -> tuple[int, ...]:
        """The groups that another slot also serves."""
        return self.tracker.track.groups if self.tracker.track else ()

    def follow(self, stream: int, data: RunData) -> None:
        """Keeps new rows of groups that another slot also serves, apart from the old ones."""
        if data.rows:
            self.follow_made(stream, data)

    def follow_made(self, stream: int, data: RunData) -> list[Segment]:
        """Keeps sorted rows that the operator made only from new rows, and opens them."""
        self.news.add_rows(np.diff(data.group_starts(group_bounds(self.groups))))
        return self.tracker.add(stream, data)

    def rejoin(self) -> None:
        """Ends a track here: old and new rows merge, and no other slot has them."""
        ranges = self.tracker.ranges
        for stream, layers in enumerate(self.tracker.end_track()):
            self.memory.layers[stream] += cut_layers(layers, ranges)

    def delete(self, chosen: Collection[int]) -> None:
        """Drops groups that another slot serves."""
        self.tracker.end_track()
        self.parts.take_out(chosen)
        self.memory.cut_out(chosen)
        self.memory.gaps = gaps_outside(self.memory.gaps, group_ranges(chosen, self.groups))
        self._learn(self._known.only(set(range(self.groups)) - set(chosen)))
        self.news.forget(chosen)
        self.moved = True

    @property
    def parked_bytes(self) -> int:
        """The bytes of rows that wait for their groups."""
        return sum(part.bytes for part in self._parked)

    def next_manifest(self, selectivity: Counts, calm: int) -> Manifest:
        """Returns the manifest of this version."""
        self.parts.seal()
        rows, sizes = self._shelf.totals([self.memory.layers, *self._moving()], "memory")
        frozen = [g for part in self._departures for g in part.generations]
        disk_rows, disk_bytes = self._shelf.totals(
            [g.streams for g in (*self.parts.generations, *frozen)]
        )
        return Manifest(
            self.version,
            self.manifest.slot,
            tuple(self.memory.layers),
            groups=self.table(),
            selectivity=selectivity,
            generations=tuple(self.parts.generations),
            departures=self._departures,
            parked=self._parked,
            made=self.made,
            gaps=self.memory.gaps,
            spool=self.spooler.spool(),
            track=self.tracker.track,
            calm=calm,
            state_rows=rows,
            state_bytes=sizes,
            disk_rows=disk_rows,
            disk_bytes=disk_bytes,
        )
