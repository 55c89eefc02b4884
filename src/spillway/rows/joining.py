"""Joins Arrow rows: the one place that concatenates.

Arrow counts the bytes of a text column in 32 bits. If joined columns have more, Arrow returns several
chunks, and a caller that takes only the first loses the rest. So callers use several bounded batches
where they can (state/runs/merging.py). An operator may need all rows of a key in one batch. If they have
more than `JOINED_BYTES`, the batch is *wide*: it has 64-bit offsets. Wide rows exist only inside an
operator, which cuts and *narrows* its results and the rows to keep (rows/cutting.py).

Known limitation: Arrow has no map with 64-bit offsets, so one key can have at most 2 GiB of maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from spillway.errors import BUG, StateError
from spillway.rows import bounds


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns all rows as one batch; it is wide if they have more than `JOINED_BYTES`."""
    if len(batches) == 1:
        return batches[0]
    rows = sum(batch.num_rows for batch in batches)
    if not fit([batch.nbytes for batch in batches]) or any(map(is_wide, batches)):
        batches = [_cast(batch, _wide) for batch in batches]
    found = pa.Table.from_batches(batches).combine_chunks().to_batches()
    conserve("joining batches", rows, found[0].num_rows if found else 0)
    return found[0] if found else batches[0]


def joined_column(parts: Sequence[pa.Array]) -> pa.Array:
    """Returns all values as one column; it is wide if they have more than `JOINED_BYTES`."""
    if len(parts) == 1:
        return parts[0]
    if not fit([p.nbytes for p in parts]) or any(_narrow(p.type) != p.type for p in parts):
        parts = [part.cast(_wide(part.type)) for part in parts]
    return pa.concat_arrays(parts)


def fit(sizes: Sequence[int]) -> bool:
    """Whether rows of these sizes can be one batch."""
    return sum(sizes) <= bounds.JOINED_BYTES


def is_wide(batch: pa.RecordBatch) -> bool:
    """Whether a batch has 64-bit offsets."""
    return any(_narrow(field.type) != field.type for field in batch.schema)


def narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows with 32-bit offsets; they must fit."""
    if not is_wide(batch):
        return batch
    # A copy begins at offset 0: Arrow refuses to cast larger offsets, even of few rows.
    return _cast(batch.take(pa.array(np.arange(batch.num_rows))), _narrow)


def conserve(step: str, before: int, after: int, what: str = "rows") -> None:
    """Raises an error if a step lost or added rows."""
    if before != after:
        raise StateError(
            f"{step} read {before} {what} but wrote {after}",
            detail="the query stops before the commit, so no result is lost or duplicated",
            hint=BUG,
        )


_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_SMALL = {large: small for small, large in _LARGE.items()}


def _wide(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_wide(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_wide(kind.value_type)))
    return _LARGE.get(kind, kind)


def _narrow(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_narrow(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_narrow(kind.value_type)))
    return _SMALL.get(kind, kind)


def _cast(batch: pa.RecordBatch, to: Callable[[pa.DataType], pa.DataType]) -> pa.RecordBatch:
    kinds = [to(field.type) for field in batch.schema]
    fields = [f.with_type(kind) for f, kind in zip(batch.schema, kinds, strict=True)]
    columns = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(batch.columns, kinds, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
