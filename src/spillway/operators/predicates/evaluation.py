"""What a condition (plan/sql/typed.py) says of candidate pairs, in SQL's logic of three values.

Comparisons with NULL are NULL; `and` and `or` know that false and true decide by themselves. NaN equals
itself and is larger than all numbers, as in Spark.

What Spark's ANSI mode takes for an error is one here: a whole number out of the range of its type, or
something divided by zero. As in Spark it is none where it is not looked at, so that in
`b.x != 0 and a.x / b.x > 2` the one guards the other; what fails is therefore carried along with the
values, and an error is raised if it is in the result.

Known limitation: exponential, logarithm and the functions of angles may differ from Spark's in the last
digit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spillway.errors import QueryError
from spillway.operators.predicates.columns import Rows
from spillway.operators.predicates.values import (
    Value,
    cased,
    constant,
    converted,
    of_arrow,
    read,
    there,
)
from spillway.plan.sql.kinds import Kind
from spillway.plan.sql.typed import COMPARISONS, Applied, Constant, Read, SqlCondition, Typed

_COMPARED = {
    "<": (operator.lt, "less"),
    "<=": (operator.le, "less_equal"),
    ">": (operator.gt, "greater"),
    ">=": (operator.ge, "greater_equal"),
    "=": (operator.eq, "equal"),
    "!=": (operator.ne, "not_equal"),
}
_DOUBLES: dict[str, Callable[..., Any]] = {
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
    "sign": np.sign,
    # -0.0 is 0 to Spark.
    "atan2": lambda x, y: np.arctan2(x + 0.0, y + 0.0),
    "hypot": np.hypot,
}
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "abs": np.abs,
    "negate": np.negative,
}
_OF_DECIMALS = {"+": "add", "-": "subtract", "*": "multiply", "abs": "abs", "negate": "negate"}


def holds(condition: SqlCondition, rows: Mapping[str, Rows], count: int) -> NDArray[np.bool_]:
    """For each of the pairs, whether the condition is true; NULL is not."""
    with np.errstate(all="ignore"):
        found = _value(condition.root, rows)
    if found.failed is not None and count and np.any(found.failed):
        raise QueryError(
            f"the condition {condition.text!r} overflows, or divides by zero",
            detail="as in Spark's ANSI mode, a number out of the range of its type is an error",
            hint="cast the columns to a wider type or to double in their streams, or guard it: "
            "b.x != 0 and a.x / b.x > 2",
        )
    held = np.asarray(found.of)
    if found.valid is not None:
        held = held & found.valid
    return np.broadcast_to(held, (count,))


def _value(one: Typed, rows: Mapping[str, Rows]) -> Value:
    match one:
        case Constant(value=value, kind=kind):
            return constant(value, kind)
        case Read(column=column, kind=kind):
            return read(rows[column.stream], column.name, kind)
        case Applied(name="to", of=(inner,), kind=kind):
            return converted(_value(inner, rows), inner.kind, kind)
        case Applied(name=name, of=of, kind=kind):
            return _applied(name, [_value(inner, rows) for inner in of], of[0].kind, kind)


def _applied(name: str, of: list[Value], given: Kind, kind: Kind) -> Value:
    if name in COMPARISONS:
        return _compared(name, of[0], of[1], given)
    match name:
        case "and" | "or":
            return reduce(_both if name == "and" else _either, of)
        case "not":
            return Value(np.logical_not(of[0].of), of[0].valid, of[0].failed)
        case "isnull" | "isnotnull":
            held = there(of[0])
            return Value(held if name == "isnotnull" else np.logical_not(held), None, of[0].failed)
        case "in":
            each = [_compared("=", of[0], value, given) for value in of[1:]]
            return reduce(_either, each)
        case "coalesce":
            return reduce(_first, of)
        case "least" | "greatest":
            return reduce(lambda left, right: _extreme(name, left, right), of)
        case "length" | "lower" | "upper":
            return cased(name, of[0])
        case "/" | "%":
            return _divided(name, *of)
        case "floor" | "ceil":
            return _rounded(name, of[0])
        case _ if name in _DOUBLES or name == "power":
            return _of_doubles(name, of)
    return _calculated(name, of, kind)


def _valid(*of: Value) -> Any:
    known = [one.valid for one in of if one.valid is not None]
    return reduce(np.logical_and, known) if known else None


def _joined(one: Any, other: Any) -> Any:
    """Where one of two masks is set; None is set nowhere."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _failed(*of: Value) -> Any:
    """Where one fails that is looked at, which the right one is where the left is not NULL."""
    found, before = None, None
    for one in of:
        if one.failed is not None:
            seen = one.failed if before is None else one.failed & before
            found = _joined(found, seen)
        if one.valid is not None:
            before = one.valid if before is None else before & one.valid
    return found


