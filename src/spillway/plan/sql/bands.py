"""Bands: conditions that a sorted order can answer.

`abs(a.x - b.x) < 3`, `a.x - b.x between 1 and 2` and `a.x < 2 * b.y` have one form: a linear
expression in one column of each of two streams, compared with a constant. For a row of one stream,
the matching values of the other are a range, which binary search finds.

A range is slightly wider than the band, so that rounding loses nothing; the condition then filters
the rows found. If the bands are equivalent to the condition, it filters only rows at the ends of a
range, where rounding decides. Columns hold numbers, dates or timestamps; decimals have no bands.

NaN is in no range but may satisfy the condition, as the largest number: a band knows whether it does.
If the least and largest values of both columns show that a condition can overflow
(plan/sql/linear.py), the join uses none of its bands, so that the overflow raises an error, as in Spark.

Known limitation: a part that is not a band, such as a product of columns, runs (and fails) only on
pairs that the bands of other parts leave; so does a band between streams that join later
(operators/predicates/implied.py). Spark does not define an order of evaluation either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spillway.plan.sql.expression import Column
from spillway.plan.sql.linear import (
    LARGEST,
    ROUNDING,
    SINGLE,
    Linear,
    Span,
    Sum,
    calculated,
    linear,
    sum_of,
)
from spillway.plan.sql.nodes import Applied, Read, Typed, parts_of

Floats = NDArray[np.float64]
#: The first and the last value of ranges.
Ends = tuple[Floats, Floats]
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class Band:
    """The condition low <= p * left + q * right <= high."""

    left: Column
    right: Column
    p: float
    q: float
    low: float
    high: float
    #: The sum of the absolute values of all constants.
    constants: float
    #: Whether it is false where a value is NaN.
    ordered: bool = True
    #: The numbers calculated on the way that may overflow.
    sums: tuple[Sum, ...] = ()
    #: The sizes of p and q, before terms cancelled.
    factors: tuple[float, float] = (0.0, 0.0)

    def between(self, stream: str, other: str) -> Band | None:
        """The band with `right` in the first stream and `left` in the other; None: it is of others."""
        if (self.left.stream, self.right.stream) == (other, stream):
            return self
        if (self.right.stream, self.left.stream) == (other, stream):
            turned = replace(self, left=self.right, right=self.left, p=self.q, q=self.p)
            sums = tuple(one.turned() for one in self.sums)
            return replace(turned, sums=sums, factors=self.factors[::-1])
        return None

    def overflows(self, left: Span, right: Span) -> bool:
        """Whether a number calculated from values between these ends may overflow."""
        return any(one.leaves(left, right) for one in self.sums)

    def ranges(self, left: Floats, *, single: bool = False) -> tuple[Ends, Ends]:
        """For each value of `left`, the range of `right` in which its partners are.

        First the ends beyond which no value is a partner, then those between which every value is.
        `left` has no NaN.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            ends = [(bound - self.p * left) / self.q for bound in (self.low, self.high)]
            first, last = ends if self.q > 0 else ends[::-1]
            size = np.abs(self.p * left) + self.constants
            slack = size * (self._off(SINGLE if single else ROUNDING) / abs(self.q)) + 1e-300
            wide = first - slack, last + slack
            sure = np.maximum(first + slack, -LARGEST), np.minimum(last - slack, LARGEST)
        # For infinite values an end may be unknown: then any value may be a partner.
        for end, unknown in zip(wide, (-np.inf, np.inf), strict=True):
            end[np.isnan(end)] = unknown
        for end, none in zip(sure, (np.inf, -np.inf), strict=True):
            end[np.isnan(end)] = none
        return wide, sure

    def _off(self, rounding: float) -> float:
        """The error of p * left + q * right at an end of a range, over |p * left| + constants.

        k operations in a precision u are off by k u (F |left| + G |right| + constants), where F and G
        are the factors. At an end, |q * right| is at most |p * left| + constants. With m the largest
        of 1, F / |p| and G / |q| that is 2 k u m (|p * left| + constants), and twice that where
        `right` itself is off by it, as long as k u m is below a half. `rounding` is 4 k u for more
        operations than a condition has. Beyond that only rounding is left, and every value may be a
        partner.
        """
        grown = max(1.0, self.factors[0] / abs(self.p), self.factors[1] / abs(self.q))
        off = rounding * grown
        return off if off < 1 else np.inf


