"""The size of the Arrow batches in which Spark passes rows to a slot task.

Spark bounds a batch by rows and by bytes. To know the bytes, it measures all its buffers before
every row, which costs more than the rest of the way to Python: a plan that passes rows through took
0.59 s a batch with the bound and 0.43 s without. So this module drops the bound on bytes if the bound
on rows is enough: always for columns of fixed width, for others once the width of their rows is
known. The widest Arrow batch of the input counts, not a mean, which would hide a few huge rows, and not
the state, which may keep only keys. The first batch of a start keeps the bound, and it returns when rows
become wider.

Known limitation: if rows without the bound become a hundred times wider from one batch to the next, that
batch may fail in Spark. The restart repeats it with the bound.
"""

from __future__ import annotations

from collections import deque
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
#: Batches whose widest rows count.
KEPT_WIDTHS = 64


class ArrowBatches:
    """The bounds of one query's Arrow batches, from the width of its rows."""

    def __init__(self, types: Sequence[DataType]) -> None:
        self._fixed = all(fixed_width(kind) for kind in types)
        self._set: str | None = None
        self._wanted = _UNBOUNDED if self._fixed else ""
        #: Bytes of a row in the widest Arrow batch of each of the last batches.
        self._widths: deque[int] = deque(maxlen=KEPT_WIDTHS)

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
        """Learns the width of rows from a batch."""
        width = max((record.input_row_bytes for record in records), default=0)
        if self._fixed or not width:
            return
        self._widths.append(width)
        self._wanted = _UNBOUNDED if max(self._widths) * VARIED_ROWS <= _ENOUGH_BYTES else ""


def fixed_width(kind: DataType) -> bool:
    """Whether all values of a type have the same size."""
    if isinstance(kind, StructType):
        return all(fixed_width(one.dataType) for one in kind.fields)
    return isinstance(kind, NumericType | BooleanType | DatetimeType | AnsiIntervalType)
