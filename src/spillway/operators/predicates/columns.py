"""The columns of candidate pairs, as a predicate sees them.

`Rows` holds the rows of one stream in all candidate pairs: `a.x` is an array with the column x of
each. It gathers a column on first use.

Numbers, booleans, times and lists of fixed size are numpy arrays, and `a.matrix("x")` makes one of
strings or lists of equal length; everything else is an Arrow array. As in SQL, a pair does not match
if a column read as numpy has NULL, or a list that contains NULL; the array has zeros there.
`a.arrow("x")` keeps the NULLs for the predicate. A column with the name of a method is an item:
`a["values"]`.

`Rows` reads columns of a run without NULLs in place. For other columns it first gathers the rows of
the pairs, so that NULLs of other rows do not matter.
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


class NothingThere(Exception):
    """The width of a matrix is unknown because all pairs are NULL: none of them matches."""


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
        #: Where columns read as matrices are not NULL.
        self._filled: dict[str, Valid] = {}

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> Values | pa.Array:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.values(name)[0]

    def __getitem__(self, name: str) -> Values | pa.Array:
        return self.values(name)[0]

    def values(self, name: str) -> tuple[Values | pa.Array, Valid | None]:
        """A column, and where it is not NULL; None: everywhere, or the column is an Arrow array."""
        found = self._values.get(name)
        if found is None:
            found = self._values[name] = gathered(self._found(name), self._at)
        return found

    def arrow(self, name: str) -> pa.Array:
        """A column as an Arrow array."""
        column = self._found(name)
        return column if self._at is None else column.take(pa.array(self._at))

    def matrix(self, name: str) -> Values:
        """A column of byte strings or lists of equal length, each a row of a matrix."""
        rows, valid = self._matrix(name)
        if valid is not None:
            self._filled[name] = valid
        return rows

    def valid(self) -> Valid | None:
        """Where no value read so far is NULL; None: everywhere."""
        known = [valid for _, valid in self._values.values() if valid is not None]
        known += self._filled.values()
        return np.logical_and.reduce(known) if known else None

    def _matrix(self, name: str) -> tuple[Values, Valid | None]:
        found = matrix_of(self._found(name), self._at)
        if found is None:
            raise PlanError(
                f"{self._stream}.{name} must hold values of equal length",
                hint=f'use {self._stream}.arrow("{name}")',
            )
        return found

    def _found(self, name: str) -> pa.Array:
        if name not in self._names:
            raise PlanError(
                f"stream {self._stream} has no column {name}",
                hint=f"its columns are {', '.join(self._names)}",
            )
        return self._column(self._names.index(name))


class Missing(Exception):
    """Some rows of a side have NULL in a column that a function reads."""

    def __init__(self, side: Side, there: Valid) -> None:
        super().__init__()
        self.side, self.there = side, there


class Side(Rows):
    """The rows of one side of a tile (operators/predicates/tiles.py): no column has NULLs.

    A column with NULLs raises `Missing`, so that the tile leaves these rows out.
    """

    def values(self, name: str) -> tuple[Values | pa.Array, Valid | None]:
        """A column without NULLs; an Arrow array keeps them."""
        found, valid = super().values(name)
        self._check(valid)
        return found, None

    def matrix(self, name: str) -> Values:
        """A column of byte strings or lists of equal length, each a row of a matrix."""
        rows, valid = self._matrix(name)
        self._check(valid)
        return rows

    def _check(self, valid: Valid | None) -> None:
        if valid is not None and not valid.all():
            raise Missing(self, valid)


# Functions, not methods: a column may have any name.


def stream_of(rows: Rows) -> str:
    """The name of the stream of some rows."""
    return rows._stream


def places_of(rows: Rows) -> Positions:
    """The place of each row in the columns."""
    return np.arange(rows._count) if rows._at is None else rows._at


def rows_at(rows: Rows, at: Positions) -> Rows:
    """The rows at some places of the columns."""
    return Rows(rows._stream, rows._names, rows._column, at, len(at))


def side_at(rows: Rows, at: Positions) -> Side:
    """The rows at some places of the columns; in place, if these are neighbours in order."""
    count = len(at)
    if count and int(at[-1]) - int(at[0]) == count - 1 and bool(np.all(np.diff(at) == 1)):
        return side_between(rows, int(at[0]), count)
    return Side(rows._stream, rows._names, rows._column, at, count)


def side_between(rows: Rows, begin: int, count: int) -> Side:
    """The rows from one place of the columns on, in place."""

    def column(number: int) -> pa.Array:
        return rows._column(number).slice(begin, count)

    return Side(rows._stream, rows._names, column, None, count)


def gathered(
    column: pa.Array, at: Positions | None
) -> tuple[NDArray[Any] | pa.Array, NDArray[np.bool_] | None]:
    """Values of a column and where they are not NULL, or an Arrow array."""
    if pa.types.is_fixed_size_list(column.type):
        found = matrix_of(column, at)
        if found is not None:
            return found
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
    """The numpy type of an Arrow type with the same layout in memory, or None."""
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


def matrix_of(column: pa.Array, at: Positions | None) -> tuple[Values, Valid | None] | None:
    """Rows of equal width as a matrix, and where they are not NULL; None: their widths differ."""
    if column.null_count == 0:
        found = _matrix(column)
        if found is None or at is None:
            return found
        rows, valid = found
        return rows.take(at, axis=0), None if valid is None else valid.take(at)
    some = column if at is None else column.take(pa.array(at))
    there = some.is_valid().to_numpy(zero_copy_only=False)
    found = _matrix(some.drop_null())
    if found is None:
        return None
    rows, valid = found
    if not len(rows) and not _is_fixed(column.type):
        raise NothingThere
    filled = np.zeros((len(some), rows.shape[1]), rows.dtype)
    filled[there] = rows
    if valid is not None:
        there[there] = valid
    return filled, there


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_fixed_size_binary(kind))


def _matrix(column: pa.Array) -> tuple[Values, Valid | None] | None:
    """Rows of a column without NULLs, straight from memory, and where their lists have no NULL."""
    kind, rows = column.type, len(column)
    if pa.types.is_fixed_size_binary(kind):
        return _cut(
            _bytes(column.buffers()[1]), column.offset * kind.byte_width, rows, kind.byte_width
        ), None
    if pa.types.is_fixed_size_list(kind):
        return _lists(column.values, column.offset * kind.list_size, rows, kind.list_size)
    binary = pa.types.is_binary(kind) or pa.types.is_string(kind)
    if not binary and not pa.types.is_list(kind):
        return None
    first = width = 0
    if rows:
        offsets = np.frombuffer(column.buffers()[1], np.int32)
        offsets = offsets[column.offset : column.offset + rows + 1]
        first, width = int(offsets[0]), int(offsets[1] - offsets[0])
        if np.any(np.diff(offsets) != width):
            return None
    if binary:
        return _cut(_bytes(column.buffers()[2]), first, rows, width), None
    return _lists(column.values, first, rows, width)


def _lists(
    values: pa.Array, first: int, rows: int, width: int
) -> tuple[Values, Valid | None] | None:
    inner, there = gathered(values, None)
    if not isinstance(inner, np.ndarray) or inner.ndim > 1:
        return None
    found = _cut(inner, first, rows, width)
    if there is None:
        return found, None
    return found, np.logical_and.reduce(_cut(there, first, rows, width), axis=1)


def _bytes(data: pa.Buffer | None) -> Values:
    return np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


def _cut(whole: Values, first: int, rows: int, width: int) -> Values:
    """Values from `first` on as a matrix of `rows` rows; a buffer may be longer than its rows."""
    return whole[first : first + rows * width].reshape(rows, width)
