"""SQL conditions over columns of several streams, as data.

`parse("abs(a.x - b.x) < 3 and a.kind = 'car'")` returns a tree of `Column`, `Literal` and `Call`.
The types of the columns decide what the tree means (plan/sql/typed.py).

sqlglot parses the text as Spark SQL. What this module supports becomes our tree; everything else
raises an error that names it, before a query starts. sqlglot's order of precedence is not always
Spark's. So `written` (plan/sql/written.py) renders the tree with all its parentheses, and `match()`
asks Spark whether both texts mean the same (spark/api/expressions/meaning.py). The tree keeps the
form of the text for that: BETWEEN is one call.

Known limitation: CASE, casts of columns, `<=>`, LIKE and subqueries are not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

import sqlglot
from sqlglot import expressions as sql
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from spillway.errors import PlanError
from spillway.plan.sql.kinds import DATE, INTERVAL, TIMESTAMP, TIMESTAMP_NTZ, Kind, kind_of

#: The supported functions, with the least and largest number of their arguments.
FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(
        ("abs", "sqrt", "exp", "ln", "log", "log10", "sin", "cos", "tan", "asin", "acos", "atan"),
        (1, 1),
    ),
    **dict.fromkeys(("radians", "degrees", "floor", "ceil", "sign"), (1, 1)),
    **dict.fromkeys(("length", "lower", "upper", "isnull", "isnotnull"), (1, 1)),
    **dict.fromkeys(("power", "atan2", "hypot", "%"), (2, 2)),
    **dict.fromkeys(("least", "greatest", "coalesce"), (2, 64)),
}
#: Other names of these functions in Spark.
_SAME = {
    "pow": "power", "ceiling": "ceil", "signum": "sign", "mod": "%", "lcase": "lower", "ucase": "upper",
    **dict.fromkeys(("char_length", "character_length", "len"), "length"),
    **dict.fromkeys(("nvl", "ifnull"), "coalesce"),
}  # fmt: skip
_BINARY: dict[type[sql.Expr], str] = {
    sql.Add: "+", sql.Sub: "-", sql.Mul: "*", sql.Div: "/", sql.Mod: "%",
    sql.LT: "<", sql.LTE: "<=", sql.GT: ">", sql.GTE: ">=", sql.EQ: "=", sql.NEQ: "!=",
    sql.And: "and", sql.Or: "or",
}  # fmt: skip
_COMPARISONS = {"<", "<=", ">", ">=", "=", "!="}
#: Types of constants written with a type: `DATE '2024-01-01'`, `3L`, `0.5D`.
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


class _Functions(Spark.Parser):  # type: ignore[misc,valid-type]  # sqlglot makes it at run time
    """Leaves functions as they are written; sqlglot would rewrite some: log10(x) to log(10, x)."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}


class Plain(Spark):
    """Spark SQL with functions as they are written."""

    Parser = _Functions


