"""SQL conditions over columns of several streams, as data.

`parse("abs(a.x - b.x) < 3 and a.kind = 'car'")` gives a tree of `Column`, `Literal` and `Call`. What
the tree means for rows is in operators/evaluation.py; which conditions can be answered from a sorted
order is in plan/bands.py.

sqlglot reads the text as Spark's SQL; what of it is known here becomes our tree, and what is not is
refused by name, before a query starts.

Known limitation: NaN compares as in IEEE 754, equal to nothing, where Spark takes it for the largest
number. Integers are calculated in 64 bits. CASE, casts, intervals and subqueries are not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from spillway.errors import PlanError

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


@dataclass(frozen=True)
class Column:
    """A column of a stream."""

    stream: str
    name: str


@dataclass(frozen=True)
class Literal:
    """A constant; None is NULL."""

    value: int | float | str | bool | None


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
        raise _refused(text, "it cannot be read") from problem
    return _Reader(text).read(tree)


def columns_of(expression: Expression) -> Iterator[Column]:
    """The columns an expression reads, each as often as it does."""
    if isinstance(expression, Column):
        yield expression
    elif isinstance(expression, Call):
        for one in expression.of:
            yield from columns_of(one)


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """The conditions that must all hold."""
    if isinstance(expression, Call) and expression.name == "and":
        for one in expression.of:
            yield from conjuncts(one)
    else:
        yield expression


class _Reader:
    """The tree of sqlglot as ours."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, node: sql.Expr) -> Expression:
        if (name := _BINARY.get(type(node))) is not None:
            if name in _COMPARISONS and _BINARY.get(type(node.this)) in _COMPARISONS:
                raise _refused(self._text, "comparisons of comparisons need parentheses")
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
                if isinstance(inner, Literal) and isinstance(inner.value, int | float):
                    return Literal(-inner.value)
                return Call("-", (Literal(0), inner))
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
                each = tuple(Call("=", (one, self.read(value))) for value in node.expressions)
                return each[0] if len(each) == 1 else Call("or", each)
            case sql.NullSafeEQ():
                raise _refused(self._text, "<=> is not known")
            case sql.Case() | sql.Cast() | sql.TryCast():
                raise _refused(self._text, f"{node.sql(dialect='spark')} is not known")
            case sql.Func():
                return self._called(node)
            case _:
                raise _refused(self._text, f"{node.sql(dialect='spark')} is not known")

    def _column(self, node: sql.Column) -> Expression:
        if not node.table or node.db:
            shown = node.sql(dialect="spark")
            raise _refused(self._text, f"{shown} names no stream: write stream.column")
        return Column(node.table, node.name)

    def _called(self, node: sql.Func) -> Expression:
        if isinstance(node, sql.Log) and node.expression is not None and node.this.name == "10":
            return Call("log10", (self.read(node.expression),))
        name = (node.name if isinstance(node, sql.Anonymous) else node.sql_name()).lower()
        known = _SAME.get(name, name)
        of = _arguments(node)
        least, most = FUNCTIONS.get(known, (0, -1))
        if known not in FUNCTIONS:
            raise _refused(self._text, f"the function {name} is not known")
        if not least <= len(of) <= most:
            raise _refused(self._text, f"the function {name} does not take {len(of)} arguments")
        return Call(known, tuple(self.read(one) for one in of))


def _arguments(node: sql.Func) -> Sequence[sql.Expr]:
    """What a function is given, in order."""
    if isinstance(node, sql.Anonymous):
        return list(node.expressions)
    found: list[sql.Expr] = []
    for value in node.args.values():
        found += [one for one in (value if isinstance(value, list) else [value]) if one is not None]
    return [one for one in found if isinstance(one, sql.Expr)]


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _refused(text: str, why: str) -> PlanError:
    return PlanError(
        f"the condition {text!r} cannot be used: {why}",
        hint="use a Python function over the columns instead: .match(lambda a, b: ..., 'a', 'b')",
    )
