"""What a condition (plan/sql/nodes.py) says about candidate pairs, in SQL's three-valued logic.

As in Spark's ANSI mode, overflow and division by zero are errors only where the value is evaluated:
in `b.x != 0 and a.x / b.x > 2` the first operand guards the second. So a failure travels with the
values (`Value.failed`), and `holds` raises only if it reaches the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from spillway.errors import QueryError
from spillway.operators.predicates.arithmetic import (
    DOUBLES,
    calculate,
    divide,
    of_doubles,
    round_to_whole,
)
from spillway.operators.predicates.columns import Rows
from spillway.operators.predicates.logic import both, compare, either, extreme, first_of
from spillway.operators.predicates.values import (
    Value,
    cased,
    constant,
    converted,
    read,
    there,
)
from spillway.plan.sql.kinds import Kind
from spillway.plan.sql.nodes import COMPARISONS, Applied, Constant, Read, SqlCondition, Typed


def holds(condition: SqlCondition, rows: Mapping[str, Rows], count: int) -> NDArray[np.bool_]:
    """For each pair, whether the condition is true; NULL is not true."""
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
        return compare(name, of[0], of[1], given)
    if name == "in":
        return reduce(either, [compare("=", of[0], value, given) for value in of[1:]])
    if name in _FOLDED:
        return reduce(_FOLDED[name], of)
    if name in _OF_ONE:
        return _OF_ONE[name](of[0])
    if name in ("/", "%"):
        return divide(name, *of)
    if name in DOUBLES or name == "power":
        return of_doubles(name, of)
    return calculate(name, of, kind)


def _negated(one: Value) -> Value:
    return Value(np.logical_not(one.of), one.valid, one.failed)


def _is_null(one: Value) -> Value:
    return Value(np.logical_not(there(one)), None, one.failed)


def _is_not_null(one: Value) -> Value:
    return Value(there(one), None, one.failed)


#: Functions of two values that apply to several, from left to right.
_FOLDED: dict[str, Callable[[Value, Value], Value]] = {
    "and": both,
    "or": either,
    "coalesce": first_of,
    "least": partial(extreme, "least"),
    "greatest": partial(extreme, "greatest"),
}
_OF_ONE: dict[str, Callable[[Value], Value]] = {
    "not": _negated,
    "isnull": _is_null,
    "isnotnull": _is_not_null,
    **{name: partial(cased, name) for name in ("length", "lower", "upper")},
    **{name: partial(round_to_whole, name) for name in ("floor", "ceil")},
}
