"""The runs of one slot task: opens them in place, and writes new ones under unique names.

All that a slot does to its state is read segments of runs and write new runs. The shelf knows the
store, the layouts of the streams, and the runs that this attempt has written. It does not know what
runs mean: the manifest and the slot state do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.ids import SlotId, Version
from spillway.routing.groups import group_bounds, group_of
from spillway.routing.routing import HashRange, group_ranges, outside
from spillway.state.layout.compaction import finish_merges
from spillway.state.layout.generations import cut_layers
from spillway.state.layout.layers import Layer
from spillway.state.runs.merging import WHOLE, Segment, together
from spillway.state.runs.portions import in_turns
from spillway.state.runs.run import RunData, Slice, as_numpy
from spillway.state.runs.store import Store

#: Bytes per run when groups move to or from disk.
MOVE_BYTES = 32 << 20
#: Bytes of new rows that also stay in the process, so that the slot need not open them again.
FRESH_BYTES = 64 << 20

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
    #: How long a row can find partners, in microseconds of event time; None: for ever.
    window_us: int | None = None
    #: Combines rows in a merge; None: the merge leaves them as they are.
    combine: Combine | None = None
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
    ) -> None:
        self.layouts = tuple(layouts)
        #: The number of input streams; made streams come after them.
        self.inputs = sum(not layout.made for layout in layouts)
        self.groups = groups
        #: Every run this attempt has written, including those it has merged away.
        self.written: set[str] = set()
        self._store = store
        self._slot = slot
        self._version = version
        self._attempt = attempt
        self._fresh: dict[str, RunData] = {}
        self._fresh_bytes = 0

    def open(self, stream: int, layers: Sequence[Layer]) -> list[Segment]:
        """Opens the slices of some layers."""
        return [self.segment(stream, piece) for piece in slices(layers)]

    def segment(self, stream: int, piece: Slice) -> Segment:
        """Opens one slice."""
        data = self._fresh.get(piece.run.name)
        if data is None:
            data = self._store.open(piece.run, self.layouts[stream].time_column)
        return Segment(data, *data.rows_in(piece.range), piece.range)

    def sizes(
        self, stream: int, layers: Sequence[Layer]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the rows and bytes of each group in some layers."""
        bounds = group_bounds(self.groups)
        rows, sizes = np.zeros(self.groups, np.int64), np.zeros(self.groups, np.int64)
        for s in self.open(stream, layers):
            more = s.data.group_sizes(bounds, s.begin, s.end)
            rows += more[0]
            sizes += more[1]
        return rows, sizes

    def totals(
        self, stacks: Sequence[Sequence[Sequence[Layer]]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the rows and bytes of each stream in some stacks of layers."""
        rows, sizes = [], []
        for stream in range(len(self.layouts)):
            mine = [stack[stream] for stack in stacks if stream < len(stack)]
            found = [s for layers in mine for s in self.open(stream, layers)]
            rows.append(sum(s.rows for s in found))
            sizes.append(sum(s.bytes for s in found))
        return tuple(rows), tuple(sizes)

    def parted(
        self, stream: int, layers: Sequence[Layer], ranges: Sequence[HashRange]
    ) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """Splits layers into what is inside some ranges (ascending, disjoint) and what is outside.

        It no longer names a run without rows, so that its file can go.
        """
        rest = outside(ranges)
        cuts = ((layer, layer.cut(rest)) for layer in layers)
        left = [replace(layer, slices=cut.slices if cut else ()) for layer, cut in cuts]
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

    def merged(
        self, stream: int, parts: Sequence[pa.RecordBatch], waiting: NDArray[np.bool_] | None
    ) -> pa.RecordBatch:
        """Merges rows of several runs into one sorted batch, combined as the stream's layout says.

        `waiting` marks the groups whose rows still wait for results.
        """
        rows, order = together(parts)
        combine = self.layouts[stream].combine
        if combine is None or rows.num_rows == 0:
            return rows.take(pa.array(order))
        if waiting is None or not waiting.any():
            return combine(rows, order, None)
        groups = group_of(as_numpy(rows.column(0), np.uint32), self.groups)
        return combine(rows, order, waiting[groups])

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
        slices = []
        for few, _ in in_turns(ordered, sizes, MOVE_BYTES):
            ranges = group_ranges(few, self.groups)
            found = self.open(stream, cut_layers(layers, ranges))
            if rows := [s.batch() for s in found if s.rows]:
                whole = HashRange(ranges[0].lo, ranges[-1].hi)
                kept = self.merged(stream, rows, waiting)
                slices.append(self.write(stream, kept, whole, tier))
        return (Layer(0, tuple(slices)),) if slices else ()


def slices(layers: Sequence[Layer]) -> list[Slice]:
    """Returns the slices of layers, in order."""
    return [piece for layer in layers for piece in layer.slices]
