"""`can_fail`: whether a condition may raise an error on some pair of rows.

In ANSI mode, division by zero and whole numbers out of the range of their type are errors. Floating
point numbers have infinity instead, and decimals hold every result (plan/sql/typed.py). All conversions
are to wider types.
"""

from __future__ import annotations

from spillway.plan.sql.nodes import Applied, Constant, Typed, parts_of


def can_fail(one: Typed) -> bool:
    """Whether a condition, or a part of it, may fail.

    Example:
        >>> from spillway.plan.sql.kinds import BIGINT, DOUBLE
        >>> ten = Constant(10, DOUBLE)
        >>> can_fail(Applied("/", (ten, ten), DOUBLE)), can_fail(Applied("+", (ten, ten), BIGINT))
        (False, True)
    """
    return _fails(one) or any(map(can_fail, parts_of(one)))


def _fails(one: Typed) -> bool:
    match one:
        case Applied(name="/" | "%", of=(_, Constant(value=divisor))):
            return divisor == 0
        case Applied(name="/" | "%"):
            return True
        case Applied(name="+" | "-" | "*" | "abs", kind=kind):
            return kind.whole or kind.time
        case Applied(name="floor" | "ceil", of=(inner,)):
            return inner.kind.floating
        case _:
            return False
