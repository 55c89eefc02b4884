"""Partial combinations of a time-sliced join: rows of some streams that match so far.

They travel from slot to slot between visits (slot/visits.py), as rows of one schema:

    _slot int, _source smallint, _manifest string, then one struct per stream

A struct is NULL while its stream is not in the combination. `_source` is the stream whose new row
began the combination. `_slot` is the destination; NULL means every slot with slices to probe.

A row with a `_manifest` is not a combination: the slot sends it to itself, and in the next visit
reads what it stored in the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spillway.operators.input import StreamColumns
from spillway.rows.cutting import Widths
from spillway.state.runs.run import RunData, as_numpy

SLOT, SOURCE, MANIFEST = "_slot", "_source", "_manifest"
#: Columns before those of the streams.
_BEFORE = 3


@dataclass(frozen=True)
class Combinations:
    """Rows of the same streams, begun by the same stream."""

    source: int
    count: int
    #: For each joined stream, its columns.
    columns: Mapping[int, Sequence[pa.Array]]
    #: The largest time so far, and the least t_i + W_i.
    latest: NDArray[np.int64]
    deadline: NDArray[np.int64]

    def slice(self, begin: int, count: int) -> Combinations:
        """Returns some of them."""
        columns = {
            stream: [column.slice(begin, count) for column in mine]
            for stream, mine in self.columns.items()
        }
        some = slice(begin, begin + count)
        return Combinations(self.source, count, columns, self.latest[some], self.deadline[some])

    def widths(self, wanted: Mapping[int, Sequence[int]]) -> Widths:
        """Returns the bytes of single combinations, with some columns of each stream."""
        return Widths([mine[at] for stream, mine in self.columns.items() for at in wanted[stream]])


def combinations(
    source: int, columns: Mapping[int, Sequence[pa.Array]], streams: Sequence[StreamColumns]
) -> Combinations:
    """Builds combinations from columns, with their times."""
    latest = deadline = None
    for stream, mine in columns.items():
        at, window = streams[stream].time, streams[stream].window_us
        assert at is not None
        assert window is not None
        times = as_numpy(mine[at], np.int64)
        latest = times if latest is None else np.maximum(latest, times)
        ends = times + window
        deadline = ends if deadline is None else np.minimum(deadline, ends)
    assert latest is not None
    assert deadline is not None
    return Combinations(source, len(latest), columns, latest, deadline)


def of_rows(source: int, rows: RunData, streams: Sequence[StreamColumns]) -> Combinations:
    """Returns new rows of one stream as combinations of one."""
    columns = rows.payload.columns[: len(streams[source].visible)]
    return combinations(source, {source: columns}, streams)


def of_batch(batch: pa.RecordBatch, streams: Sequence[StreamColumns]) -> Iterator[Combinations]:
    """Reads travelling rows, by the stream that began them; skips the row that names a manifest."""
    sources = as_numpy(batch.column(1), np.int16)
    for source in np.unique(sources).tolist():
        if source < 0:
            continue
        mine = batch if (sources == source).all() else batch.filter(pa.array(sources == source))
        # In one visit, all combinations that one stream began have rows of the same streams.
        columns = {
            at: mine.column(_BEFORE + at).flatten()
            for at in range(len(streams))
            if mine.num_rows and mine.column(_BEFORE + at).null_count == 0
        }
        yield combinations(source, columns, streams)


def schema(streams: Sequence[StreamColumns], types: Sequence[Sequence[pa.DataType]]) -> pa.Schema:
    """Returns the schema of rows that travel between visits."""
    fields = [(SLOT, pa.int32()), (SOURCE, pa.int16()), (MANIFEST, pa.string())]
    return pa.schema(
        [*fields, *((s.name, _struct(s, t)) for s, t in zip(streams, types, strict=True))]
    )


def travelling(
    source: int,
    columns: Mapping[int, Sequence[pa.Array]],
    count: int,
    streams: Sequence[StreamColumns],
    types: Sequence[Sequence[pa.DataType]],
) -> pa.RecordBatch:
    """Returns incomplete combinations as rows that travel to all slots."""
    kinds = schema(streams, types)
    arrays = [
        pa.nulls(count, pa.int32()),
        pa.array(np.full(count, source, np.int16)),
        pa.nulls(count, pa.string()),
    ]
    for at, stream in enumerate(streams):
        if at in columns:
            arrays.append(
                pa.StructArray.from_arrays(columns[at], fields=_fields(stream, types[at]))
            )
        else:
            arrays.append(pa.nulls(count, kinds.field(_BEFORE + at).type))
    return pa.RecordBatch.from_arrays(arrays, schema=kinds)


def complete(
    columns: Mapping[int, Sequence[pa.Array]], streams: Sequence[StreamColumns]
) -> pa.RecordBatch:
    """Returns complete combinations as results: one struct per stream."""
    arrays = [stream.struct(columns[at]) for at, stream in enumerate(streams)]
    return pa.RecordBatch.from_arrays(arrays, names=[stream.name for stream in streams])


def control_row(
    slot: int,
    manifest: str,
    streams: Sequence[StreamColumns],
    types: Sequence[Sequence[pa.DataType]],
) -> pa.RecordBatch:
    """Builds the row by which a slot sends itself the name of its manifest."""
    kinds = schema(streams, types)
    arrays = [pa.array([slot], pa.int32()), pa.array([-1], pa.int16()), pa.array([manifest])]
    arrays += [pa.nulls(1, one.type) for one in list(kinds)[_BEFORE:]]
    return pa.RecordBatch.from_arrays(arrays, schema=kinds)


def manifest_in(batch: pa.RecordBatch) -> str | None:
    """Returns the manifest that a batch names, if any."""
    names = batch.column(2)
    if names.null_count == len(names):
        return None
    return str(pc.drop_null(names)[0].as_py())


def _struct(stream: StreamColumns, types: Sequence[pa.DataType]) -> pa.DataType:
    return pa.struct(_fields(stream, types))


def _fields(stream: StreamColumns, types: Sequence[pa.DataType]) -> list[pa.Field]:
    return [pa.field(name, kind) for name, kind in zip(stream.visible, types, strict=True)]
