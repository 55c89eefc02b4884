"""Bounds on the distance in time between streams, and the windows that follow from them.

Every bound is a list of differences: `t_a - t_b <= c`, in whole microseconds, so `<` is `<=` with a
microsecond less. `a.ts BETWEEN b.ts AND b.ts + INTERVAL 10 MINUTES` is `b - a <= 0` and
`a - b <= 10 min`; `abs(a.ts - b.ts) < INTERVAL 1 HOUR` is two differences, too. Differences add up: from
`a - b <= 1` and `b - c <= 2` follows `a - c <= 3`. `closure` finds the least of all that follow.

A join has one window W for each stream: a combination is a result if `T - t < W` for each of its
rows, where T is its latest time. So `W_b` is the largest `t_a - t_b` that the bounds allow, plus one.
The windows admit every combination that the bounds admit. A bound that they imply needs no other
check; the others stay conditions. So windows never change a result: they say when the join can forget a
row.

Known limitation: a stream has one time column in the windows. Bounds on others stay conditions.
A difference of timestamps counts local time in Spark, so it is a bound only where all days have 24
hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import expressions as sql

from spillway.plan.sql.expression import UNITS, Column
from spillway.plan.sql.query.values import Value, quoted

_DAY_US = UNITS["DAY"]
_COMPARED: dict[type[sql.Expr], str] = {
    sql.LT: "<", sql.LTE: "<=", sql.GT: ">", sql.GTE: ">=", sql.EQ: "=",
}  # fmt: skip
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class Difference:
    """The bound `later - earlier <= most_us`."""

    later: Column
    earlier: Column
    most_us: int

    @property
    def sql(self) -> str:
        """The bound as a condition; intervals have no sign."""
        later, earlier = (
            f"{quoted(one.stream)}.{quoted(one.name)}" for one in (self.later, self.earlier)
        )
        if self.most_us < 0:
            later += f" + {_written(-self.most_us)}"
        elif self.most_us > 0:
            earlier += f" + {_written(self.most_us)}"
        return f"{later} <= {earlier}"


def _written(us: int) -> str:
    """A length of time in the largest unit that fits."""
    unit = max((one for one in UNITS if us % UNITS[one] == 0), key=lambda one: UNITS[one])
    return f"INTERVAL {us // UNITS[unit]} {unit}"


@dataclass(frozen=True)
class Times:
    """What decides whether a comparison is a bound: the types of columns, and the session's zone."""

    #: The type of every column, as DDL text.
    kinds: Mapping[Column, str]
    #: Whether all days have 24 hours in the session's time zone.
    steady: bool

    def kind(self, column: Column) -> str:
        """The type of a time, or nothing for other columns."""
        found = self.kinds.get(column, "")
        return found if found in ("timestamp", "timestamp_ntz") else ""


@dataclass(frozen=True)
class _Side:
    """A sum: columns added, columns subtracted, and microseconds."""

    plus: tuple[Column, ...] = ()
    minus: tuple[Column, ...] = ()
    us: int = 0

    def negative(self) -> _Side:
        return _Side(self.minus, self.plus, -self.us)

    def and_also(self, other: _Side) -> _Side:
        return _Side(self.plus + other.plus, self.minus + other.minus, self.us + other.us)


def bound_of(value: Value, times: Times) -> tuple[Difference, ...]:
    """The differences that a condition is equivalent to; none: it is not a bound."""
    if len(value.streams) != 2 or _has_compound_interval(value):
        return ()
    if len({times.kind(column) for column in value.columns}) != 1:
        return ()
    tree = _bare(value.tree)
    if isinstance(tree, sql.Between):
        low = _compared(tree.this, ">=", tree.args["low"], times)
        high = _compared(tree.this, "<=", tree.args["high"], times)
        return (*low, *high) if low and high else ()
    name = _COMPARED.get(type(tree))
    return () if name is None else _compared(tree.this, name, tree.expression, times)


def _compared(left: sql.Expr, name: str, right: sql.Expr, times: Times) -> tuple[Difference, ...]:
    """The differences behind `left name right`."""
    if _absolute(right) is not None and _absolute(left) is None:
        left, name, right = right, _FLIPPED[name], left
    inner = _absolute(left)
    one, other = _side(left if inner is None else inner, times), _side(right, times)
    if one is None or other is None:
        return ()
    if inner is not None:
        if name not in ("<", "<=") or other.plus or other.minus:
            return ()
        return _all(_at_most(side, other, name == "<") for side in (one, one.negative()))
    if name == "=":
        return _all((_at_most(one, other), _at_most(other, one)))
    low, high = (one, other) if name in ("<", "<=") else (other, one)
    return _at_most(low, high, name in ("<", ">"))


def _all(found: Iterable[tuple[Difference, ...]]) -> tuple[Difference, ...]:
    """The differences of several comparisons, if each is a bound."""
    both = list(found)
    return tuple(one for some in both for one in some) if all(both) else ()


