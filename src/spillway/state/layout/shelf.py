"""The runs of one slot task: opens them in place, and writes new ones under unique names.

All that a slot does to its state is read segments of runs and write new runs. The shelf knows the
store, the layouts of the streams, and the runs that this attempt has written. It does not know what
runs mean: the manifest and the slot state do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.ids import HASH_END, SlotId, Version
from spillway.routing.groups import group_bounds, group_of
from spillway.routing.routing import HashRange, group_ranges, outside
from spillway.rows import bounds
from spillway.rows.cutting import cut_rows
from spillway.rows.joining import conserve
from spillway.state.layout.compaction import finish_merges
from spillway.state.layout.contents import Contents
from spillway.state.layout.generations import cut_layers
from spillway.state.layout.layers import Layer
from spillway.state.runs.merging import (
    WHOLE,
    Segment,
    below,
    combined,
    cut_for,
    hashes,
    merged,
)
from spillway.state.runs.portions import in_portions
from spillway.state.runs.run import RunData, Slice, as_numpy
from spillway.state.runs.store import Store

#: Bytes per run when groups move to or from disk.
MOVE_BYTES = 32 << 20
#: Bytes of new rows that also stay in the process, so that the slot need not open them again.
FRESH_BYTES = 64 << 20

#: Layers whose sizes the shelf remembers; a batch makes few new ones.
COUNTED_LAYERS = 4096

#: Takes rows of several runs of one part and the order that sorts them by hash; returns the sorted
#: rows to keep. The last argument marks rows that still wait for their results; None: no rows wait.
Combine = Callable[
    [pa.RecordBatch, NDArray[np.int32], NDArray[np.bool_] | None],
    pa.RecordBatch,
]


@dataclass(frozen=True)
class StreamLayout:
    """What the state needs to know about a stream's stored columns."""

    name: str
    #: Position of the event time among the stored columns; None without a window.
    time_column: int | None = None
    #: How long a row can find partners, in microseconds of event time; None: forever.
    window_us: int | None = None
    #: Combines rows in a merge; None: the merge leaves them as they are.
    combine: Combine | None = None
    #: A sum over rows that combining leaves as it is, such as their counts; None: there is none.
    weigh: Callable[[pa.RecordBatch], int] | None = None
    #: Whether the operator makes these rows from other streams (state/layout/gaps.py). Made rows
    #: that arrive together expire at any time within the window, so layers cannot be kept narrow.
    #: Compaction merges them as if there were no window, and drops expired rows.
    made: bool = False
    #: Returns the ranges in which all rows up to a time (second argument) are no newer than another
    #: (first), if the order of rows shows it (routing/slices.py). None: hashes do not depend on
    #: time.
    over: Callable[[int, int], tuple[HashRange, ...]] | None = None
    #: Whether new rows probe all parts of a group, including disk, so that parts miss no result.
    visited: bool = False
    #: How long it takes until the operator decides that a row stays without partners, in
    #: microseconds of event time; None: it never does. Rows stay for `window_us`, which may be
    #: longer, because other rows that are decided later need them.
    decided_after_us: int | None = None
    #: Whether the operator sees rows when they expire (slot/expiring.py). Then rows up to the time
    #: `GroupTable.final_us` of their group are gone, whatever file still has them.
    final: bool = False
    #: The window by which merging keeps layers narrow (state/layout/compaction.py); None: `window_us`.
    narrow_us: int | None = None

    def weight(self, batch: pa.RecordBatch) -> int:
        """Returns what a merge conserves: the number of rows, or what combining leaves of it."""
        if self.combine is None:
            return int(batch.num_rows)
        return self.weigh(batch) if self.weigh is not None else 0


