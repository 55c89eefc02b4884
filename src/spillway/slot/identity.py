"""Which slot a task is, from the rows that it is given.

A task cannot know it otherwise: a sink that coalesces or unites partitions renumbers the tasks. So every
slot gets at least one row, its *marker*: a row of no stream whose hash is the number of the slot. Rows
of a parallel track come twice; the number of its stream marks the copy (the flag of PLANS 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import numpy as np
import pyarrow as pa

from spillway.ids import SlotId
from spillway.operators.input import AGAIN, MARKER, stream_numbers
from spillway.routing.groups import group_of
from spillway.routing.routing import Routing

#: Offset added to the stream number of a row that also goes to another slot.
COPY = 2 * AGAIN


def find_slot(
    rows: Iterable[pa.RecordBatch], routing: Routing, copies: Mapping[int, int]
) -> tuple[SlotId | None, Iterable[pa.RecordBatch]]:
    """Returns the slot of the rows, from any of them, and the rows without markers.

    Without rows there is no slot. `copies` has the slots of groups whose rows come twice.
    """
    first, whole = _peeked(rows)
    if first is None:
        return None, ()
    return slot_of(first, routing, copies), filter(len, map(unmarked, whole))


def find_visited(
    rows: Iterable[pa.RecordBatch], *, first_visit: bool
) -> tuple[SlotId | None, Iterable[pa.RecordBatch]]:
    """Returns the slot that rows visit, and the rows; the first column of each row names the slot.

    Only rows of the first visit have markers, and lose that column.
    """
    first, whole = _peeked(rows)
    if first is None:
        return None, ()
    slot = SlotId(first.column(0)[0].as_py())
    if not first_visit:
        return slot, whole
    mine = (unmarked(batch.select(batch.schema.names[1:])) for batch in whole)
    return slot, filter(len, mine)


def slot_of(rows: pa.RecordBatch, routing: Routing, copies: Mapping[int, int]) -> SlotId:
    """Returns the slot of the first row."""
    stream, h = (rows.column(at)[0].as_py() for at in (0, 1))
    if stream == MARKER:
        return SlotId(h)
    group = int(group_of(np.array([h], np.int32).view(np.uint32), routing.groups)[0])
    return SlotId(copies[group] if stream >= COPY else routing.table[group])


def unmarked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows of streams, without markers; copies become rows of their stream."""
    stream = stream_numbers(batch)
    if stream.max(initial=0) >= COPY:
        plain = np.where(stream >= COPY, stream - COPY, stream).astype(np.int16)
        batch = batch.set_column(0, batch.schema.names[0], pa.array(plain))
    marks = stream == MARKER
    return batch.filter(pa.array(~marks)) if marks.any() else batch


def _peeked(
    rows: Iterable[pa.RecordBatch],
) -> tuple[pa.RecordBatch | None, Iterable[pa.RecordBatch]]:
    """Returns the first batch that has rows, and all from there on."""
    rows = iter(rows)
    first = next((batch for batch in rows if batch.num_rows), None)
    return first, () if first is None else chain([first], rows)