def _compared(name: str, left: Value, right: Value, kind: Kind) -> Value:
    valid, failed = _valid(left, right), _failed(left, right)
    mine, theirs = left.of, right.of
    if isinstance(mine, pa.Array | pa.Scalar):
        found = of_arrow(pc.call_function(_COMPARED[name][1], [mine, theirs]))
        return Value(found.of, valid, failed)
    if not kind.floating:
        return Value(_COMPARED[name][0](mine, theirs), valid, failed)
    return Value(_ordered(name, mine, theirs), valid, failed)


def _ordered(name: str, mine: Any, theirs: Any) -> Any:
    """A comparison where NaN is the largest number."""
    match name:
        case "<=":
            return (mine <= theirs) | np.isnan(theirs)
        case ">=":
            return (mine >= theirs) | np.isnan(mine)
        case "<":
            return ~_ordered(">=", mine, theirs)
        case ">":
            return ~_ordered("<=", mine, theirs)
        case "=":
            return (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
        case _:
            return ~_ordered("=", mine, theirs)


def _both(left: Value, right: Value) -> Value:
    mine, theirs = (np.asarray(one.of, np.bool_) for one in (left, right))
    failed = left.failed
    if right.failed is not None:
        # Where the left one is false, the right one is not looked at.
        failed = _joined(failed, right.failed & ~(there(left) & ~mine))
    if left.valid is None and right.valid is None:
        return Value(mine & theirs, None, failed)
    here, also = there(left), there(right)
    false = (here & ~mine) | (also & ~theirs)
    return Value(~false, (here & also) | false, failed)


def _either(left: Value, right: Value) -> Value:
    negated = [Value(np.logical_not(one.of), one.valid, one.failed) for one in (left, right)]
    found = _both(*negated)
    return Value(np.logical_not(found.of), found.valid, found.failed)


def _first(left: Value, right: Value) -> Value:
    if left.valid is None:
        return left
    here = there(left)
    failed = left.failed
    if right.failed is not None:
        failed = _joined(failed, right.failed & ~here)
    valid = here | there(right)
    if isinstance(left.of, pa.Array | pa.Scalar):
        chosen = pc.if_else(_truth(here), left.of, right.of)
        return Value(chosen, valid, failed)
    return Value(np.where(here, left.of, right.of), valid, failed)


def _truth(mask: Any) -> Any:
    return pa.array(mask) if np.ndim(mask) else pa.scalar(bool(mask))


def _extreme(name: str, left: Value, right: Value) -> Value:
    """The least or largest of what is not NULL; NaN is the largest."""
    failed = _joined(left.failed, right.failed)
    here, also = there(left), there(right)
    valid = None if left.valid is None and right.valid is None else here | also
    if isinstance(left.of, pa.Array | pa.Scalar):
        less = of_arrow(pc.less_equal(left.of, right.of)).of
        mine = here & (~also | (less if name == "least" else ~less))
        return Value(pc.if_else(_truth(mine), left.of, right.of), valid, failed)
    of_two = np.fmin if name == "least" else np.maximum
    found = of_two(left.of, right.of)
    if valid is not None:
        found = np.where(here & also, found, np.where(here, left.of, right.of))
    return Value(found, valid, failed)


def _of_doubles(name: str, of: list[Value]) -> Value:
    if name == "power":
        return Value(_power(of[0].of, of[1].of), _valid(*of), _failed(*of))
    found = Value(_DOUBLES[name](*(one.of for one in of)), _valid(*of), _failed(*of))
    if name in ("ln", "log10"):
        # There is no logarithm of what is not above zero; NaN has NaN.
        some = ~(of[0].of <= 0)
        valid = some if found.valid is None else found.valid & some
        return Value(found.of, valid, found.failed)
    return found


def _power(base: Any, exponent: Any) -> Any:
    """Java's: 1 to the power of infinity or NaN is NaN."""
    odd = np.isnan(exponent) | (np.isinf(exponent) & (np.abs(base) == 1))
    return np.where(odd, np.nan, np.power(base, exponent))


def _divided(name: str, left: Value, right: Value) -> Value:
    """A remainder has the sign of what is divided; Spark looks at the divisor first."""
    valid, failed = _valid(left, right), _failed(right, left)
    zero = np.equal(right.of, 0)
    if np.any(zero):
        failed = _joined(failed, zero if valid is None else zero & valid)
    found = np.true_divide(left.of, right.of) if name == "/" else np.fmod(left.of, right.of)
    return Value(found, valid, failed)


def _rounded(name: str, one: Value) -> Value:
    """The whole number below or above; zero for NaN, as in Java."""
    if np.asarray(one.of).dtype.kind == "i":
        return one
    found = (np.floor if name == "floor" else np.ceil)(one.of)
    beyond = (found >= 2.0**63) | (found < -(2.0**63))
    whole = np.where(beyond | np.isnan(found), 0, found).astype(np.int64)
    failed = beyond if one.valid is None else beyond & one.valid
    return Value(whole, one.valid, _joined(one.failed, failed))


def _calculated(name: str, of: list[Value], kind: Kind) -> Value:
    """Sums, differences, products and sizes."""
    valid, failed = _valid(*of), _failed(*of)
    values = [one.of for one in of]
    if (name, len(of)) == ("-", 1):
        name = "negate"
    if kind.decimal:
        return Value(pc.call_function(_OF_DECIMALS[name], values), valid, failed)
    found = _ARITHMETIC[name](*values)
    if not kind.floating:
        beyond = _beyond(name, values, found, kind)
        if beyond is not None and valid is not None:
            beyond = beyond & valid
        failed = _joined(failed, beyond)
    return Value(found, valid, failed)


def _beyond(name: str, values: list[Any], found: Any, kind: Kind) -> Any:
    """Where a whole number is out of the range of its type, which is calculated in 64 bits."""
    sizes = [_size(value) for value in values]
    largest = sizes[0] * sizes[-1] if name == "*" else sum(sizes)
    if largest < kind.limit:
        return None
    if kind.limit < 1 << 63:
        return (found < -kind.limit) | (found >= kind.limit)
    if len(values) == 1:
        return values[0] == -kind.limit
    mine, theirs = values
    if name == "+":
        return ((mine ^ found) & (theirs ^ found)) < 0
    if name == "-":
        return ((mine ^ theirs) & (mine ^ found)) < 0
    # A product of 64 bits is right if it divides; -1 is apart, since its quotient may not be there.
    divisor = np.where((mine == 0) | (mine == -1), 1, mine)
    wrong = (found // divisor != theirs) | (found % divisor != 0)
    minus = (mine == -1) & (theirs == -kind.limit)
    return np.where((mine == 0) | (mine == -1), minus, wrong)


def _size(value: Any) -> int:
    """The largest size among whole numbers."""
    if not np.size(value):
        return 0
    return max(int(np.max(value)), -int(np.min(value)))
