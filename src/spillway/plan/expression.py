"""SQL conditions over columns of several streams, as data.

`parse("abs(a.x - b.x) < 3 and a.kind = 'car'")` gives a tree of `Column`, `Literal` and `Call`. What
the tree means for rows is in operators/evaluation.py; which conditions can be answered from a sorted
order is in plan/bands.py.

Spark's words are brought to the form in which Python writes the same, and Python's own parser does the
rest: precedence is the same for all that is known here. BETWEEN and its AND become a chained
comparison that SQL has no other use for. What is not known is refused by name, before a query starts.

Known limitation: NaN compares as in IEEE 754, equal to nothing, where Spark takes it for the largest
number. Integers are calculated in 64 bits. CASE, casts, intervals and subqueries are not known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
_SAME = {"pow": "power", "ceiling": "ceil", "signum": "sign", "char_length": "length"}
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | '(?P<text>(?:[^']|'')*)'
      | `(?P<quoted>(?:[^`]|``)*)`
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign><=>|<>|!=|<=|>=|==|\|\||[-+*/%(),.<>=])
    )""",
    re.VERBOSE,
)
_WORDS = {"and": "and", "or": "or", "not": "not", "in": "in", "is": "is", "between": "in"}
_CONSTANTS = {"null": "None", "true": "True", "false": "False"}
_SIGNS = {"=": "==", "<>": "!="}
_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%"}
_COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=", ast.NotEq: "!="}


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
    names: list[str] = []
    words = " ".join(_python(text, list(_tokens(text)), names))
    try:
        tree = ast.parse(words, mode="eval").body
    except SyntaxError as problem:
        raise _refused(text, "it cannot be read") from problem
    return _Reader(text, names).read(tree)


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


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _refused(text, f"{text[at:].split()[0]!r} is not known")
        at = found.end()
        assert found.lastgroup is not None
        yield found.lastgroup, found.group(found.lastgroup)


def _python(text: str, tokens: Sequence[tuple[str, str]], names: list[str]) -> Iterator[str]:
    """The tokens as Python writes them; names become numbers, so that any name will do."""
    waiting: list[int] = []
    depth = 0
    for kind, word in tokens:
        depth += (word == "(") - (word == ")") if kind == "sign" else 0
        low = word.lower() if kind == "name" else ""
        if low == "between":
            waiting.append(depth)
            yield "in"
        elif low == "and" and waiting and waiting[-1] == depth:
            waiting.pop()
            yield "in"
        elif low in _WORDS or low in _CONSTANTS:
            yield _WORDS.get(low) or _CONSTANTS[low]
        elif kind in ("name", "quoted"):
            names.append(word.replace("``", "`"))
            yield f"n{len(names) - 1}"
        elif kind == "text":
            yield repr(word.replace("''", "'"))
        elif word in ("<=>", "||"):
            raise _refused(text, f"{word} is not known")
        else:
            yield _SIGNS.get(word, word)


class _Reader:
    """Python's tree as ours."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self._text = text
        self._names = names

    def read(self, node: ast.expr) -> Expression:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return Literal(value)
            case ast.Attribute(value=ast.Name(id=stream), attr=column):
                return Column(self._named(stream), self._named(column))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return Call(_BINARY[type(op)], (self.read(left), self.read(right)))
            case ast.UnaryOp(op=ast.USub(), operand=one):
                inner = self.read(one)
                if isinstance(inner, Literal) and isinstance(inner.value, int | float):
                    return Literal(-inner.value)
                return Call("-", (Literal(0), inner))
            case ast.UnaryOp(op=ast.Not(), operand=one):
                return Call("not", (self.read(one),))
            case ast.UnaryOp(op=ast.UAdd(), operand=one):
                return self.read(one)
            case ast.BoolOp(op=op, values=values):
                name = "and" if isinstance(op, ast.And) else "or"
                return Call(name, tuple(self.read(one) for one in values))
            case ast.Compare():
                return self._compared(node)
            case ast.Call(func=ast.Name(id=name), args=of, keywords=[]):
                return self._called(self._named(name), of)
            case ast.Name(id=name):
                raise self._refused(f"{self._named(name)} names no stream: write stream.column")
            case _:
                raise self._refused("it has something that is not known")

    def _compared(self, node: ast.Compare) -> Expression:
        left = self.read(node.left)
        match node.ops, node.comparators:
            case [ast.In() | ast.NotIn() as op, ast.In()], [low, high]:
                found = Call(
                    "and",
                    (Call(">=", (left, self.read(low))), Call("<=", (left, self.read(high)))),
                )
                return Call("not", (found,)) if isinstance(op, ast.NotIn) else found
            case [ast.In() | ast.NotIn() as op], [values]:
                some = values.elts if isinstance(values, ast.Tuple) else [values]
                each = tuple(Call("=", (left, self.read(one))) for one in some)
                found = each[0] if len(each) == 1 else Call("or", each)
                return Call("not", (found,)) if isinstance(op, ast.NotIn) else found
            case [ast.Is() | ast.IsNot() as op], [ast.Constant(value=None)]:
                return Call("isnotnull" if isinstance(op, ast.IsNot) else "isnull", (left,))
            case [op], [right] if type(op) in _COMPARED:
                return Call(_COMPARED[type(op)], (left, self.read(right)))
            case _:
                raise self._refused("its comparisons cannot be read: use parentheses")

    def _called(self, name: str, of: Sequence[ast.expr]) -> Expression:
        known = _SAME.get(name.lower(), name.lower())
        least, most = FUNCTIONS.get(known, (0, -1))
        if known not in FUNCTIONS:
            raise self._refused(f"the function {name} is not known")
        if not least <= len(of) <= most:
            raise self._refused(f"the function {name} does not take {len(of)} arguments")
        return Call(known, tuple(self.read(one) for one in of))

    def _named(self, number: str) -> str:
        return self._names[int(number[1:])]

    def _refused(self, why: str) -> PlanError:
        return _refused(self._text, why)


def _refused(text: str, why: str) -> PlanError:
    return PlanError(
        f"the condition {text!r} cannot be used: {why}",
        hint="use a Python function over the columns instead: .match(lambda a, b: ..., 'a', 'b')",
    )
