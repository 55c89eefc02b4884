"""The columns of candidate pairs, as a predicate sees them.

A `Rows` object stands for the rows that candidate pairs have of one stream: `a.x` is the column x of
all of them, as an array with one value per pair. A column is gathered when it is first asked for, so a
predicate pays for what it reads.

Numbers, booleans, times and lists of fixed size are numpy arrays; everything else is an Arrow array. A
pair that is NULL in a column that was read as numpy does not match, as in SQL; `a.arrow("x")` has the
NULLs, and leaves them to the predicate. A column whose name is that of a method here is an item,
`a["values"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.errors import PlanError

Positions = NDArray[Any]
Values = NDArray[Any]
Valid = NDArray[np.bool_]


class Rows:
    """Rows of one stream, one per candidate pair; columns are attributes, or items by name."""

    def __init__(
        self,
        stream: str,
        names: Sequence[str],
        column: Callable[[int], pa.Array],
        at: Positions | None,
        count: int,
    ) -> None:
        self._stream = stream
        self._names = names
        self._column = column
        #: The row of each pair; None: the columns have one row per pair.
        self._at = at
        self._count = count
        self._values: dict[str, tuple[Values | pa.Array, Valid | None]] = {}

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> Values | pa.Array:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.values(name)[0]

    def __getitem__(self, name: str) -> Values | pa.Array:
        return self.values(name)[0]

    def values(self, name: str) -> tuple[Values | pa.Array, Valid | None]:
        """A column, and where it is not NULL; None: nowhere, or it is an Arrow array."""
        found = self._values.get(name)
        if found is None:
            found = self._values[name] = gathered(self._found(name), self._at)
        return found

    def arrow(self, name: str) -> pa.Array:
        """A column as an Arrow array."""
        column = self._found(name)
        return column if self._at is None else column.take(pa.array(self._at))

    def matrix(self, name: str) -> Values:
        """A column of byte strings or lists that are all of one length, one row of a matrix each."""
        column = self._found(name)
        rows = _matrix(column)
        if rows is None:
            raise PlanError(
                f"{self._stream}.{name} is no column of strings or lists of one length",
                hint=f'use {self._stream}.arrow("{name}")',
            )
        return rows if self._at is None else rows.take(self._at, axis=0)

    def valid(self) -> Valid | None:
        """Where nothing that was read is NULL; None: everywhere."""
        known = [valid for _, valid in self._values.values() if valid is not None]
        return np.logical_and.reduce(known) if known else None

    def _found(self, name: str) -> pa.Array:
        if name not in self._names:
            raise PlanError(
                f"stream {self._stream} has no column {name}",
                hint=f"its columns are {', '.join(self._names)}",
            )
        return self._column(self._names.index(name))


def gathered(
    column: pa.Array, at: Positions | None
) -> tuple[NDArray[Any] | pa.Array, NDArray[np.bool_] | None]:
    """Values of a column and where they are not NULL, or an Arrow array."""
    if pa.types.is_fixed_size_list(column.type) and column.null_count == 0:
        inner = gathered(column.values, None)[0]
        if isinstance(inner, np.ndarray):
            rows = inner.reshape(-1, column.type.list_size)
            rows = rows[column.offset : column.offset + len(column)]
            return (rows if at is None else rows.take(at, axis=0)), None
    dtype = numpy_type(column.type)
    if dtype is None:
        return (column if at is None else column.take(pa.array(at))), None
    if column.null_count == 0 and dtype != np.bool_:
        whole = _lying(column, dtype)
        return (whole if at is None else whole.take(at)), None
    some = column if at is None else column.take(pa.array(at))
    valid = None if some.null_count == 0 else some.is_valid().to_numpy(zero_copy_only=False)
    if dtype == np.bool_:
        return some.fill_null(False).to_numpy(zero_copy_only=False), valid
    return _lying(some, dtype), valid


def numpy_type(kind: pa.DataType) -> Any:
    """The numpy type of columns of an Arrow type that lie in memory as numpy has them, or None."""
    if pa.types.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype())
    return np.dtype("int32") if pa.types.is_date32(kind) else None


def _lying(column: pa.Array, dtype: Any) -> NDArray[Any]:
    data = column.buffers()[1]
    if data is None or len(column) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype)[column.offset : column.offset + len(column)]


def _matrix(column: pa.Array) -> NDArray[Any] | None:
    kind = column.type
    if column.null_count or pa.types.is_fixed_size_list(kind):
        found = gathered(column, None)[0]
        return found if isinstance(found, np.ndarray) and found.ndim == 2 else None
    binary = pa.types.is_binary(kind) or pa.types.is_string(kind)
    if not binary and not pa.types.is_list(kind):
        return None
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1]
    width = int(offsets[1] - offsets[0]) if len(column) else 0
    if len(column) and np.any(np.diff(offsets) != width):
        return None
    if binary:
        data: Any = np.frombuffer(column.buffers()[2], np.uint8) if width else np.empty(0, np.uint8)
    else:
        data = gathered(column.values, None)[0]
    if not isinstance(data, np.ndarray):
        return None
    first = int(offsets[0]) if len(column) else 0
    return data[first : first + width * len(column)].reshape(len(column), width)
