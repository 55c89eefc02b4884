"""The state of one slot during one batch: opened from a manifest, written back as the next one.

`SlotState` is the only way an operator sees state. It offers segments to probe, takes the sorted rows
of the batch, expires, compacts, and ends in a new manifest. It changes no file: everything it makes
is a new run with a name unique to this attempt, so two attempts at the same batch never meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.ids import HASH_END, Version
from spillway.kernels.order import order_by_hash
from spillway.routing.groups import group_bounds
from spillway.routing.routing import HashRange
from spillway.state.compaction import begin_merges, finish_merges, fuel_rows, merges
from spillway.state.groups import NEVER, GroupTable, Ints
from spillway.state.manifest import Layer, Manifest
from spillway.state.run import RunData, Slice, as_numpy
from spillway.state.store import Store

#: Bytes that one merge step may hold, whatever the fuel in rows allows.
MERGE_STEP_BYTES = 64 << 20

_WHOLE = HashRange(0, HASH_END)


@dataclass(frozen=True)
class StreamLayout:
    """What the state needs to know of a stream's stored columns."""

    name: str
    #: Position of the event time among the stored columns; None without a window.
    time_column: int | None = None
    #: How long a row can find partners, in microseconds of event time; None: for ever.
    window_us: int | None = None


@dataclass(frozen=True)
class Segment:
    """Rows [begin, end) of an opened run: one slice, ready to be probed."""

    data: RunData
    begin: int
    end: int
    range: HashRange = _WHOLE


