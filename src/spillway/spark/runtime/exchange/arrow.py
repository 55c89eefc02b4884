"""The size of the Arrow batches in which Spark passes rows to a slot task.

Spark bounds a batch by rows and by bytes. To know the bytes, it measures all its buffers before
every row, which costs more than the rest of the way to Python: a plan that passes rows through took
0.59 s a batch with the bound and 0.43 s without. So this module drops the bound on bytes if the bound
on rows is enough: always for columns of fixed width, for others once the width of their rows is
known. The first batch of a start keeps the bound, and it returns when rows become wider.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    AnsiIntervalType,
    BooleanType,
    DataType,
    DatetimeType,
    NumericType,
    StructType,
)

from spillway.metrics.record import SlotRecord

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
#: Spark's value for no bound on bytes.
_UNBOUNDED = str(2**31 - 1)
#: Rows of a batch, for columns of fixed width and for others.
FIXED_ROWS, VARIED_ROWS = 131_072, 16_384
#: Bytes of a batch up to which a bound on its rows is enough.
_ENOUGH_BYTES = 32 << 20


class ArrowBatches:
    """The bounds of one query's Arrow batches, from the width of its rows."""

    def __init__(self, types: Sequence[DataType]) -> None:
        self._fixed = all(fixed_width(kind) for kind in types)
        self._set: str | None = None
        self._wanted = _UNBOUNDED if self._fixed else ""

    def prepare(self, session: SparkSession) -> None:
        """Sets the bounds for the next batch, if they change."""
        if self._set is None:
            session.conf.set(_ROWS, str(FIXED_ROWS if self._fixed else VARIED_ROWS))
        if self._set != self._wanted:
            if self._wanted:
                session.conf.set(_BYTES, self._wanted)
            else:
                session.conf.unset(_BYTES)
        self._set = self._wanted

    def learn(self, records: Collection[SlotRecord]) -> None:
        """Learns the width of rows from the state that they have become."""
        if self._fixed:
            return
        rows = sum(sum(record.state_rows) for record in records)
        size = sum(sum(record.state_bytes) for record in records)
        if rows:
            self._wanted = _UNBOUNDED if size / rows * VARIED_ROWS <= _ENOUGH_BYTES else ""


def fixed_width(kind: DataType) -> bool:
    """Whether all values of a type have the same size."""
    if isinstance(kind, StructType):
        return all(fixed_width(one.dataType) for one in kind.fields)
    return isinstance(kind, NumericType | BooleanType | DatetimeType | AnsiIntervalType)
