"""Sessions in state: a session may be in several rows, of different runs and parts.

Each row is a part of its session, and expires by the time at which that part was last touched. So a
part may expire while a younger part of the session lives. Whoever sees parts expire looks for younger
ones of their keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spillway.operators.grouping.totals import Totals
from spillway.operators.lookup import matches
from spillway.rows.joining import joined
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData, as_numpy


def ended(totals: Totals, due: RunData, left: Sequence[Segment]) -> tuple[RunData, RunData]:
    """Splits expired parts of sessions: those that have ended, and those that go on.

    Parts that go on get the time of the youngest part of their session.
    """
    near = _younger(totals, due, left)
    if not near:
        return due, due.part(0, 0)
    batch = joined([due.batch, *near])
    columns, keys = batch.columns[1:], len(totals.key_at)
    marks = columns[keys : totals.first_partial]
    h = as_numpy(batch.column(0), np.uint32)
    order = np.argsort(h, kind="stable").astype(np.int32)
    groups = totals.marks.grouped(h, columns[:keys], marks, order)
    touched = totals.marks.combined(marks, groups)[0]
    sizes = np.diff(groups.starts)
    number = np.empty(batch.num_rows, np.int64)
    number[groups.order] = np.repeat(np.arange(len(groups)), sizes)
    mine = number[: due.rows]
    goes_on = sizes[mine] > np.bincount(mine, minlength=len(groups))[mine]
    longer = due.batch.filter(pa.array(goes_on))
    until = touched.take(pa.array(mine[goes_on]))
    longer = longer.set_column(1 + keys, longer.schema.names[1 + keys], until)
    return totals.run(due.batch.filter(pa.array(~goes_on))), totals.run(longer)


def _younger(totals: Totals, due: RunData, left: Sequence[Segment]) -> list[pa.RecordBatch]:
    """Returns the live rows of the keys that expire."""
    keys = due.payload.columns[: len(totals.key_at)]
    found = []
    for segment in left:
        _, right = matches(due.h, keys, segment, totals.key_at)
        if len(right):
            found.append(segment.data.batch.take(pa.array(np.unique(right))))
    return found