def bands_of(condition: Typed) -> tuple[Band, ...]:
    """The bands that must hold for a condition to hold; bands over the same sum become one."""
    found: dict[tuple[Column, Column, float, float], Band] = {}
    for band in (band for one in conjuncts(condition) for band in _bands(one)):
        key = (band.left, band.right, band.p, band.q)
        found[key] = _merged(found[key], band) if key in found else band
    return tuple(found.values())


def answered(condition: Typed) -> bool:
    """Whether the bands of a condition together are equivalent to it."""
    return all(len(list(_bands(one))) == 1 and _plain(one) for one in conjuncts(condition))


def equalities(condition: Typed) -> Iterator[tuple[Column, Column]]:
    """Columns of two streams that must be equal for a condition to hold, without a band."""
    for one in conjuncts(condition):
        if isinstance(one, Applied) and one.name == "=" and not list(_bands(one)):
            match tuple(map(_inside, one.of)):
                case (Read(column=left), Read(column=right)) if left.stream != right.stream:
                    yield left, right


def conjuncts(one: Typed) -> Iterator[Typed]:
    """The conditions that must all hold."""
    if isinstance(one, Applied) and one.name == "and":
        for part in one.of:
            yield from conjuncts(part)
    else:
        yield one


def _merged(one: Band, other: Band) -> Band:
    return replace(
        one,
        low=max(one.low, other.low),
        high=min(one.high, other.high),
        constants=max(one.constants, other.constants),
        ordered=one.ordered or other.ordered,
        sums=tuple(dict.fromkeys(one.sums + other.sums)),
        factors=(max(one.factors[0], other.factors[0]), max(one.factors[1], other.factors[1])),
    )


def _plain(one: Typed) -> bool:
    """Whether it is an inequality with every column once, which the rounding bound assumes."""
    return isinstance(one, Applied) and one.name != "=" and len(list(_columns(one))) == 2


def _columns(one: Typed) -> Iterator[Column]:
    if isinstance(one, Read):
        yield one.column
    for part in parts_of(one):
        yield from _columns(part)


def _bands(one: Typed) -> Iterator[Band]:
    if not isinstance(one, Applied) or one.name not in _FLIPPED:
        return
    for band in _compared(one):
        sums = (sum_of(*some, band.left, band.right) for some in calculated(one))
        yield replace(band, sums=tuple(dict.fromkeys(sums)))


def _compared(one: Applied) -> Iterator[Band]:
    left, right = one.of
    for size, other, name in ((left, right, one.name), (right, left, _FLIPPED[one.name])):
        # |e| < c is -c < e < c; for a negative c nothing satisfies either.
        inside = _inside(size)
        if isinstance(inside, Applied) and inside.name == "abs":
            bound, inner = linear(other), linear(inside.of[0])
            if bound and inner and not bound.columns and name in ("<", "<=", "="):
                ends = (-bound.constant, bound.constant)
                yield from _band(inner, *ends, bound.constants, ordered=True)
            return
    mine, theirs = linear(left), linear(right)
    if mine is None or theirs is None:
        return
    # Where a constant is the larger side, or equal, NaN does not satisfy it.
    larger = {"<": [theirs], "<=": [theirs], ">": [mine], ">=": [mine], "=": [mine, theirs]}
    ordered = any(not side.columns for side in larger[one.name])
    gap = mine.plus(theirs, -1.0)
    low = -np.inf if one.name in ("<", "<=") else 0.0
    high = np.inf if one.name in (">", ">=") else 0.0
    yield from _band(gap, low, high, 0.0, ordered=ordered)


def _inside(one: Typed) -> Typed:
    """A value before its conversion to another type."""
    return _inside(one.of[0]) if isinstance(one, Applied) and one.name == "to" else one


def _band(
    of: Linear, low: float, high: float, constants: float, *, ordered: bool
) -> Iterator[Band]:
    if len(of.columns) != 2 or not all(map(_counts, of.columns.values())):
        return
    (left, p), (right, q) = of.columns.items()
    if left.stream != right.stream:
        ends = (low - of.constant, high - of.constant, of.constants + constants)
        yield Band(left, right, p, q, *ends, ordered, (), (of.factors[left], of.factors[right]))


def _counts(factor: float) -> bool:
    return factor != 0 and bool(np.isfinite(factor))