class Shelf:
    """What one attempt reads and writes."""

    def __init__(
        self,
        store: Store,
        layouts: Sequence[StreamLayout],
        *,
        slot: SlotId,
        groups: int,
        version: Version,
        attempt: str,
        named: Iterable[Slice] = (),
    ) -> None:
        """`named` are the slices that the slot has; the shelf reads them only if a file is missing."""
        self.layouts = tuple(layouts)
        #: The number of input streams; made streams come after them.
        self.inputs = sum(not layout.made for layout in layouts)
        self.groups = groups
        #: For each group, the time up to which rows of final streams are gone; None: no row is.
        self.final_us: NDArray[np.int64] | None = None
        #: Every run this attempt has written, including those it has merged away.
        self.written: set[str] = set()
        self._store = store
        self._slot = slot
        self._version = version
        self._attempt = attempt
        self._named = [named]
        self._ranges: dict[str, list[HashRange]] = {}
        self._fresh: dict[str, RunData] = {}
        self._fresh_bytes = 0
        #: What each counted layer holds, by the identity of the layer.
        self._counted: dict[int, Contents] = {}

    @property
    def batches(self) -> int:
        """Counts the batches of the slot; two slots differ, so that they do not do all work together."""
        return self._version + self._slot

    def open(self, stream: int, layers: Sequence[Layer]) -> list[Segment]:
        """Opens the slices of some layers."""
        return [self.segment(stream, piece) for piece in slices(layers)]

    def segment(self, stream: int, piece: Slice) -> Segment:
        """Opens one slice."""
        data = self._fresh.get(piece.run.name)
        if data is None:
            needed = partial(self._needed, piece.run.name)
            data = self._store.open(piece, self.layouts[stream].time_column, needed)
        final_us = self.final_us if self.layouts[stream].final else None
        return Segment(data, *data.rows_in(piece.range), piece.range, final_us)

    def expect(self, named: Iterable[Slice]) -> None:
        """Takes note of more slices that the slot has."""
        self._named.append(named)

    def _needed(self, run: str) -> tuple[HashRange, ...]:
        """Returns the hashes of a run that the slot needs."""
        while self._named:
            for piece in self._named.pop():
                self._ranges.setdefault(piece.run.name, []).append(piece.range)
        return tuple(self._ranges.get(run, ()))

    def sizes(
        self, stream: int, layers: Sequence[Layer]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the rows and bytes of each group in some layers."""
        rows, sizes = np.zeros(self.groups, np.int64), np.zeros(self.groups, np.int64)
        for layer in layers:
            more = self._contents(stream, layer).by_group
            rows += more[0]
            sizes += more[1]
        return rows, sizes

    def totals(
        self, stacks: Sequence[Sequence[Sequence[Layer]]], tier: str = ""
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the rows of each stream in some stacks of layers, and their bytes in a tier.

        Without a tier, it counts the bytes in both.
        """
        rows, sizes = [], []
        for stream in range(len(self.layouts)):
            layers = [layer for stack in stacks if stream < len(stack) for layer in stack[stream]]
            found = [self._contents(stream, layer) for layer in layers]
            rows.append(sum(one.rows for one in found))
            sizes.append(sum(one.bytes_in(tier) for one in found))
        return tuple(rows), tuple(sizes)

    def files(self, stream: int, layers: Sequence[Layer]) -> dict[str, int]:
        """Returns the bytes of the files of some layers, by the name of their run."""
        found: dict[str, int] = {}
        for layer in layers:
            found |= self._contents(stream, layer).files
        return found

    def _contents(self, stream: int, layer: Layer) -> Contents:
        """Returns what a layer holds. Layers do not change, so it counts each of them once."""
        known = self._counted.get(id(layer))
        if known is None:
            segments = self.open(stream, (layer,))
            known = Contents(layer, segments, group_bounds(self.groups))
            if len(self._counted) >= COUNTED_LAYERS:
                self._counted.clear()
            self._counted[id(layer)] = known
        return known

    def parted(
        self, stream: int, layers: Sequence[Layer], ranges: Sequence[HashRange]
    ) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """Splits layers into what is inside some ranges (ascending, disjoint) and what is outside.

        It no longer names a run without rows, so that its file can go.
        """
        rest = outside(ranges)
        parts = ((layer, layer.cut(rest)) for layer in layers)
        left = [replace(layer, slices=part.slices if part else ()) for layer, part in parts]
        return cut_layers(layers, ranges), finish_merges(self.filled(stream, left))

    def filled(self, stream: int, layers: Sequence[Layer]) -> list[Layer]:
        """Returns the layers without empty slices."""
        return [
            replace(layer, slices=tuple(s for s in layer.slices if self.segment(stream, s).rows))
            for layer in layers
        ]

    def write(
        self,
        stream: int,
        batch: pa.RecordBatch,
        range_: HashRange = WHOLE,
        tier: str = "memory",
        *,
        durable: bool = True,
    ) -> Slice:
        """Writes a new run as a slice of a range; durable unless no manifest will name it."""
        number = len(self.written)
        name = f"{self._version:09d}-{self._slot}-{stream}-{number}-{self._attempt}.arrow"
        self.written.add(name)
        time_column = self.layouts[stream].time_column
        run, data = self._store.write(
            name, batch, time_column, in_memory=tier == "memory", durable=durable
        )
        if tier == "memory" and self._fresh_bytes + batch.nbytes <= FRESH_BYTES:
            self._fresh[name] = data
            self._fresh_bytes += batch.nbytes
        return Slice(run, range_)

    def write_all(
        self,
        stream: int,
        batch: pa.RecordBatch,
        range_: HashRange = WHOLE,
        tier: str = "memory",
        *,
        durable: bool = True,
    ) -> tuple[Slice, ...]:
        """Writes sorted rows as slices of a range: more than one if one run cannot hold them."""
        found = cut_rows(batch, bounds.JOINED_BYTES)
        written = self.write_each(stream, found, range_, tier, durable=durable)
        conserve("writing new rows", batch.num_rows, sum(piece.run.rows for piece in written))
        return written

    def write_each(
        self,
        stream: int,
        batches: Iterable[pa.RecordBatch],
        range_: HashRange,
        tier: str,
        *,
        durable: bool = True,
    ) -> tuple[Slice, ...]:
        """Writes batches, which are sorted one after the other, as slices that fill a range.

        Two slices share a hash only if its rows are in two batches.
        """
        found: list[Slice] = []
        given = named = 0
        for batch in batches:
            given += batch.num_rows
            if batch.num_rows:
                h = hashes(batch)
                low = int(h[0]) if found else range_.lo
                part = HashRange(low, int(h[-1]) + 1)
                found.append(self.write(stream, batch, part, tier, durable=durable))
                # Rows outside the range would be in a file without a slice that shows them.
                shown = low <= int(h[0]) and int(h[-1]) < range_.hi
                named += batch.num_rows if shown else 0
        conserve("writing slices", given, named)
        if found:
            found[-1] = Slice(found[-1].run, HashRange(found[-1].range.lo, range_.hi))
        return tuple(found)

    def merged(
        self, stream: int, parts: Sequence[pa.RecordBatch], waiting: NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        """Merges rows of several runs into sorted batches, combined as the stream's layout says.

        `waiting` marks the groups whose rows still wait for results.
        """
        layout = self.layouts[stream]
        parts = self._live(stream, parts)
        before, after = sum(map(layout.weight, parts)), 0
        for batch in self._merged(layout.combine, parts, waiting):
            after += layout.weight(batch)
            yield batch
        conserve("merging rows", before, after)

    def _live(self, stream: int, parts: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
        """Returns the rows that are not gone; only rows of final streams can be."""
        layout, final_us = self.layouts[stream], self.final_us
        if not layout.final or final_us is None or layout.time_column is None:
            return parts
        found = []
        for part in parts:
            times = as_numpy(part.column(1 + layout.time_column), np.int64)
            live = times > final_us[group_of(hashes(part), self.groups)]
            rows = part if live.all() else part.filter(pa.array(live))
            found += [rows] if rows.num_rows else []
        return found

    def _merged(
        self,
        combine: Combine | None,
        parts: Sequence[pa.RecordBatch],
        waiting: NDArray[np.bool_] | None,
    ) -> Iterator[pa.RecordBatch]:
        if not parts:
            return
        if combine is None:
            yield from merged(parts)
            return
        some = waiting is not None and waiting.any()

        def combine_some(rows: pa.RecordBatch, order: NDArray[np.int32]) -> pa.RecordBatch:
            if rows.num_rows == 0:
                return rows
            assert combine is not None
            groups = group_of(hashes(rows), self.groups) if some else None
            return combine(rows, order, waiting[groups] if waiting is not None and some else None)

        yield from combined(parts, combine_some)

    def rewrite(
        self,
        stream: int,
        layers: Sequence[Layer],
        chosen: Collection[int],
        *,
        tier: str,
        waiting: NDArray[np.bool_] | None = None,
    ) -> tuple[Layer, ...]:
        """Rewrites the rows of the layers as one layer of a tier, in runs of bounded size."""
        ordered = sorted(chosen)
        sizes = self.sizes(stream, layers)[1][ordered].tolist()
        written: list[Slice] = []
        for few, _ in in_portions(ordered, sizes, MOVE_BYTES):
            ranges = group_ranges(few, self.groups)
            found = self.open(stream, cut_layers(layers, ranges))
            whole = HashRange(ranges[0].lo, ranges[-1].hi)
            written += self._rewrite(stream, found, whole, tier, waiting)
        return (Layer(0, tuple(written)),) if written else ()

    def _rewrite(
        self,
        stream: int,
        found: Sequence[Segment],
        whole: HashRange,
        tier: str,
        waiting: NDArray[np.bool_] | None,
    ) -> list[Slice]:
        """Rewrites rows in steps: a group alone may have more than a step can hold."""
        written: list[Slice] = []
        left, before, taken = [s for s in found if s.rows], sum(s.rows for s in found), 0
        low = whole.lo
        while left:
            high = min(cut_for(left, HASH_END), whole.hi)
            ends = [below(s, high)[1] for s in left]
            rows = [
                s.data.batch.slice(s.begin, end - s.begin)
                for s, end in zip(left, ends, strict=True)
                if s.begin < end
            ]
            taken += sum(batch.num_rows for batch in rows)
            batches = self.merged(stream, rows, waiting)
            written += self.write_each(stream, batches, HashRange(low, high), tier)
            rest = zip(left, ends, strict=True)
            left = [Segment(s.data, end, s.end, s.range) for s, end in rest if end < s.end]
            low = high
        conserve("rewriting groups", before, taken)
        return written


def slices(layers: Sequence[Layer]) -> list[Slice]:
    """Returns the slices of layers, in order."""
    return [piece for layer in layers for piece in layer.slices]
