"""The state of one slot during one batch: opened from a manifest, written back as the next one.

`SlotState` is the only way an operator sees state. It offers segments to probe, takes the sorted rows
of the batch, expires, compacts, lets groups come and go, and ends in a new manifest; what is in memory
is `memory`, and what moves groups out of it and back is `parts`. It changes no file: everything it makes
is a new run with a name unique to this attempt, so two attempts at the same batch never meet.

What a batch gives does not depend on when in it groups leave memory: until the batch ends they are
probed where they went, and the rows that come for them follow. So two attempts that spill at different
rows, because the exchange brought these in another order, give the same results.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from spillway.ids import Version
from spillway.metrics.counts import Counts
from spillway.metrics.groups import GroupNews, GroupTable
from spillway.routing.groups import group_bounds
from spillway.routing.routing import group_ranges
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
from spillway.state.slot.memory import Memory
from spillway.state.slot.parts import Parts
from spillway.state.slot.spool import Spooler
from spillway.state.slot.staging import Staging
from spillway.state.slot.tracks import Tracker


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
        #: Rows that merging has rewritten.
        self.merged_rows = 0
        #: Runs that came with groups from another slot.
        self.arrived: set[str] = set()
        self._shelf = Shelf(
            store, layouts, slot=manifest.slot, groups=groups, version=version, attempt=attempt
        )
        self.inputs = self._shelf.inputs
        #: Rows whose results are made when the batch is whole.
        self.staging = Staging(self._shelf)
        #: Rows that only look for partners here, in this batch.
        self.visiting = Staging(self._shelf)
        #: Rows that wait for a later batch.
        self.spooler = Spooler(self._shelf, manifest.spool, now_s)
        #: Groups that another slot serves as well, from their new rows on.
        self.tracker = Tracker(self._shelf, manifest.track)
        #: What is in memory, and what of it and on disk belongs together.
        self.memory = Memory(self._shelf, manifest.streams, manifest.gaps)
        self.parts = Parts(
            self._shelf, self.memory, manifest.generations, manifest.groups, self.news
        )
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
        return self.parts.probed(stream)

    def everything(self, stream: int) -> list[Segment]:
        """All rows of the stream that the slot names: in memory, on disk, leaving, or waiting."""
        stacks = self.parts.stacks()
        for part in self._departures:
            stacks += [part.streams, *(generation.streams for generation in part.generations)]
        stacks += [part.streams for part in self._parked] + [self.spooler.streams]
        found = [self._shelf.opened(stream, stack[stream]) for stack in stacks]
        return [segment for some in found for segment in some if segment.rows]

    def table(self) -> GroupTable:
        """The statistics of the groups as of now."""
        return self._known.after(self.parts.sizes(), self.news)

    @property
    def written(self) -> set[str]:
        """Every run this attempt has written, also those it has merged away again."""
        return self._shelf.written

    @property
    def layer_counts(self) -> tuple[int, ...]:
        """Layers per stream, which is what a probe has to look into."""
        return tuple(len(layers) for layers in self.memory.layers)

    @property
    def gaps(self) -> Gaps:
        """For each made stream, where it is not there in what new rows meet."""
        return self.parts.gaps

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
        self.delta_rows[stream] += data.rows
        return self.memory.add(stream, Layer(0, (self._shelf.write(stream, data.batch),)))

    def expire(self, watermark_us: int | None) -> None:
        """Lets go of every slice whose rows can find no partner at or after the watermark.

        The groups that miss results keep theirs until they are cleaned up, and those with staged
        or spooled rows until these have been processed.
        """
        self.parts.note_pending()
        waiting = np.flatnonzero(self.staging.groups | self.spooler.groups).tolist()
        kept = group_ranges(self.parts.pending | set(waiting), self.groups)
        for stream, layout in enumerate(self.layouts):
            bound = bound_of(layout, watermark_us)
            if bound is None:
                continue
            expiry = Expiry(self._shelf, stream, bound, kept)
            self.memory.layers[stream] = expiry.expire_probed(self.memory.layers[stream])
            self.tracker.expire(stream, expiry.expire_probed)
            self.parts.expire(stream, expiry.expire_frozen)
            self.expired_rows += expiry.rows
        self.parts.drop_empty()

    def compact(self, watermark_us: int | None) -> None:
        """Does this batch's share of merging."""
        self.merged_rows += self.spooler.compact()
        waiting = self.parts.deferred
        self.parts.note_pending()
        # Of groups that miss results, or whose rows wait, all rows are kept.
        needed = bool(self.parts.pending) or bool(self.spooler.groups.any())

        def merged(stream: int, layers: tuple[Layer, ...], new_rows: int) -> tuple[Layer, ...]:
            bound = None if needed else bound_of(self.layouts[stream], watermark_us)
            merging = Compactor(self._shelf, stream, layers, bound, waiting)
            merging.run(new_rows)
            self.expired_rows += merging.expired_rows
            self.merged_rows += merging.merged_rows
            return merging.layers

        for stream, layers in enumerate(self.memory.layers):
            self.memory.layers[stream] = merged(stream, layers, self.delta_rows[stream])
        self.tracker.compact(merged)

    # What moves

    def depart(self, move: int, chosen: Collection[int]) -> None:
        """Cuts groups out of everything that is probed; their rows stay as they are from now on."""
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
        self.memory.gaps = all_gaps([gaps_outside(self.memory.gaps, ranges), part.gaps])
        for stream, layers in enumerate(part.streams):
            self.memory.add_groups(stream, layers)
        self.parts.add_groups(part.generations)
        self.arrived |= came
        self._known = self._known.merged(part.groups)
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
        """Lets go of what a move has here: groups that left, and rows that were parked."""
        part = of_move(self._departures, move)
        if part is not None:
            self._known = self._known.only(set(range(self.groups)) - set(part.groups))
        self._departures = tuple(one for one in self._departures if one.move != move)
        self._parked = tuple(one for one in self._parked if one.move != move)

    def begin_track(self, move: int, chosen: Collection[int]) -> None:
        """From now on another slot gets the new rows of groups as well; what is here is old."""
        spooled = self.spooler.streams
        old = [(self.memory.layers[stream], spooled[stream]) for stream in range(self.inputs)]
        self.tracker.begin(move, chosen, old)

    @property
    def tracked(self) -> tuple[int, ...]:
        """The groups that another slot serves as well."""
        return self.tracker.track.groups if self.tracker.track else ()

    def follow(self, stream: int, data: RunData) -> None:
        """Keeps new rows of groups that another slot has as well, apart from the old ones."""
        if data.rows:
            self.follow_made(stream, data)

    def follow_made(self, stream: int, data: RunData) -> Segment:
        """Keeps sorted rows that the operator has made of new rows alone, and opens them."""
        self.news.took(np.diff(data.group_starts(group_bounds(self.groups))))
        return self.tracker.add(stream, data)

    def rejoin(self) -> None:
        """Ends a track here: old and new rows are one, and no other slot has them."""
        ranges = self.tracker.ranges
        for stream, layers in enumerate(self.tracker.end_track()):
            self.memory.layers[stream] += cut_layers(layers, ranges)

    def delete(self, chosen: Collection[int]) -> None:
        """Lets go of groups that another slot serves."""
        self.tracker.end_track()
        self.parts.take_out(chosen)
        self.memory.cut_out(chosen)
        self.memory.gaps = gaps_outside(self.memory.gaps, group_ranges(chosen, self.groups))
        self._known = self._known.only(set(range(self.groups)) - set(chosen))
        self.news.forget(chosen)
        self.moved = True

    @property
    def parked_bytes(self) -> int:
        """Bytes of rows that wait for their groups."""
        stacks = [part.streams for part in self._parked]
        return sum(self._shelf.totals(stacks)[1])

    def next_manifest(self, selectivity: Counts, calm: int) -> Manifest:
        """The manifest of this version."""
        self.parts.seal()
        moving = [part.streams for part in self._departures]
        moving += [part.streams for part in self._parked]
        moving += [self.tracker.track.streams] if self.tracker.track else []
        rows, sizes = self._shelf.totals([self.memory.layers, *moving])
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
