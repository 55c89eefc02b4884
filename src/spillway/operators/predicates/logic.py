"""Comparisons and connectives of SQL conditions, with NULL as a third truth value.

A comparison with NULL is NULL; one false operand decides `and`, one true operand `or`. NaN equals
itself and is larger than all numbers, as in Spark.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.operators.predicates.values import (
    Value,
    either_set,
    failed_of,
    of_arrow,
    there,
    valid_of,
)
from spillway.plan.sql.kinds import Kind

_COMPARED = {
    "<": (operator.lt, "less"),
    "<=": (operator.le, "less_equal"),
    ">": (operator.gt, "greater"),
    ">=": (operator.ge, "greater_equal"),
    "=": (operator.eq, "equal"),
    "!=": (operator.ne, "not_equal"),
}


def compare(name: str, left: Value, right: Value, kind: Kind) -> Value:
    """A comparison of values of one type."""
    valid, failed = valid_of(left, right), failed_of(left, right)
    mine, theirs = left.of, right.of
    if isinstance(mine, pa.Array | pa.Scalar):
        found = of_arrow(pc.call_function(_COMPARED[name][1], [mine, theirs]))
        return Value(found.of, valid, failed)
    if not kind.floating:
        return Value(_COMPARED[name][0](mine, theirs), valid, failed)
    return Value(_ordered(name, mine, theirs), valid, failed)


def _ordered(name: str, mine: Any, theirs: Any) -> Any:
    """A comparison in which NaN is the largest number."""
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


def both(left: Value, right: Value) -> Value:
    """`and`: false decides, even next to NULL."""
    mine, theirs = (np.asarray(one.of, np.bool_) for one in (left, right))
    failed = left.failed
    if right.failed is not None:
        # Where the left operand is false, the right one is not evaluated.
        failed = either_set(failed, right.failed & ~(there(left) & ~mine))
    if left.valid is None and right.valid is None:
        return Value(mine & theirs, None, failed)
    here, also = there(left), there(right)
    false = (here & ~mine) | (also & ~theirs)
    return Value(~false, (here & also) | false, failed)


def either(left: Value, right: Value) -> Value:
    """`or`: true decides, even next to NULL."""
    negated = [Value(np.logical_not(one.of), one.valid, one.failed) for one in (left, right)]
    found = both(*negated)
    return Value(np.logical_not(found.of), found.valid, found.failed)


def first_of(left: Value, right: Value) -> Value:
    """`coalesce`: the left value where it is not NULL."""
    if left.valid is None:
        return left
    here = there(left)
    failed = left.failed
    if right.failed is not None:
        failed = either_set(failed, right.failed & ~here)
    valid = here | there(right)
    if isinstance(left.of, pa.Array | pa.Scalar):
        chosen = pc.if_else(_truth(here), left.of, right.of)
        return Value(chosen, valid, failed)
    return Value(np.where(here, left.of, right.of), valid, failed)


def _truth(mask: Any) -> Any:
    return pa.array(mask) if np.ndim(mask) else pa.scalar(bool(mask))


def extreme(name: str, left: Value, right: Value) -> Value:
    """The least or largest value that is not NULL; NaN is the largest."""
    failed = either_set(left.failed, right.failed)
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
