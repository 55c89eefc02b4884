"""`written`: the tree of a condition as SQL text with all parentheses, so that it has one meaning.

Constants come from their values, so that the text says what the tree says.
"""

from __future__ import annotations

from decimal import Decimal

from spillway.plan.sql.expression import UNITS, Call, Column, Expression, Literal
from spillway.plan.sql.kinds import INTERVAL, Kind

_SUFFIXES = {"tinyint": "Y", "smallint": "S", "bigint": "L", "double": "D"}
#: A timestamp without a prefix has the type that the session sets.
_TIMES = {"date": "DATE", "timestamp": "TIMESTAMP_LTZ", "timestamp_ntz": "TIMESTAMP_NTZ"}
_BETWEEN = ("+", "-", "*", "/", "%", "<", "<=", ">", ">=", "=", "!=", "and", "or")


def written(one: Expression) -> str:
    """A tree as SQL.

    Example:
        >>> from spillway.plan.sql.expression import parse
        >>> written(parse("not a.x + 1 = b.x and a.y is null"))
        '((NOT ((`a`.`x` + 1) = `b`.`x`)) AND (`a`.`y` IS NULL))'
    """
    match one:
        case Column(stream=stream, name=name):
            return f"{_quoted(stream)}.{_quoted(name)}"
        case Literal():
            return _constant(one)
        case Call(name=name, of=of):
            return _called(name, [written(inner) for inner in of])


def _called(name: str, of: list[str]) -> str:
    match name, of:
        case _, [left, right] if name in _BETWEEN:
            return f"({left} {name.upper()} {right})"
        case "-", [inner]:
            return f"(-({inner}))"
        case "not", [inner]:
            return f"(NOT {inner})"
        case "isnull", [inner]:
            return f"({inner} IS NULL)"
        case "isnotnull", [inner]:
            return f"({inner} IS NOT NULL)"
        case "between", [inner, low, high]:
            return f"({inner} BETWEEN {low} AND {high})"
        case "in", [inner, *values]:
            return f"({inner} IN ({', '.join(values)}))"
    return f"{name}({', '.join(of)})"


def _constant(one: Literal) -> str:
    match one.value:
        case None:
            return "NULL"
        case bool():
            return str(one.value).upper()
        case str():
            return _TIMES[one.kind.name] + _text(one.value) if one.kind else _text(one.value)
        case _:
            return _number(one.value, one.kind, one.unit)


def _number(value: int | float | Decimal, kind: Kind | None, unit: str) -> str:
    if kind == INTERVAL:
        return f"INTERVAL '{int(value) // UNITS[unit]}' {unit}"
    if isinstance(value, float):
        return f"{value!r}D"
    return format(value, "f" if isinstance(value, Decimal) else "d") + (
        _SUFFIXES[kind.name] if kind else ""
    )


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
