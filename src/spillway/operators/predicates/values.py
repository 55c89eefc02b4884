"""Values of SQL conditions, one for each candidate pair, and how they become values of other types.

Whole numbers are 64 bits wide, whatever their type; dates are days and timestamps microseconds. Text
and decimals are Arrow arrays, everything else is numpy's. `valid` marks NULLs for all types; the value
under a NULL is arbitrary.
"""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.operators.predicates.columns import Rows
from spillway.plan.sql.kinds import Kind

#: Digits of whole numbers that are exact in double precision, as are powers of ten up to this.
_EXACT_DIGITS, _EXACT_POWER = 15, 22
_INT64_DIGITS = 19


class Value(NamedTuple):
    """Values, one for each pair."""

    #: An array, or one value for all pairs.
    of: Any
    #: Where it is not NULL; None: everywhere.
    valid: Any = None
    #: Where Spark would have raised an error; None: nowhere.
    failed: Any = None


def read(rows: Rows, name: str, kind: Kind) -> Value:
    """A column."""
    if not kind.known:
        held = rows.arrow(name)
        return Value(held, _mask(held))
    values, valid = rows.values(name)
    if isinstance(values, pa.Array):
        return Value(values, _mask(values))
    if kind.time:
        whole = values.view(np.int64) if values.dtype.kind == "M" else values
        return Value(whole.astype(np.int64, copy=False), valid)
    return Value(values.astype(np.int64, copy=False) if kind.whole else values, valid)


def constant(value: Any, kind: Kind) -> Value:
    """One value for all pairs."""
    valid = np.False_ if value is None else None
    if kind.decimal:
        precise = None if value is None else Decimal(value)
        return Value(pa.scalar(precise, pa.decimal128(kind.precision, kind.scale)), valid)
    if kind.name == "string":
        return Value(pa.scalar(value, pa.string()), valid)
    if kind.name in ("boolean", "void"):
        return Value(np.bool_(value), valid)
    if kind.floating:
        return Value((np.float32 if kind.name == "float" else np.float64)(value or 0), valid)
    return Value(np.int64(value or 0), valid)


def there(one: Value) -> Any:
    """Where values are not NULL."""
    if one.valid is not None:
        return one.valid
    if isinstance(one.of, pa.Array):
        return np.ones(len(one.of), np.bool_)
    return np.True_ if isinstance(one.of, pa.Scalar) else np.ones(np.shape(one.of), np.bool_)


def of_arrow(found: pa.Array | pa.Scalar) -> Value:
    """Numbers or booleans that an Arrow function returned, as numpy."""
    nothing = False if pa.types.is_boolean(found.type) else 0
    if isinstance(found, pa.Scalar):
        value = found.as_py()
        return Value(
            np.asarray(nothing if value is None else value)[()], np.bool_(value is not None)
        )
    valid = _mask(found)
    filled = found if valid is None else found.fill_null(nothing)
    return Value(filled.to_numpy(zero_copy_only=False), valid)


def converted(one: Value, given: Kind, kind: Kind) -> Value:
    """Values of one number type as values of a wider one."""
    if kind.decimal:
        return Value(_decimals(one, given, kind), one.valid, one.failed)
    if given.decimal:
        return Value(_doubles(one.of, given), one.valid, one.failed)
    if kind.floating:
        return Value(np.asarray(one.of).astype(np.float64), one.valid, one.failed)
    return one


def _decimals(one: Value, given: Kind, kind: Kind) -> Any:
    wanted = pa.decimal128(kind.precision, kind.scale)
    if given.decimal:
        return one.of.cast(wanted)
    if np.ndim(one.of) == 0:
        whole = pa.scalar(int(one.of), pa.int64())
        exact = whole.cast(pa.decimal128(_INT64_DIGITS, 0))
        return exact.cast(wanted)
    values = one.of if one.valid is None else np.where(one.valid, one.of, 0)
    return pa.array(values).cast(pa.decimal128(_INT64_DIGITS, 0)).cast(wanted)


def _doubles(values: pa.Array | pa.Scalar, kind: Kind) -> Any:
    """The nearest floating point numbers."""
    if isinstance(values, pa.Scalar):
        found = values.as_py()
        return np.float64(0 if found is None else float(found))
    if kind.precision <= _EXACT_DIGITS and kind.scale <= _EXACT_POWER:
        # Both are exact, so the division rounds once.
        whole = np.frombuffer(values.buffers()[1], np.int64)[::2] if len(values) else np.empty(0)
        whole = whole[values.offset : values.offset + len(values)]
        return whole.astype(np.float64) / 10.0**kind.scale
    written = values.cast(pa.string()).fill_null("0")
    return written.cast(pa.float64()).to_numpy(zero_copy_only=False)


def cased(name: str, one: Value) -> Value:
    """The length of text, or text in lower or upper case."""
    if name == "length":
        return Value(of_arrow(pc.utf8_length(one.of)).of.astype(np.int64), one.valid, one.failed)
    return Value(_mapped(name, one.of), one.valid, one.failed)


def _mapped(name: str, text: pa.Array | pa.Scalar) -> Any:
    plain = pc.string_is_ascii(text)
    if isinstance(text, pa.Scalar):
        value = text.as_py()
        return pa.scalar(None if value is None else _letters(name, value), pa.string())
    if pc.all(plain).as_py() is not False:
        return (pc.ascii_lower if name == "lower" else pc.ascii_upper)(text)
    # One letter may become several, which Arrow does not support.
    distinct = text.dictionary_encode()
    made = [None if v is None else _letters(name, v) for v in distinct.dictionary.to_pylist()]
    return pa.array(made, pa.string()).take(distinct.indices)


def _letters(name: str, text: str) -> str:
    return text.lower() if name == "lower" else text.upper()


def _mask(column: pa.Array) -> Any:
    """Where an Arrow array is not NULL; None: everywhere."""
    if not column.null_count:
        return None
    return column.is_valid().to_numpy(zero_copy_only=False)


def valid_of(*of: Value) -> Any:
    """Where none of some values is NULL; None: everywhere."""
    known = [one.valid for one in of if one.valid is not None]
    return reduce(np.logical_and, known) if known else None


def either_set(one: Any, other: Any) -> Any:
    """Where one of two masks is set; None: nowhere."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def failed_of(*of: Value) -> Any:
    """Where evaluation fails; a value is only evaluated where those left of it are not NULL."""
    found, before = None, None
    for one in of:
        if one.failed is not None:
            seen = one.failed if before is None else one.failed & before
            found = either_set(found, seen)
        if one.valid is not None:
            before = one.valid if before is None else before & one.valid
    return found
