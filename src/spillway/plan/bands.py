"""Conditions that a sorted order can answer.

`abs(a.x - b.x) < 3`, `a.x - b.x between 1 and 2` and `a.x < 2 * b.y` have one form: a linear
expression in one column of each of two streams, compared with a constant. Given a row of one stream,
the values of the other that satisfy it are a range, found by binary search instead of by comparing all
pairs.

A range is a necessary condition, a little wider than what it was made of, so that rounding loses
nothing; the condition itself is evaluated on what is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.plan.expression import Call, Column, Expression, Literal, conjuncts

Floats = NDArray[np.float64]
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
#: What a calculation of a few steps may be off by, over the sum of its terms: in double precision, and
#: where a column has single precision.
_ROUNDING = 2.0**-44
_SINGLE = 2.0**-18


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

    def between(self, stream: str, other: str) -> Band | None:
        """The same, with `right` of one stream and `left` of the other; None if it is of others."""
        if (self.left.stream, self.right.stream) == (other, stream):
            return self
        if (self.right.stream, self.left.stream) == (other, stream):
            return Band(self.right, self.left, self.q, self.p, self.low, self.high, self.constants)
        return None

    def ranges(self, left: Floats, *, single: bool = False) -> tuple[Floats, Floats]:
        """For each value of `left`, the values of `right` between which partners are."""
        with np.errstate(over="ignore", invalid="ignore"):
            ends = [(bound - self.p * left) / self.q for bound in (self.low, self.high)]
            first, last = ends if self.q > 0 else ends[::-1]
            size = np.abs(self.p * left) + self.constants
            slack = size * ((_SINGLE if single else _ROUNDING) / abs(self.q)) + 1e-300
            return first - slack, last + slack


def bands_of(condition: Expression) -> tuple[Band, ...]:
    """The bands that must hold for a condition to hold; those of the same sum are one."""
    found: dict[tuple[Column, Column, float, float], Band] = {}
    for band in (band for one in conjuncts(condition) for band in _bands(one)):
        key = (band.left, band.right, band.p, band.q)
        known = found.get(key, band)
        low, high = max(known.low, band.low), min(known.high, band.high)
        found[key] = Band(*key, low, high, max(known.constants, band.constants))
    return tuple(found.values())


def _bands(one: Expression) -> Iterator[Band]:
    if not isinstance(one, Call) or one.name not in _FLIPPED:
        return
    left, right = one.of
    for size, other, name in ((left, right, one.name), (right, left, _FLIPPED[one.name])):
        # |e| < c is -c < e < c; for a negative c nothing satisfies either.
        if isinstance(size, Call) and size.name == "abs":
            bound, inner = _linear(other), _linear(size.of[0])
            if bound and inner and not bound.columns and name in ("<", "<=", "="):
                yield from _band(inner, -bound.constant, bound.constant, bound.constants)
            return
    mine, theirs = _linear(left), _linear(right)
    if mine is None or theirs is None:
        return
    gap = mine.plus(theirs, -1.0)
    low = -np.inf if one.name in ("<", "<=") else 0.0
    high = np.inf if one.name in (">", ">=") else 0.0
    yield from _band(gap, low, high, 0.0)


@dataclass(frozen=True)
class _Linear:
    columns: dict[Column, float]
    constant: float
    constants: float

    def plus(self, other: _Linear, times: float) -> _Linear:
        columns = dict(self.columns)
        for column, factor in other.columns.items():
            columns[column] = columns.get(column, 0.0) + factor * times
        sizes = self.constants + other.constants * abs(times)
        return _Linear(columns, self.constant + other.constant * times, sizes)

    def scaled(self, by: float) -> _Linear:
        return _Linear({}, 0.0, 0.0).plus(self, by)


def _band(of: _Linear, low: float, high: float, constants: float) -> Iterator[Band]:
    if len(of.columns) != 2 or not all(of.columns.values()):
        return
    (left, p), (right, q) = of.columns.items()
    if left.stream != right.stream:
        sizes = of.constants + constants
        yield Band(left, right, p, q, low - of.constant, high - of.constant, sizes)


def _linear(one: Expression) -> _Linear | None:
    match one:
        case Column():
            return _Linear({one: 1.0}, 0.0, 0.0)
        case Literal(value=bool()):
            return None
        case Literal(value=int() | float() as value):
            return _Linear({}, float(value), abs(float(value)))
        case Call(name="+" | "-" as name, of=(left, right)):
            mine, theirs = _linear(left), _linear(right)
            sign = 1.0 if name == "+" else -1.0
            return mine.plus(theirs, sign) if mine and theirs else None
        case Call(name="*", of=(left, right)):
            mine, theirs = _linear(left), _linear(right)
            if mine and theirs and not (mine.columns and theirs.columns):
                factor, other = (theirs, mine) if mine.columns else (mine, theirs)
                return other.scaled(factor.constant)
            return None
        case Call(name="/", of=(left, right)):
            mine, theirs = _linear(left), _linear(right)
            if mine and theirs and not theirs.columns and theirs.constant:
                return mine.scaled(1.0 / theirs.constant)
            return None
        case _:
            return None