class SlotState:
    """One slot's state in the making."""

    def __init__(
        self,
        manifest: Manifest,
        store: Store,
        layouts: Sequence[StreamLayout],
        *,
        version: Version,
        attempt: str,
        memory_bytes: int | None = None,
    ) -> None:
        self.manifest = manifest
        self.layouts = tuple(layouts)
        self.version = version
        self._store = store
        self._attempt = attempt
        self._memory_bytes = memory_bytes
        self._layers: list[tuple[Layer, ...]] = [tuple(layers) for layers in manifest.streams]
        self._fresh: dict[str, RunData] = {}
        self._written = 0
        self._deltas: list[RunData] = []
        self.delta_rows = [0] * len(layouts)
        self.expired_rows = 0

    def segments(self, stream: int) -> list[Segment]:
        """Everything the stream has in state, as of now."""
        return [self._segment(stream, piece) for piece in self._slices(stream)]

    def add(self, stream: int, data: RunData) -> None:
        """Adds the sorted rows of the batch as a new layer."""
        if data.rows == 0:
            return
        piece = self._write(stream, data.batch)
        self._layers[stream] = (*self._layers[stream], Layer(0, (piece,)))
        self._deltas.append(data)
        self.delta_rows[stream] += data.rows

    def expire(self, watermark_us: int | None) -> None:
        """Lets go of every slice whose rows can find no partner at or after the watermark."""
        if watermark_us is None:
            return
        for stream, layout in enumerate(self.layouts):
            if layout.window_us is None:
                continue
            bound = watermark_us - layout.window_us
            kept = []
            for layer in self._layers[stream]:
                alive = tuple(p for p in layer.slices if not _over(p, bound))
                gone = [self._segment(stream, p) for p in layer.slices if _over(p, bound)]
                self.expired_rows += sum(s.end - s.begin for s in gone)
                kept.append(replace(layer, slices=alive))
            self._layers[stream] = finish_merges(kept)

    def compact(self, watermark_us: int | None) -> int:
        """Does this batch's share of merging; returns the rows it rewrote."""
        return sum(
            self._compact_stream(stream, watermark_us) for stream in range(len(self.layouts))
        )

    def sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Exact rows and bytes per stream."""
        rows, sizes = [], []
        for stream in range(len(self.layouts)):
            found = self.segments(stream)
            rows.append(sum(s.end - s.begin for s in found))
            sizes.append(sum(s.data.bytes_in(s.begin, s.end) for s in found))
        return tuple(rows), tuple(sizes)

    def group_sizes(self, groups: int) -> tuple[Ints, Ints]:
        """Exact rows and bytes of each group, over all streams, from the slices alone."""
        bounds = group_bounds(groups)
        rows, sizes = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        for stream in range(len(self.layouts)):
            for s in self.segments(stream):
                more = s.data.group_sizes(bounds, s.begin, s.end)
                rows += more[0]
                sizes += more[1]
        return rows, sizes

    def next_manifest(
        self, groups: int, outputs: Ints, selectivity: dict[str, tuple[float, float]]
    ) -> Manifest:
        """The manifest of this version; `outputs` are what each group produced in it."""
        rows, sizes = self.sizes()
        before = self.manifest.groups if len(self.manifest.groups) else GroupTable.empty(groups)
        inserted = np.where(self._touched(groups), self.version, NEVER)
        table = GroupTable(
            *self.group_sizes(groups),
            before.outputs + outputs,
            np.maximum(before.last_insert, inserted),
        )
        return Manifest(
            self.version,
            self.manifest.slot,
            tuple(self._layers),
            groups=table,
            selectivity=selectivity,
            state_rows=rows,
            state_bytes=sizes,
        )

    @property
    def layer_counts(self) -> tuple[int, ...]:
        """Layers per stream, which is what a probe has to look into."""
        return tuple(len(layers) for layers in self._layers)

    @property
    def written(self) -> set[str]:
        """Every run this attempt has written, also those it has merged away again."""
        return set(self._fresh)

    def _touched(self, groups: int) -> NDArray[np.bool_]:
        """Which groups got a row in this batch."""
        touched = np.zeros(groups, np.bool_)
        for delta in self._deltas:
            touched |= np.diff(delta.group_starts(group_bounds(groups))) > 0
        return touched

    def _slices(self, stream: int) -> Iterator[Slice]:
        return (piece for layer in self._layers[stream] for piece in layer.slices)

    def _segment(self, stream: int, piece: Slice) -> Segment:
        data = self._fresh.get(piece.run.name)
        if data is None:
            data = self._store.open(piece.run, self.layouts[stream].time_column)
        return Segment(data, *data.rows_in(piece.range), piece.range)

    def _write(self, stream: int, batch: pa.RecordBatch, range_: HashRange = _WHOLE) -> Slice:
        name = f"{self.version:09d}-{self.manifest.slot}-{stream}-{self._written}-{self._attempt}"
        self._written += 1
        run, data = self._store.write(
            name + ".arrow",
            batch,
            self.layouts[stream].time_column,
            in_memory=self._memory_bytes is None
            or self._held_in_memory() + batch.nbytes <= self._memory_bytes,
        )
        self._fresh[run.name] = data
        return Slice(run, range_)

    def _held_in_memory(self) -> int:
        runs = {p.run.name: p.run for s in range(len(self.layouts)) for p in self._slices(s)}
        return sum(run.size_bytes for run in runs.values() if run.tier == "memory")

    def _compact_stream(self, stream: int, watermark_us: int | None) -> int:
        window = self.layouts[stream].window_us
        self._layers[stream] = begin_merges(self._layers[stream], window)
        fuel = fuel_rows(self._layers[stream], self.delta_rows[stream])
        done = 0
        for merge in merges(self._layers[stream]):
            # A step takes most of the fuel that is left; the last quarter would make a tiny file.
            while fuel - done > fuel // 4:
                step = self._merge_step(
                    stream, merge.sources, merge.target, fuel - done, watermark_us
                )
                if step == 0:
                    break
                done += step
        self._layers[stream] = finish_merges(self._layers[stream])
        return done

    def _merge_step(
        self,
        stream: int,
        sources: Sequence[int],
        target: int,
        fuel: int,
        watermark_us: int | None,
    ) -> int:
        """Moves the lowest hashes of the sources, about `fuel` rows of them, into the target."""
        layers = list(self._layers[stream])
        pieces = [self._segment(stream, p) for at in sources for p in layers[at].slices]
        pieces = [p for p in pieces if p.begin < p.end]
        if not pieces:
            for at in sources:
                layers[at] = replace(layers[at], slices=())
            self._layers[stream] = tuple(layers)
            return 0
        cut = _cut_for(pieces, fuel)
        low = HashRange(layers[target].slices[-1].range.hi if layers[target].slices else 0, cut)
        taken = [
            s.data.batch.slice(begin, end - begin)
            for s in pieces
            for begin, end in [_below(s, cut)]
            if begin < end
        ]
        merged = self._merged(stream, taken, watermark_us)
        if merged.num_rows:
            piece = self._write(stream, merged, low)
            layers[target] = replace(layers[target], slices=(*layers[target].slices, piece))
        rest = HashRange(cut, HASH_END)
        for at in sources:
            left = tuple(part for p in layers[at].slices if (part := p.cut(rest)))
            layers[at] = replace(layers[at], slices=left if cut < HASH_END else ())
        self._layers[stream] = tuple(layers)
        return sum(batch.num_rows for batch in taken)

    def _merged(
        self, stream: int, taken: Sequence[pa.RecordBatch], watermark_us: int | None
    ) -> pa.RecordBatch:
        table = pa.Table.from_batches(taken).combine_chunks()
        batch = table.to_batches()[0]
        layout = self.layouts[stream]
        if watermark_us is not None and layout.window_us is not None:
            assert layout.time_column is not None
            times = as_numpy(batch.column(1 + layout.time_column), np.int64)
            alive = times > watermark_us - layout.window_us
            if not alive.all():
                self.expired_rows += int((~alive).sum())
                batch = batch.filter(pa.array(alive))
        order = order_by_hash(as_numpy(batch.column(0), np.uint32))
        return batch.take(pa.array(order))


def _over(piece: Slice, bound: int) -> bool:
    return piece.run.max_time is not None and piece.run.max_time <= bound


def _below(segment: Segment, cut: int) -> tuple[int, int]:
    if cut >= HASH_END:
        return segment.begin, segment.end
    end = int(np.searchsorted(segment.data.h, np.uint32(cut)))
    return segment.begin, min(segment.end, max(segment.begin, end))


def _cut_for(pieces: Sequence[Segment], fuel: int) -> int:
    """A hash below which the pieces have nearly `fuel` rows, and at least one row.

    Bisection over the hash domain: it ends after a few steps, since hashes are spread evenly, and is
    right when they are not.
    """
    total = sum(p.end - p.begin for p in pieces)
    width = pieces[0].data.bytes_in(pieces[0].begin, pieces[0].end)
    width //= pieces[0].end - pieces[0].begin
    fuel = max(1, min(fuel, MERGE_STEP_BYTES // max(width, 1)))
    if total <= fuel + fuel // 4:
        return HASH_END
    low, high, below = min(int(p.data.h[p.begin]) for p in pieces), HASH_END, 0
    while high - low > 1:
        cut = (low + high) // 2
        rows = sum(end - begin for begin, end in (_below(p, cut) for p in pieces))
        if rows > fuel:
            high = cut
        elif rows >= fuel - fuel // 4:
            return cut
        else:
            low, below = cut, rows
    # One hash has more rows than the fuel: what is below it goes first, then it goes alone.
    return low if below else high
