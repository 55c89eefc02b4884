"""Linear expressions in conditions: columns times factors, and a constant.

`linear` reads one from a part of a condition; `calculated` lists every number that Spark calculates
on the way to it, with its type. The bounds of the columns bound each of these numbers, and so tell
whether it can overflow its type, an error in ANSI mode: `Sum.leaves`.

Factors have double precision, whatever the types of the numbers. So results are off by a small
multiple of the *sizes*: the sum of the absolute values of all terms, where nothing cancels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from spillway.plan.sql.expression import Column
from spillway.plan.sql.kinds import Kind
from spillway.plan.sql.nodes import Applied, Constant, Read, Typed, parts_of

#: The relative error of a calculation of a few steps, over the sizes of its terms: in double precision,
#: and in single precision.
ROUNDING = 2.0**-44
SINGLE = 2.0**-18
LARGEST = float(np.finfo(np.float64).max)
_LARGEST_SINGLE = float(np.finfo(np.float32).max)
#: The least and the largest of some numbers.
Span = tuple[float, float]


@dataclass(frozen=True)
class Linear:
    """A sum of columns times factors, and a constant."""

    columns: dict[Column, float]
    constant: float
    #: The same with all signs positive, so that nothing cancels.
    factors: dict[Column, float]
    constants: float

    def plus(self, other: Linear, sign: float) -> Linear:
        """The sum or the difference of both."""
        return Linear(
            _sum(self.columns, other.columns, sign),
            self.constant + other.constant * sign,
            _sum(self.factors, other.factors, 1.0),
            self.constants + other.constants,
        )

    def scaled(self, by: float, size: float) -> Linear:
        """A multiple of it; `size` is the size of the terms that make the factor."""
        return Linear(
            _sum({}, self.columns, by),
            self.constant * by,
            _sum({}, self.factors, size),
            self.constants * size,
        )


@dataclass(frozen=True)
class Sum:
    """A number calculated from two columns, in a type that may overflow."""

    #: The factors of the columns, and the constant.
    terms: tuple[float, float, float]
    #: Their sizes, before terms cancelled.
    sizes: tuple[float, float, float]
    #: The first number that is too large.
    limit: float
    rounding: float = ROUNDING

    def turned(self) -> Sum:
        """The same with the columns in the other order."""
        (p, q, constant), (left, right, rest) = self.terms, self.sizes
        return Sum((q, p, constant), (right, left, rest), self.limit, self.rounding)

    def leaves(self, left: Span, right: Span) -> bool:
        """Whether it may overflow its type, where the columns are between these ends.

        Example:
            >>> gap = Sum((1.0, -1.0, 0.0), (1.0, 1.0, 0.0), 2.0**31)
            >>> gap.leaves((1.7e9, 1.8e9), (1.7e9, 1.8e9)), gap.leaves((1.7e9, 1.8e9), (-5e8, 0.0))
            (False, True)
        """
        least = most = self.terms[2]
        # Round first: the sizes together may exceed all numbers.
        slack = self.rounding * self.sizes[2]
        for factor, of, ends in zip(self.terms, self.sizes, (left, right), strict=False):
            low, high = sorted(factor * end for end in ends)
            least, most = least + low, most + high
            slack += self.rounding * of * max(map(abs, ends))
        # Whole numbers begin at -limit. Written this way round because NaN compares false.
        return not (least - slack > -self.limit - 1 and most + slack < self.limit)


def linear(one: Typed) -> Linear | None:
    """A part of a condition as a linear expression; None: it is not linear."""
    match one:
        case Read(column=column, kind=kind):
            known = kind.whole or kind.time or kind.floating
            return Linear({column: 1.0}, 0.0, {column: 1.0}, 0.0) if known else None
        case Constant(value=int() | float() | Decimal() as value, kind=kind) if (
            kind.name != "boolean"
        ):
            return Linear({}, float(value), {}, abs(float(value)))
        case Applied(name="to", of=(inner,)):
            return linear(inner)
        case Applied(name="-", of=(inner,)):
            negated = linear(inner)
            return negated.scaled(-1.0, 1.0) if negated else None
        case Applied(name="+" | "-" | "*" | "/" as name, of=(left, right)):
            mine, theirs = linear(left), linear(right)
            return _of_two(name, mine, theirs) if mine and theirs else None
        case _:
            return None


def _of_two(name: str, mine: Linear, theirs: Linear) -> Linear | None:
    if name in ("+", "-"):
        return mine.plus(theirs, 1.0 if name == "+" else -1.0)
    if name == "*" and not mine.columns:
        mine, theirs = theirs, mine
    by, size = theirs.constant, theirs.constants
    if theirs.columns or (name == "/" and not by):
        return None
    return mine.scaled(by, size) if name == "*" else mine.scaled(1.0 / by, size / abs(by) / abs(by))


def calculated(one: Typed) -> Iterator[tuple[Linear, Kind]]:
    """The linear numbers that Spark calculates for a part of a condition, and their types.

    For `abs(e)` and `-e` that includes -e: the least whole number has no opposite. Decimals are left
    out: they hold every result (plan/sql/typed.py).
    """
    for part in parts_of(one):
        yield from calculated(part)
    if not isinstance(one, Applied) or one.name not in ("+", "-", "*", "/", "abs"):
        return
    found = linear(Applied("-", one.of, one.kind) if one.name == "abs" else one)
    if found is not None and not one.kind.decimal:
        yield found, one.kind


def sum_of(of: Linear, kind: Kind, left: Column, right: Column) -> Sum:
    """A linear expression in two columns, with the limit of its type."""
    terms = of.columns.get(left, 0.0), of.columns.get(right, 0.0), of.constant
    sizes = of.factors.get(left, 0.0), of.factors.get(right, 0.0), of.constants
    if kind.name == "float":
        return Sum(terms, sizes, _LARGEST_SINGLE, SINGLE)
    return Sum(terms, sizes, LARGEST if kind.floating else float(kind.limit))


def _sum(
    mine: dict[Column, float], theirs: dict[Column, float], times: float
) -> dict[Column, float]:
    found = dict(mine)
    for column, factor in theirs.items():
        found[column] = found.get(column, 0.0) + factor * times
    return found
