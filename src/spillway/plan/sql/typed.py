"""`typed`: gives every part of a SQL condition the type that Spark would give it.

It also marks conversions to another type (plan/sql/kinds.py). It rejects what has no type before a
query starts, so operators/predicates/evaluation.py knows every node it meets.

A text constant compared with a date or a timestamp becomes one, in the session's time zone. Decimals
can be added, multiplied and compared if 38 digits hold every result; they cannot be divided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from spillway.errors import PlanError
from spillway.plan.sql.expression import Call, Column, Expression, Literal, refused
from spillway.plan.sql.kinds import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    Kind,
    common,
    decimal_of,
)
from spillway.plan.sql.nodes import (
    COMPARISONS,
    Applied,
    Constant,
    Read,
    SqlCondition,
    Typed,
    shown,
)
from spillway.plan.sql.times import DAY_US, UnknownZone, is_steady, time_of

#: Functions of doubles.
_OF_DOUBLES = (
    *("sqrt", "exp", "ln", "log", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    *("radians", "degrees", "sign", "power", "hypot"),
)
_CAST = "cast the column in its stream, before the join, or use a Python function over the columns"
_EXACT = (
    "with decimals a result has at most 38 digits, and /, %, floor and ceil are not supported: cast "
    "the column to double in its stream, before the join, or write 0.5D for a constant"
)


def typed(
    text: str,
    expression: Expression,
    kinds: Mapping[Column, Kind],
    zone: str = "UTC",
) -> SqlCondition:
    """A condition with its types; raises where Spark would reject it, or mean something else by it.

    Example:
        >>> from spillway.plan.sql.expression import parse
        >>> x, y = Column("a", "x"), Column("b", "y")
        >>> str(typed("a.x < b.y", parse("a.x < b.y"), {x: INT, y: DOUBLE}).root.of[0].kind)
        'double'
    """
    root = _Typist(text, kinds, zone).typed(expression)
    if root.kind not in (BOOLEAN, VOID):
        raise refused(text, f"it is of type {root.kind}, not boolean", "compare it with a value")
    return SqlCondition(text, root)


class _Typist:
    def __init__(self, text: str, kinds: Mapping[Column, Kind], zone: str) -> None:
        self._text = text
        self._kinds = kinds
        self._zone = zone

    def typed(self, one: Expression) -> Typed:
        match one:
            case Column():
                return Read(one, self._kinds[one])
            case Literal(value=value, kind=kind):
                if kind is not None and kind.time:
                    return self._time(str(value), kind)
                found = kind or _kind_of(value)
                if found is None:
                    raise self._refused(f"{value} has more digits than any type holds", _CAST)
                return Constant(value, found)
            case Call(name=name, of=of):
                return self._applied(name, [self.typed(inner) for inner in of])

    def _applied(self, name: str, of: list[Typed]) -> Typed:
        if name in ("isnull", "isnotnull"):
            return Applied(name, tuple(of), BOOLEAN)
        taken = (VOID, INTERVAL) if name in ("+", "-") else (VOID,)
        if not all(one.kind.known or one.kind in taken for one in of):
            raise self._unfit(name, of, _CAST)
        match name:
            case "between":
                one, low, high = of
                ends = [self._applied(">=", [one, low]), self._applied("<=", [one, high])]
                return self._applied("and", ends)
            case "and" | "or" | "not":
                return self._of(name, of, BOOLEAN, BOOLEAN, "compare it with a value")
            case "length" | "lower" | "upper":
                return self._of(name, of, STRING, INT if name == "length" else STRING, _CAST)
            case "in" | "least" | "greatest" | "coalesce":
                alike = self._alike(name, of)
                return Applied(name, alike, BOOLEAN if name == "in" else alike[0].kind)
            case _ if name in COMPARISONS:
                return Applied(name, self._alike(name, of), BOOLEAN)
            case "+" | "-" if any(one.kind == INTERVAL for one in of):
                return self._later(name, of)
        return self._calculated(name, of)

    def _of(self, name: str, of: list[Typed], wanted: Kind, kind: Kind, hint: str) -> Typed:
        """A function of values of one type."""
        if any(one.kind not in (wanted, VOID) for one in of):
            raise self._unfit(name, of, hint)
        return Applied(name, tuple(_to(one, wanted) for one in of), kind)

    def _alike(self, name: str, of: Sequence[Typed]) -> tuple[Typed, ...]:
        """Values, converted to the type they have in common."""
        times = [one.kind for one in of if one.kind.time]
        if times and name not in ("least", "greatest"):
            of = [self._as_time(one, times[0]) for one in of]
        shared = VOID
        for one in of:
            found = common(shared, _narrow(one, of))
            if found is None:
                raise self._unfit(name, of, _hint(of))
            shared = found
        return tuple(_to(one, shared) for one in of)

    def _calculated(self, name: str, of: list[Typed]) -> Typed:
        if not all(one.kind.number or one.kind == VOID for one in of):
            raise self._unfit(name, of, _hint(of))
        if name in _OF_DOUBLES:
            return Applied(name, tuple(_to(one, DOUBLE) for one in of), DOUBLE)
        decimals = any(one.kind.decimal for one in of)
        floating = any(one.kind.floating for one in of)
        if decimals and floating:
            of, decimals = [_to(one, DOUBLE) for one in of], False
        if name in ("floor", "ceil") and not decimals:
            wanted = DOUBLE if floating else BIGINT
            return Applied(name, (_to(of[0], wanted),), BIGINT)
        if name == "/" and not decimals:
            return Applied(name, tuple(_to(one, DOUBLE) for one in of), DOUBLE)
        if decimals and (name in ("+", "-", "*") or len(of) == 1) and name not in ("floor", "ceil"):
            return self._of_decimals(name, of)
        if decimals:
            raise self._unfit(name, of, _EXACT)
        if all(one.kind == VOID for one in of):
            of = [_to(one, DOUBLE) for one in of]
        alike = self._alike(name, of)
        return Applied(name, alike, alike[0].kind)

    def _of_decimals(self, name: str, of: list[Typed]) -> Typed:
        if len(of) == 1:
            return Applied(name, tuple(of), of[0].kind)
        kinds = [_narrow(one, of) for one in of]
        (mine, my_scale), (theirs, their_scale) = (
            (1, 0) if kind == VOID else kind.digits for kind in kinds
        )
        if name == "*":
            found = decimal_of(mine + theirs + 1, my_scale + their_scale)
        else:
            scale = max(my_scale, their_scale)
            found = decimal_of(max(mine - my_scale, theirs - their_scale) + scale + 1, scale)
        if found is None:
            raise self._unfit(name, of, _EXACT)
        exact = [
            _to(one, Kind("decimal", *((1, 0) if kind == VOID else kind.digits)))
            for one, kind in zip(of, kinds, strict=True)
        ]
        return Applied(name, tuple(exact), found)

    # Times

    def _later(self, name: str, of: list[Typed]) -> Typed:
        """A timestamp and an interval; a day need not have 24 hours in the session's zone."""
        moments = [one for one in of if one.kind in (TIMESTAMP, TIMESTAMP_NTZ)]
        fits = len(of) == 2 and len(moments) == 1 and (name == "+" or of[0] is moments[0])
        if not fits:
            raise self._unfit(name, of, "add an interval to a timestamp: b.ts + INTERVAL 5 MINUTES")
        [length] = [one for one in of if one.kind == INTERVAL]
        assert isinstance(length, Constant)
        assert isinstance(length.value, int)
        kind = moments[0].kind
        if kind == TIMESTAMP and abs(length.value) >= DAY_US and not is_steady(self._zone):
            raise self._unfit(
                name,
                of,
                f"not all days have 24 hours in {self._zone}, the session's time zone: use intervals "
                "below a day, or timestamp_ntz",
            )
        return Applied(name, tuple(replace(o, kind=kind) if o is length else o for o in of), kind)

    def _as_time(self, one: Typed, kind: Kind) -> Typed:
        """A text constant next to a time is a time."""
        if isinstance(one, Constant) and one.kind == STRING:
            return self._time(str(one.value), kind)
        return one

    def _time(self, text: str, kind: Kind) -> Constant:
        try:
            found = time_of(text, kind, self._zone)
        except UnknownZone as problem:
            raise self._refused(
                f"this machine does not know {self._zone}, the session's time zone",
                f"write '{text}Z'",
            ) from problem
        if found is None:
            wanted = "yyyy-mm-dd" if kind == DATE else "yyyy-mm-dd hh:mm:ss"
            raise self._refused(f"{text!r} is not a valid {kind}", f"write it as '{wanted}'")
        return Constant(found, kind)

    # Errors

    def _unfit(self, name: str, of: Sequence[Typed], hint: str) -> PlanError:
        operands = " and ".join(shown(one) for one in of)
        logical = name in ("and", "or", "not")
        says = "takes conditions, not" if logical else "does not take"
        return self._refused(f"{name} {says} {operands}", hint)

    def _refused(self, why: str, hint: str) -> PlanError:
        return refused(self._text, why, hint)


