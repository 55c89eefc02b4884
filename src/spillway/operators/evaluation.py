"""What an expression (plan/expression.py) says of candidate pairs, in SQL's logic of three values.

A value is an array, numpy's or for text Arrow's, with where it is not NULL. Rows whose value is NULL
have any value. Comparisons with NULL are NULL; `and` and `or` know that false and true decide by
themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spillway.errors import PlanError
from spillway.operators.columns import Rows
from spillway.plan.expression import Call, Column, Expression, Literal


class _Value(NamedTuple):
    #: An array, or one value for all pairs.
    of: Any
    #: Where it is not NULL; None: everywhere.
    valid: Any = None


_COMPARED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "<": (operator.lt, "less"),
    "<=": (operator.le, "less_equal"),
    ">": (operator.gt, "greater"),
    ">=": (operator.ge, "greater_equal"),
    "=": (operator.eq, "equal"),
    "!=": (operator.ne, "not_equal"),
}
_NUMERIC: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "ln": np.log,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "radians": np.radians,
    "degrees": np.degrees,
    "floor": np.floor,
    "ceil": np.ceil,
    "sign": np.sign,
    "power": lambda x, y: np.power(np.asarray(x, np.float64), y),
    "atan2": np.arctan2,
    "hypot": np.hypot,
}
_TEXT = {"length": pc.utf8_length, "lower": pc.utf8_lower, "upper": pc.utf8_upper}


def holds(condition: Expression, rows: Mapping[str, Rows], count: int) -> NDArray[np.bool_]:
    """For each of the pairs, whether the condition is true; NULL is not."""
    with np.errstate(all="ignore"):
        found = _value(condition, rows)
    held = np.asarray(found.of)
    if held.dtype != np.bool_:
        raise PlanError("a condition must be true or false", hint="compare it with something")
    if found.valid is not None:
        held = held & found.valid
    return np.broadcast_to(held, (count,))


def _value(one: Expression, rows: Mapping[str, Rows]) -> _Value:
    match one:
        case Literal(value=None):
            return _Value(np.False_, np.False_)
        case Literal(value=value):
            return _Value(value)
        case Column(stream=stream, name=name):
            return _read(*rows[stream].values(name))
        case Call(name=name, of=of):
            return _called(name, [_value(inner, rows) for inner in of])


def _read(values: Any, valid: Any) -> _Value:
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.dtype.itemsize < 8:
        return _Value(values.astype(np.int64), valid)
    return _Value(values, valid)


def _called(name: str, of: list[_Value]) -> _Value:
    if name in _COMPARED:
        return _compared(name, *of)
    match name:
        case "and" | "or":
            return reduce(_both if name == "and" else _either, of)
        case "not":
            return _Value(np.logical_not(of[0].of), of[0].valid)
        case "isnull" | "isnotnull":
            there = _there(of[0])
            return _Value(there if name == "isnotnull" else np.logical_not(there))
        case "coalesce":
            return reduce(_first, of)
        case "least" | "greatest":
            return reduce(_extreme(np.minimum if name == "least" else np.maximum), of)
        case "/" | "%":
            return _divided(name, *of)
        case _ if name in _TEXT:
            return _arrow(_TEXT[name](_text(name, of[0].of)))
        case _:
            numbers = [_number(name, value.of) for value in of]
            return _Value(_NUMERIC[name](*numbers), _valid(*of))


def _compared(name: str, left: _Value, right: _Value) -> _Value:
    mine, theirs = left.of, right.of
    if isinstance(mine, pa.Array) or isinstance(theirs, pa.Array):
        return _arrow(pc.call_function(_COMPARED[name][1], [_scalar(mine), _scalar(theirs)]))
    return _Value(_COMPARED[name][0](mine, theirs), _valid(left, right))


def _scalar(value: Any) -> Any:
    if isinstance(value, pa.Array):
        return value
    return pa.array(value) if isinstance(value, np.ndarray) else pa.scalar(value)


def _arrow(found: pa.Array) -> _Value:
    """The result of an Arrow function: numbers or truth as numpy, text as it is."""
    if pa.types.is_string(found.type) or pa.types.is_large_string(found.type):
        return _Value(found)
    valid = found.is_valid().to_numpy(zero_copy_only=False) if found.null_count else None
    filled = found.fill_null(False if pa.types.is_boolean(found.type) else 0)
    return _Value(filled.to_numpy(zero_copy_only=False), valid)


def _valid(*of: _Value) -> Any:
    known = [one.valid for one in of if one.valid is not None]
    return reduce(np.logical_and, known) if known else None


def _there(one: _Value) -> Any:
    if isinstance(one.of, pa.Array):
        return one.of.is_valid().to_numpy(zero_copy_only=False)
    shape = np.shape(one.of)
    return np.ones(shape, np.bool_) if one.valid is None else np.broadcast_to(one.valid, shape)


def _both(left: _Value, right: _Value) -> _Value:
    mine, theirs = (np.asarray(one.of, np.bool_) for one in (left, right))
    if left.valid is None and right.valid is None:
        return _Value(mine & theirs)
    here, there = _there(left), _there(right)
    false = (here & ~mine) | (there & ~theirs)
    return _Value(~false, (here & there) | false)


def _either(left: _Value, right: _Value) -> _Value:
    negated = [_Value(np.logical_not(one.of), one.valid) for one in (left, right)]
    found = _both(*negated)
    return _Value(np.logical_not(found.of), found.valid)


def _first(left: _Value, right: _Value) -> _Value:
    if left.valid is None and not isinstance(left.of, pa.Array):
        return left
    here = _there(left)
    if isinstance(left.of, pa.Array):
        return _arrow(pc.if_else(pa.array(here), left.of, _scalar(right.of)))
    return _Value(np.where(here, left.of, right.of), here | _there(right))


def _extreme(of_two: Callable[[Any, Any], Any]) -> Callable[[_Value, _Value], _Value]:
    """The least or largest of what is not NULL."""

    def choose(left: _Value, right: _Value) -> _Value:
        mine, theirs = (_number("least or greatest", one.of) for one in (left, right))
        if left.valid is None and right.valid is None:
            return _Value(of_two(mine, theirs))
        here, there = _there(left), _there(right)
        found = np.where(here & there, of_two(mine, theirs), np.where(here, mine, theirs))
        return _Value(found, here | there)

    return choose


def _divided(name: str, left: _Value, right: _Value) -> _Value:
    """What is divided by zero is NULL, and a remainder has the sign of what is divided."""
    mine, theirs = (_number(name, one.of) for one in (left, right))
    some = np.not_equal(theirs, 0)
    valid = _valid(left, right, _Value(None, None if np.all(some) else some))
    found = np.true_divide(mine, theirs) if name == "/" else np.fmod(mine, theirs)
    return _Value(found, valid)


def _number(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray | np.number) and value.dtype.kind in "iuf":
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, np.bool_) and not value:
        return 0  # NULL
    raise PlanError(
        f"{name} is for numbers",
        hint="cast the column before the join, or use a Python function over the columns",
    )


def _text(name: str, value: Any) -> Any:
    if isinstance(value, pa.Array):
        return value
    raise PlanError(f"{name} is for text", hint="cast the column before the join")
