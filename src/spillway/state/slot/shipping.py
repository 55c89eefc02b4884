"""Ships the rows of a departure: parcels at the sender, runs at the receiver.

A *parcel* is some groups of one stream, few enough for one run; a large group becomes several runs.
It travels in pieces of bounded size, each a small Arrow stream that also names the rows of the whole
parcel: the receiver refuses a parcel without all of them. A parcel has no effect until a manifest
names what was received, so it may be sent twice or lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from spillway.routing.routing import HashRange, group_ranges
from spillway.rows.cutting import cut_rows
from spillway.rows.joining import conserve, fit, joined
from spillway.state.layout.generations import cut_layers
from spillway.state.layout.layers import Layer
from spillway.state.layout.moving import Departure
from spillway.state.runs.merging import Segment, merged, ranges_in_order
from spillway.state.runs.portions import in_portions
from spillway.state.runs.run import Run, Slice
from spillway.state.runs.store import Store

#: Bytes of a parcel, which becomes one run; a larger group is a parcel of its own.
PARCEL_BYTES = 16 << 20
#: Bytes of one piece in transit. The JVM is slow with larger ones: 16 MB took 0.5 s in pieces of 4
#: MB, 0.2 s in pieces of 256 KB.
PIECE_BYTES = 256 << 10
#: The key under which a piece has the rows of its parcel.
_ROWS = b"rows"


@dataclass(frozen=True)
class Parcel:
    """Some groups of one stream."""

    stream: int
    layers: tuple[Layer, ...]
    range: HashRange
    bytes: int


def parcels(departure: Departure, groups: int) -> list[Parcel]:
    """Splits a departure into parcels; `groups` is the number of groups of the query."""
    found = []
    for stream, (layers, sizes) in enumerate(zip(departure.streams, departure.sizes, strict=True)):
        for few, size in in_portions(departure.groups, sizes, PARCEL_BYTES):
            ranges = group_ranges(few, groups)
            if size:
                hull = HashRange(ranges[0].lo, ranges[-1].hi)
                found.append(Parcel(stream, cut_layers(layers, ranges), hull, size))
    return found


def pack(parcel: Parcel, time_column: int | None, store: Store) -> Iterator[bytes]:
    """Yields the rows of a parcel, sorted, in pieces."""
    slices = (piece for layer in parcel.layers for piece in layer.slices)
    segments = [_segment(piece, time_column, store) for piece in slices]
    rows = sum(segment.rows for segment in segments)
    sent = 0
    for some in ranges_in_order(segments):
        for batch in merged([segment.batch() for segment in some]):
            for piece in cut_rows(batch, PIECE_BYTES):
                sent += piece.num_rows
                yield _encoded(piece.replace_schema_metadata({_ROWS: str(rows)}))
    conserve("packing groups that move", rows, sent)


def unpack(pieces: Iterable[bytes], name: str, time_column: int | None, store: Store) -> list[Run]:
    """Writes the pieces of a parcel, in their packed order, as one run, or more if it is large.

    The first run has the name; the others have a number in theirs.
    """
    runs: list[Run] = []
    held: list[pa.RecordBatch] = []
    size = expected = 0

    def write() -> None:
        numbered = name.replace(".arrow", f".{len(runs)}.arrow") if runs else name
        runs.append(store.write(numbered, joined(held), time_column, in_memory=True)[0])

    for piece in pieces:
        for batch in pa.ipc.open_stream(piece):
            expected = int(batch.schema.metadata[_ROWS])
            if held and not fit([size, batch.nbytes]):
                write()
                held, size = [], 0
            held.append(batch.replace_schema_metadata(None))
            size += batch.nbytes
    if held:
        write()
    conserve("receiving groups that move", expected, sum(run.rows for run in runs))
    return runs


def laid_out(received: Iterable[tuple[Parcel, Run]], streams: int) -> tuple[tuple[Layer, ...], ...]:
    """Arranges what was received as one layer per stream."""
    slices: list[list[Slice]] = [[] for _ in range(streams)]
    for parcel, run in received:
        slices[parcel.stream].append(Slice(run, parcel.range))
    ordered = (sorted(mine, key=lambda piece: piece.range.lo) for mine in slices)
    return tuple((Layer(0, tuple(mine)),) if mine else () for mine in ordered)


def _segment(piece: Slice, time_column: int | None, store: Store) -> Segment:
    data = store.open(piece.run, time_column)
    return Segment(data, *data.rows_in(piece.range), piece.range)


def _encoded(batch: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())