def _hint(of: Sequence[Typed]) -> str:
    kinds = [one.kind for one in of]
    written = any(isinstance(one, Constant) and one.kind == STRING for one in of)
    if written and any(kind.number for kind in kinds):
        return "write the number without quotes"
    if any(kind.decimal for kind in kinds):
        return _EXACT
    return _CAST


def _narrow(one: Typed, operands: Sequence[Typed]) -> Kind:
    """The type of a value; next to decimals a constant has only the digits it needs."""
    if isinstance(one, Constant) and one.kind.whole and any(o.kind.decimal for o in operands):
        return Kind("decimal", len(str(abs(int(one.value or 0)))), 0)
    return one.kind


def _kind_of(value: int | float | Decimal | str | bool | None) -> Kind | None:
    match value:
        case None:
            return VOID
        case bool():
            return BOOLEAN
        case int() if -INT.limit <= value < INT.limit:
            return INT
        case int() if -BIGINT.limit <= value < BIGINT.limit:
            return BIGINT
        case int():
            return decimal_of(len(str(abs(value))), 0)
        case float():
            return DOUBLE
        case Decimal():
            _, digits, exponent = value.as_tuple()
            scale = -int(exponent)
            return decimal_of(max(len(digits), scale), scale)
        case str():
            return STRING


def _to(one: Typed, kind: Kind) -> Typed:
    """A value, converted to another type."""
    if one.kind == kind:
        return one
    if isinstance(one, Constant):
        value = one.value
        if value is not None and kind == DOUBLE:
            value = float(value)
        return Constant(value, kind)
    return Applied("to", (one,), kind)