#: Microseconds of the units of intervals.
UNITS = {
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
    """A constant; None is NULL. Times are text, intervals are microseconds."""

    value: int | float | Decimal | str | bool | None
    #: Its type, where it does not follow from the value.
    kind: Kind | None = field(default=None, repr=False)
    #: The unit in which an interval is written.
    unit: str = field(default="", repr=False)


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
        Call(name='between', of=(Column(stream='a', name='x'), Literal(value=1), \
Column(stream='b', name='y')))
    """
    try:
        tree = sqlglot.parse_one(text, dialect=Plain)
    except SqlglotError as problem:
        raise refused(text, "it cannot be parsed") from problem
    return _Reader(text).read(tree)


def columns_of(expression: Expression) -> Iterator[Column]:
    """The columns an expression reads, once for each use."""
    if isinstance(expression, Column):
        yield expression
    elif isinstance(expression, Call):
        for one in expression.of:
            yield from columns_of(one)


class _Reader:
    """Turns sqlglot's tree into ours."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, node: sql.Expr) -> Expression:
        if (name := _BINARY.get(type(node))) is not None:
            return self._binary(name, node)
        for kind, reading in _READINGS:
            if isinstance(node, kind):
                return reading(self, node)
        raise self._unknown(node)

    def _binary(self, name: str, node: sql.Expr) -> Expression:
        if name in _COMPARISONS and any(map(_is_condition, (node.this, node.expression))):
            raise refused(
                self._text, "comparisons of conditions need parentheses", "write (a.x < b.x) = a.y"
            )
        return Call(name, (self.read(node.this), self.read(node.expression)))

    def _inner(self, node: sql.Paren) -> Expression:
        return self.read(node.this)

    # Constants

    def _literal(self, node: sql.Literal) -> Expression:
        return Literal(str(node.this) if node.is_string else _number(str(node.this)))

    def _boolean(self, node: sql.Boolean) -> Expression:
        return Literal(bool(node.this))

    def _null(self, _: sql.Null) -> Expression:
        return Literal(None)

    def _negative(self, node: sql.Neg) -> Expression:
        inner = self.read(node.this)
        # Only a number right behind the sign is a negative constant: -1, but not -(1) or - -1.
        if not isinstance(node.this, sql.Neg | sql.Paren):
            match inner:
                case Literal(value=bool()):
                    pass
                case Literal(value=int() | float() | Decimal() as value, kind=kind):
                    return Literal(-value, kind)
        return Call("-", (inner,))

    # Conditions

    def _not(self, node: sql.Not) -> Expression:
        match node.this:
            case sql.Is(this=one, expression=sql.Null()):
                return Call("isnotnull", (self.read(one),))
        return Call("not", (self.read(node.this),))

    def _is(self, node: sql.Is) -> Expression:
        if not isinstance(node.expression, sql.Null):
            raise self._unknown(node)
        return Call("isnull", (self.read(node.this),))

    def _between(self, node: sql.Between) -> Expression:
        one = self.read(node.this)
        low, high = (self.read(node.args[edge]) for edge in ("low", "high"))
        return Call("between", (one, low, high))

    def _in(self, node: sql.In) -> Expression:
        if not node.expressions:
            raise self._unknown(node)
        one = self.read(node.this)
        return Call("in", (one, *(self.read(value) for value in node.expressions)))

    def _null_safe(self, _: sql.NullSafeEQ) -> Expression:
        raise refused(self._text, "<=> is not supported")

    # Columns, times and functions

    def _column(self, node: sql.Column) -> Expression:
        if not node.table or node.db:
            shown = node.sql(dialect="spark")
            raise refused(self._text, f"{shown} does not name a stream: write stream.column")
        return Column(node.table, node.name)

    def _interval(self, node: sql.Interval) -> Expression:
        unit = str(node.unit or "").upper().removesuffix("S")
        many = node.this.name if isinstance(node.this, sql.Literal) else ""
        if unit not in UNITS or not many.removeprefix("-").isdecimal():
            shown = node.sql(dialect="spark")
            raise refused(self._text, f"{shown} is not supported: write INTERVAL 5 MINUTES")
        return Literal(int(many) * UNITS[unit], INTERVAL, unit)

    def _cast(self, node: sql.Cast) -> Expression:
        """A constant that is written with its type; other casts are not supported."""
        literal, kind = node.this, node.to.this
        if not isinstance(literal, sql.Literal):
            raise self._unknown(node)
        if literal.is_string and kind in _TIMES:
            return Literal(literal.name, _TIMES[kind])
        if not literal.is_string and kind in _NUMBERS:
            number, found = _number(literal.name), _NUMBERS[kind]
            if found.floating:
                return Literal(float(literal.name), found)
            if isinstance(number, int) and number < found.limit:
                return Literal(number, found)
        raise self._unknown(node)

    def _called(self, node: sql.Func) -> Expression:
        name = (node.name if isinstance(node, sql.Anonymous) else node.sql_name()).lower()
        known = _SAME.get(name, name)
        of = _arguments(node)
        least, most = FUNCTIONS.get(known, (0, -1))
        if known not in FUNCTIONS:
            raise refused(self._text, f"the function {name} is not supported")
        if not least <= len(of) <= most:
            raise refused(self._text, f"the function {name} does not take {len(of)} arguments")
        return Call(known, tuple(self.read(one) for one in of))

    def _unknown(self, node: sql.Expr) -> PlanError:
        return refused(self._text, f"{node.sql(dialect='spark')} is not supported")

    def _unsupported(self, node: sql.Expr) -> Expression:
        raise self._unknown(node)


#: How each kind of node is read; the first that fits counts, since most of sqlglot's are functions too.
_READINGS: tuple[tuple[type[sql.Expr], Callable[[_Reader, Any], Expression]], ...] = (
    (sql.Paren, _Reader._inner),
    (sql.Literal, _Reader._literal),
    (sql.Boolean, _Reader._boolean),
    (sql.Null, _Reader._null),
    (sql.Column, _Reader._column),
    (sql.Neg, _Reader._negative),
    (sql.Not, _Reader._not),
    (sql.Is, _Reader._is),
    (sql.Between, _Reader._between),
    (sql.In, _Reader._in),
    (sql.NullSafeEQ, _Reader._null_safe),
    (sql.Interval, _Reader._interval),
    (sql.Cast, _Reader._cast),
    (sql.Case, _Reader._unsupported),
    (sql.Func, _Reader._called),
)


def _is_condition(node: sql.Expr) -> bool:
    """Whether a node is a condition without parentheses: Spark may see it as part of another one."""
    if isinstance(node, sql.Between | sql.In | sql.Is | sql.Like | sql.Not):
        return True
    return _BINARY.get(type(node)) in _COMPARISONS


def _arguments(node: sql.Func) -> Sequence[sql.Expr]:
    """The arguments of a function, in order."""
    if isinstance(node, sql.Anonymous):
        return list(node.expressions)
    found: list[sql.Expr] = []
    for value in node.args.values():
        found += [one for one in (value if isinstance(value, list) else [value]) if one is not None]
    return [one for one in found if isinstance(one, sql.Expr)]


def _number(text: str) -> int | float | Decimal:
    """A number as Spark reads it: with a point it is a decimal, with an exponent a double."""
    if text.isdecimal():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def refused(
    text: str, why: str, hint: str | None = None, *, detail: str | None = None
) -> PlanError:
    """The error for a condition that cannot be used."""
    return PlanError(
        f"the condition {text!r} cannot be used: {why}",
        detail=detail,
        hint=hint
        or "use a Python function over the columns instead: .match(lambda a, b: ..., 'a', 'b')",
    )
