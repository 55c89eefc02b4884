"""Conditions that a sorted order can answer.

`abs(a.x - b.x) < 3`, `a.x - b.x between 1 and 2` and `a.x < 2 * b.y` have one form: a linear
expression in one column of each of two streams, compared with a constant. Given a row of one stream,
the values of the other that satisfy it are a range, found by binary search instead of by comparing all
pairs.

A range is a necessary condition, a little wider than what it was made of, so that rounding loses
nothing; the condition itself is evaluated on what is found. Where the condition says nothing else, it
need not be evaluated but at the ends of the range, where rounding decides. Columns are of numbers, of
dates or of timestamps; decimals have no bands.

NaN is in no range, but may satisfy the condition, being the largest number: a band knows whether it
does. Where a number that the condition calculates may leave its type (plan/sql/linear.py), judged by the
least and the largest value of both columns, no band of the condition is used, so that it does fail,
whichever way pairs are found.

Known limitation: a part of a condition that is no band, a product of columns say, is evaluated only on
pairs that the bands of other parts leave, and does not fail on others; nor does a band between other
streams than the two that are there first (operators/predicates/implied.py). Spark, too, does not say in
which order the parts of a condition are evaluated.
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
    """That low <= p * left + q * right <= high."""

    left: Column
    right: Column
    p: float
    q: float
    low: float
    high: float
    #: The sum of the sizes of all constants that were added up.
    constants: float
    #: Whether it does not hold where a value is NaN.
    ordered: bool = True
    #: What is calculated on the way, and may leave its type.
    sums: tuple[Sum, ...] = ()
    #: The sizes of p and q, before some terms cancelled others.
    factors: tuple[float, float] = (0.0, 0.0)

    def between(self, stream: str, other: str) -> Band | None:
        """The same, with `right` of one stream and `left` of the other; None if it is of others."""
        if (self.left.stream, self.right.stream) == (other, stream):
            return self
        if (self.right.stream, self.left.stream) == (other, stream):
            turned = replace(self, left=self.right, right=self.left, p=self.q, q=self.p)
            sums = tuple(one.turned() for one in self.sums)
            return replace(turned, sums=sums, factors=self.factors[::-1])
        return None

    def overflows(self, left: Span, right: Span) -> bool:
        """Whether something that is calculated from numbers between these ends may leave its type."""
        return any(one.leaves(left, right) for one in self.sums)

    def ranges(self, left: Floats, *, single: bool = False) -> tuple[Ends, Ends]:
        """For each value of `left`, the values of `right` between which partners are.

        First those beyond which none is, then those between which all are. There is no NaN in `left`.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            ends = [(bound - self.p * left) / self.q for bound in (self.low, self.high)]
            first, last = ends if self.q > 0 else ends[::-1]
            size = np.abs(self.p * left) + self.constants
            slack = size * (self._off(SINGLE if single else ROUNDING) / abs(self.q)) + 1e-300
            wide = first - slack, last + slack
            sure = np.maximum(first + slack, -LARGEST), np.minimum(last - slack, LARGEST)
        # Of infinite values the end may be unknown, and then anything may be a partner.
        for end, unknown in zip(wide, (-np.inf, np.inf), strict=True):
            end[np.isnan(end)] = unknown
        for end, none in zip(sure, (np.inf, -np.inf), strict=True):
            end[np.isnan(end)] = none
        return wide, sure

    def _off(self, rounding: float) -> float:
        """What p * left + q * right may be off by where it is at an end, over |p * left| + constants.

        k operations in a precision u are off by k u (F |left| + G |right| + constants), F and G being
        the factors. At an end |q * right| is |p * left| + constants at most. With m the largest of 1,
        F / |p| and G / |q| that is 2 k u m (|p * left| + constants), and twice that where `right` itself
        is off by it, as long as k u m is below a half. `rounding` is 4 k u for more operations than
        there are in a condition. Beyond that nothing is left but rounding, and all may be partners.
        """
        grown = max(1.0, self.factors[0] / abs(self.p), self.factors[1] / abs(self.q))
        off = rounding * grown
        return off if off < 1 else np.inf


def bands_of(condition: Typed) -> tuple[Band, ...]:
    """The bands that must hold for a condition to hold; those of the same sum are one."""
    found: dict[tuple[Column, Column, float, float], Band] = {}
    for band in (band for one in conjuncts(condition) for band in _bands(one)):
        key = (band.left, band.right, band.p, band.q)
        found[key] = _merged(found[key], band) if key in found else band
    return tuple(found.values())


def answered(condition: Typed) -> bool:
    """Whether the bands of a condition, all together, say just what it says."""
    return all(len(list(_bands(one))) == 1 and _plain(one) for one in conjuncts(condition))


def equalities(condition: Typed) -> Iterator[tuple[Column, Column]]:
    """Columns of two streams that must be equal for a condition to hold, and have no band."""
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
    """Whether a comparison is an inequality with every column once, so that rounding is as assumed."""
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
    # Where a constant is the larger side, or the same, NaN is not.
    larger = {"<": [theirs], "<=": [theirs], ">": [mine], ">=": [mine], "=": [mine, theirs]}
    ordered = any(not side.columns for side in larger[one.name])
    gap = mine.plus(theirs, -1.0)
    low = -np.inf if one.name in ("<", "<=") else 0.0
    high = np.inf if one.name in (">", ">=") else 0.0
    yield from _band(gap, low, high, 0.0, ordered=ordered)


def _inside(one: Typed) -> Typed:
    """A value before it became one of another type."""
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