def _at_most(low: _Side, high: _Side, strict: bool = False) -> tuple[Difference, ...]:
    """The differences behind `low <= high`."""
    sides = low.and_also(high.negative())
    if len(sides.plus) != 1 or len(sides.minus) != 1:
        return ()
    [later], [earlier] = sides.plus, sides.minus
    return (Difference(later, earlier, -sides.us - strict),)


def _bare(node: sql.Expr) -> sql.Expr:
    while isinstance(node, sql.Paren):
        node = node.this
    return node


def _absolute(node: sql.Expr) -> sql.Expr | None:
    """What stands in abs(...)."""
    node = _bare(node)
    if (
        isinstance(node, sql.Anonymous)
        and node.name.lower() == "abs"
        and len(node.expressions) == 1
    ):
        inner: sql.Expr = node.expressions[0]
        return inner
    return None


def _side(node: sql.Expr, times: Times) -> _Side | None:
    """A sum of times and intervals; None: it has something else, or its length depends on the zone."""
    match node:
        case sql.Paren():
            return _side(node.this, times)
        case sql.Column() if node.table and not node.args.get("db"):
            column = Column(node.table, node.name)
            return _Side(plus=(column,)) if times.kind(column) else None
        case sql.Interval():
            us = interval_us(node)
            uneven = us is None or (abs(us) >= _DAY_US and not times.steady)
            return None if us is None or uneven else _Side(us=us)
        case sql.Neg():
            inner = _side(node.this, times)
            return None if inner is None or inner.plus or inner.minus else inner.negative()
        case sql.Add() | sql.Sub():
            left, right = _side(node.this, times), _side(node.expression, times)
            if left is None or right is None:
                return None
            if isinstance(node, sql.Add):
                return left.and_also(right)
            difference = [*left.plus, *right.plus] if left.plus and right.plus else []
            return left.and_also(right.negative()) if _even(difference, times) else None
    return None


def _even(columns: Sequence[Column], times: Times) -> bool:
    """Whether a difference of these times is a length of time."""
    return times.steady or {times.kind(one) for one in columns} <= {"timestamp_ntz"}


def interval_us(node: sql.Interval) -> int | None:
    """The length of an interval with one unit, in microseconds."""
    unit = str(node.unit or "").upper().removesuffix("S")
    text = node.this.name if isinstance(node.this, sql.Literal) else ""
    digits = text.strip().removeprefix("-").removeprefix("+")
    if unit not in UNITS or not digits.isdecimal():
        return None
    return int(text.strip()) * UNITS[unit]


def _has_compound_interval(value: Value) -> bool:
    """Whether an interval has several units: sqlglot reads INTERVAL 1 HOUR 30 MINUTES as a sum."""
    tokens = value.place.tokens
    for at, token in enumerate(tokens):
        if str(token.text).lower() == "interval" and at + 3 < len(tokens):
            follows = str(tokens[at + 3].text)
            if follows[:1].isdigit() or str(tokens[at + 3].token_type).endswith("STRING"):
                return True
    return False


def closure(
    streams: Sequence[str], differences: Sequence[Difference]
) -> dict[tuple[str, str], float]:
    """The least bound on the difference of each pair of streams; infinite if there is none."""
    least = {(a, b): 0.0 if a == b else math.inf for a in streams for b in streams}
    for one in differences:
        pair = one.later.stream, one.earlier.stream
        least[pair] = min(least[pair], one.most_us)
    for middle in streams:
        for a in streams:
            for b in streams:
                least[a, b] = min(least[a, b], least[a, middle] + least[middle, b])
    return least


def _pairs(
    streams: Sequence[str], differences: Sequence[Difference], optional: Sequence[str]
) -> dict[tuple[str, str], float]:
    """The bounds of all pairs; what follows from an optional stream holds only where that is there."""
    if not optional:
        return closure(streams, differences)
    found = {}
    for a in streams:
        for b in streams:
            there = [one for one in streams if one not in optional or one in (a, b)]
            known = [d for d in differences if {d.later.stream, d.earlier.stream} <= {*there}]
            found[a, b] = closure(there, known)[a, b]
    return found


def windows_of(
    streams: Sequence[str], differences: Sequence[Difference], optional: Sequence[str] = ()
) -> dict[str, int] | None:
    """The window of each stream in microseconds; None: rows of some stream never expire."""
    least = _pairs(streams, differences, optional)
    found = {}
    for stream in streams:
        most = max(0.0, *(least[other, stream] for other in streams))
        if math.isinf(most):
            return None
        found[stream] = int(most) + 1
    return found


def unbounded(
    streams: Sequence[str], differences: Sequence[Difference], optional: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Pairs (a, b) where no bound says how much later than b a row of a may be."""
    least = _pairs(streams, differences, optional)
    return [pair for pair, most in least.items() if math.isinf(most)]


def is_implied(differences: Sequence[Difference], windows: Mapping[str, int]) -> bool:
    """Whether windows alone keep every difference of a condition."""
    return all(windows[one.earlier.stream] - 1 <= one.most_us for one in differences)
