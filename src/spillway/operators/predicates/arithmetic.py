"""Arithmetic of SQL conditions, with the errors of Spark's ANSI mode.

Whole numbers have 64 bits. Overflow and division by zero do not raise here: `Value.failed` marks
them, because another operand may make the value irrelevant.

Known limitation: exponential, logarithm and the functions of angles may differ from Spark's in the
last digit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
import pyarrow.compute as pc

from spillway.operators.predicates.values import Value, either_set, failed_of, valid_of
from spillway.plan.sql.kinds import Kind

DOUBLES: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt,
    "exp": np.exp,
    "ln": np.log,
    "log": np.log,
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


def of_doubles(name: str, of: list[Value]) -> Value:
    """Functions of doubles: roots, logarithms, angles."""
    if name == "power":
        return Value(_power(of[0].of, of[1].of), valid_of(*of), failed_of(*of))
    found = Value(DOUBLES[name](*(one.of for one in of)), valid_of(*of), failed_of(*of))
    if name in ("ln", "log", "log10"):
        # Numbers that are not positive have no logarithm: NULL; that of NaN is NaN.
        some = ~(of[0].of <= 0)
        valid = some if found.valid is None else found.valid & some
        return Value(found.of, valid, found.failed)
    return found


def _power(base: Any, exponent: Any) -> Any:
    """As in Java, 1 to the power of infinity or NaN is NaN."""
    odd = np.isnan(exponent) | (np.isinf(exponent) & (np.abs(base) == 1))
    return np.where(odd, np.nan, np.power(base, exponent))


def divide(name: str, left: Value, right: Value) -> Value:
    """A quotient or remainder, which has the sign of the dividend; Spark evaluates the divisor first."""
    valid, failed = valid_of(left, right), failed_of(right, left)
    zero = np.equal(right.of, 0)
    if np.any(zero):
        failed = either_set(failed, zero if valid is None else zero & valid)
    found = np.true_divide(left.of, right.of) if name == "/" else np.fmod(left.of, right.of)
    return Value(found, valid, failed)


@cache
def whole_numbers_overflow() -> bool:
    """Whether `floor` and `ceil` of a double beyond 64 bits fail: before Spark 4.3 they saturate."""
    try:
        release = metadata.version("pyspark").split(".")[:2]
    except metadata.PackageNotFoundError:
        return True
    return tuple(map(int, release)) >= (4, 3)


def round_to_whole(name: str, one: Value) -> Value:
    """`floor` or `ceil`; zero for NaN, as in Java."""
    if np.asarray(one.of).dtype.kind == "i":
        return one
    found = (np.floor if name == "floor" else np.ceil)(one.of)
    over, under = found >= 2.0**63, found < -(2.0**63)
    whole = np.where(over | under | np.isnan(found), 0, found).astype(np.int64)
    if not whole_numbers_overflow():
        largest = np.iinfo(np.int64)
        whole = np.where(over, largest.max, np.where(under, largest.min, whole))
        return Value(whole, one.valid, one.failed)
    beyond = over | under
    failed = beyond if one.valid is None else beyond & one.valid
    return Value(whole, one.valid, either_set(one.failed, failed))


def calculate(name: str, of: list[Value], kind: Kind) -> Value:
    """Sums, differences, products and absolute values."""
    valid, failed = valid_of(*of), failed_of(*of)
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
        failed = either_set(failed, beyond)
    return Value(found, valid, failed)


def _beyond(name: str, values: list[Any], found: Any, kind: Kind) -> Any:
    """Where a result, calculated in 64 bits, is out of the range of its type; None: nowhere."""
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
    # A 64-bit product is right if dividing it gives the factor; -1 is apart: its quotient may overflow.
    divisor = np.where((mine == 0) | (mine == -1), 1, mine)
    wrong = (found // divisor != theirs) | (found % divisor != 0)
    minus = (mine == -1) & (theirs == -kind.limit)
    return np.where((mine == 0) | (mine == -1), minus, wrong)


def _size(value: Any) -> int:
    """The largest absolute value among whole numbers."""
    if not np.size(value):
        return 0
    return max(int(np.max(value)), -int(np.min(value)))
