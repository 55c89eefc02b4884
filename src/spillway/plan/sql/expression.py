"""SQL conditions over columns of several streams, as data.

`parse("abs(a.x - b.x) < 3 and a.kind = 'car'")` gives a tree of `Column`, `Literal` and `Call`. What
the tree means is decided by the types of the columns (plan/sql/typed.py).

sqlglot reads the text as Spark's SQL; what of it is known here becomes our tree, and what is not is
refused by name, before a query starts.

Known limitation: CASE, casts of columns, `<=>`, LIKE and subqueries are not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from spillway.errors import PlanError
from spillway.plan.sql.kinds import DATE, INTERVAL, TIMESTAMP, TIMESTAMP_NTZ, Kind, kind_of

#: The functions that are known, with the number of their arguments.
FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(
        ("abs", "sqrt", "exp", "ln", "log10", "sin", "cos", "tan", "asin", "acos", "atan"), (1, 1)
    ),
    **dict.fromkeys(("radians", "degrees", "floor", "ceil", "sign"), (1, 1)),
    **dict.fromkeys(("length", "lower", "upper", "isnull", "isnotnull"), (1, 1)),
    **dict.fromkeys(("power", "atan2", "hypot"), (2, 2)),
    **dict.fromkeys(("least", "greatest", "coalesce"), (2, 64)),
}
#: What sqlglot calls them, where that is another name.
_SAME = {"pow": "power", "ceiling": "ceil", "signum": "sign", "char_length": "length"}
_BINARY: dict[type[sql.Expr], str] = {
    sql.Add: "+", sql.Sub: "-", sql.Mul: "*", sql.Div: "/", sql.Mod: "%",
    sql.LT: "<", sql.LTE: "<=", sql.GT: ">", sql.GTE: ">=", sql.EQ: "=", sql.NEQ: "!=",
    sql.And: "and", sql.Or: "or", sql.Pow: "power",
}  # fmt: skip
_COMPARISONS = {"<", "<=", ">", ">=", "=", "!="}
#: Types of constants that are written with a type: `DATE '2024-01-01'`, `3L`, `0.5D`.
_TIMES = {
    sql.DType.DATE: DATE,
    sql.DType.TIMESTAMPTZ: TIMESTAMP,
    sql.DType.TIMESTAMP: TIMESTAMP,
    sql.DType.TIMESTAMPNTZ: TIMESTAMP_NTZ,
}
_NUMBERS = {
    sql.DType.TINYINT: kind_of("tinyint"),
    sql.DType.SMALLINT: kind_of("smallint"),
    sql.DType.BIGINT: kind_of("bigint"),
    sql.DType.DOUBLE: kind_of("double"),
}
#: Microseconds of the units of intervals.
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}


@dataclass(frozen=True)
class Column:
    """A column of a stream."""

    stream: str
    name: str


@dataclass(frozen=True)
class Literal:
    """A constant; None is NULL. Times are text, and intervals are microseconds."""

    value: int | float | Decimal | str | bool | None
    #: Its type, where the value does not say it.
    kind: Kind | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Call:
    """An operator or a function of other expressions."""

    name: str
    of: tuple[Expression, ...]


Expression: TypeAlias = Column | Literal | Call


def parse(text: str) -> Expression:
    """A condition as a tree.

    Example:
        >>> parse("a.x BETWEEN 1 AND b.y")
        Call(name='and', of=(Call(name='>=', of=(Column(stream='a', name='x'), Literal(value=1))), \
Call(name='<=', of=(Column(stream='a', name='x'), Column(stream='b', name='y')))))
    """
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as problem:
        raise refused(text, "it cannot be read") from problem
    return _Reader(text).read(tree)


def columns_of(expression: Expression) -> Iterator[Column]:
    """The columns an expression reads, each as often as it does."""
    if isinstance(expression, Column):
        yield expression
    elif isinstance(expression, Call):
        for one in expression.of:
            yield from columns_of(one)


class _Reader:
    """The tree of sqlglot as ours."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, node: sql.Expr) -> Expression:
        if (name := _BINARY.get(type(node))) is not None:
            if name in _COMPARISONS and _BINARY.get(type(node.this)) in _COMPARISONS:
                raise refused(self._text, "comparisons of comparisons need parentheses")
            return Call(name, (self.read(node.this), self.read(node.expression)))
        match node:
            case sql.Paren():
                return self.read(node.this)
            case sql.Literal():
                return Literal(str(node.this) if node.is_string else _number(str(node.this)))
            case sql.Boolean():
                return Literal(bool(node.this))
            case sql.Null():
                return Literal(None)
            case sql.Column():
                return self._column(node)
            case sql.Neg():
                inner = self.read(node.this)
                match inner:
                    case Literal(value=bool()):
                        pass
                    case Literal(value=int() | float() | Decimal() as value, kind=kind):
                        return Literal(-value, kind)
                return Call("-", (inner,))
            case sql.Not(this=sql.Is(this=one, expression=sql.Null())):
                return Call("isnotnull", (self.read(one),))
            case sql.Not():
                return Call("not", (self.read(node.this),))
            case sql.Is(this=one, expression=sql.Null()):
                return Call("isnull", (self.read(one),))
            case sql.Between():
                one = self.read(node.this)
                low, high = (self.read(node.args[edge]) for edge in ("low", "high"))
                return Call("and", (Call(">=", (one, low)), Call("<=", (one, high))))
            case sql.In() if node.expressions:
                one = self.read(node.this)
                return Call("in", (one, *(self.read(value) for value in node.expressions)))
            case sql.NullSafeEQ():
                raise refused(self._text, "<=> is not known")
            case sql.Interval():
                return self._interval(node)
            case sql.Cast(this=sql.Literal()):
                return self._written(node)
            case sql.Case() | sql.Cast():
                raise refused(self._text, f"{node.sql(dialect='spark')} is not known")
            case sql.Func():
                return self._called(node)
            case _:
                raise refused(self._text, f"{node.sql(dialect='spark')} is not known")

    def _column(self, node: sql.Column) -> Expression:
        if not node.table or node.db:
            shown = node.sql(dialect="spark")
            raise refused(self._text, f"{shown} names no stream: write stream.column")
        return Column(node.table, node.name)

    def _interval(self, node: sql.Interval) -> Expression:
        unit = str(node.unit or "").upper().removesuffix("S")
        many = node.this.name if isinstance(node.this, sql.Literal) else ""
        if unit not in _UNITS or not many.removeprefix("-").isdecimal():
            shown = node.sql(dialect="spark")
            raise refused(self._text, f"{shown} is not known: write INTERVAL 5 MINUTES")
        return Literal(int(many) * _UNITS[unit], INTERVAL)

    def _written(self, node: sql.Cast) -> Expression:
        """A constant that is written with its type."""
        literal, kind = node.this, node.to.this
        if literal.is_string and kind in _TIMES:
            return Literal(literal.name, _TIMES[kind])
        if not literal.is_string and kind in _NUMBERS:
            number, found = _number(literal.name), _NUMBERS[kind]
            if found.floating:
                return Literal(float(literal.name), found)
            if isinstance(number, int) and number < found.limit:
                return Literal(number, found)
        raise refused(self._text, f"{node.sql(dialect='spark')} is not known")

    def _called(self, node: sql.Func) -> Expression:
        if isinstance(node, sql.Log) and node.expression is not None and node.this.name == "10":
            return Call("log10", (self.read(node.expression),))
        name = (node.name if isinstance(node, sql.Anonymous) else node.sql_name()).lower()
        known = _SAME.get(name, name)
        of = _arguments(node)
        least, most = FUNCTIONS.get(known, (0, -1))
        if known not in FUNCTIONS:
            raise refused(self._text, f"the function {name} is not known")
        if not least <= len(of) <= most:
            raise refused(self._text, f"the function {name} does not take {len(of)} arguments")
        return Call(known, tuple(self.read(one) for one in of))


def _arguments(node: sql.Func) -> Sequence[sql.Expr]:
    """What a function is given, in order."""
    if isinstance(node, sql.Anonymous):
        return list(node.expressions)
    found: list[sql.Expr] = []
    for value in node.args.values():
        found += [one for one in (value if isinstance(value, list) else [value]) if one is not None]
    return [one for one in found if isinstance(one, sql.Expr)]


def _number(text: str) -> int | float | Decimal:
    """What Spark takes a number for: with a point it is a decimal, with an exponent a double."""
    if text.isdecimal():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def refused(text: str, why: str, hint: str | None = None) -> PlanError:
    """That a condition cannot be used."""
    return PlanError(
        f"the condition {text!r} cannot be used: {why}",
        hint=hint
        or "use a Python function over the columns instead: .match(lambda a, b: ..., 'a', 'b')",
    )
