"""`bound`: a condition as the user wrote it becomes a predicate over streams with known columns.

All checks that need no rows happen here, before a query starts: unknown streams and columns, SQL that
Spark would reject, conditions over one stream. Each error carries a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spillway.errors import PlanError
from spillway.operators.predicates.conditions import Condition
from spillway.operators.predicates.implied import between_two
from spillway.operators.predicates.predicate import Predicate
from spillway.operators.predicates.tiles import Tiles
from spillway.plan.sql.bands import Band, answered, bands_of
from spillway.plan.sql.expression import Column, Expression, columns_of, parse
from spillway.plan.sql.kinds import kind_of
from spillway.plan.sql.nodes import SqlCondition
from spillway.plan.sql.typed import typed

#: By stream, the type of every column, as Spark calls it.
Columns = Mapping[str, Mapping[str, str]]


def bound(
    condition: Condition | Callable[..., Any] | str,
    over: Sequence[str],
    columns: Columns,
    number: int = 0,
    zone: str = "UTC",
) -> Predicate:
    """A condition as a predicate over streams; raises if it does not fit their columns.

    `zone` is the time zone in which text becomes a timestamp. If `over` is empty, SQL is over the
    streams it names, and a function over all.
    """
    if not isinstance(condition, Condition):
        condition = Condition(condition)
    _check_streams(over, columns)
    name = condition.test if isinstance(condition.test, str) else _name(condition.test)
    test = parse(condition.test) if isinstance(condition.test, str) else condition.test
    over = _streams_of(test, over, columns)
    prefilter = None
    if isinstance(test, Tiles):
        _check_two(name, over)
    if callable(test):
        understood: Callable[..., Any] | SqlCondition = test
    else:
        understood = _understood(test, name, over, columns, zone)
        _check_several(name, over)
    if (text := condition.prefilter) is not None:
        prefilter = _understood(parse(text), text, over, columns, zone)
    return _predicate(f"{number}:{name}", over, understood, prefilter, condition.cost_us)


def _check_streams(over: Sequence[str], columns: Columns) -> None:
    called = f"match(..., {', '.join(map(repr, over))})"
    if not all(isinstance(stream, str) for stream in over):
        raise PlanError(
            f"{called}: streams must be names, as strings",
            hint=f"list the names: match(..., {_quoted(list(columns)[:2])})",
        )
    unknown = [stream for stream in over if stream not in columns]
    if unknown or len(set(over)) < len(over) or len(over) == 1:
        few = "a condition needs two different streams or more"
        why = f"there is no stream {unknown[0]}" if unknown else few
        raise PlanError(f"{called}: {why}", hint=_streams(columns))


def _streams_of(
    test: Expression | Callable[..., Any], over: Sequence[str], columns: Columns
) -> tuple[str, ...]:
    """The streams of a condition, also if the user named none."""
    if not callable(test) and not over:
        named = {column.stream for column in columns_of(test)}
        over = [stream for stream in columns if stream in named]
    return tuple(over) or tuple(columns)


def _check_several(name: str, over: Sequence[str]) -> None:
    if len(over) < 2:
        raise PlanError(
            f"the condition {name!r} names only one stream",
            hint="use where() on that stream instead",
        )


def _check_two(name: str, over: Sequence[str]) -> None:
    if len(over) != 2:
        raise PlanError(
            f"the tiles of {name} are over {len(over)} streams: {', '.join(over)}; a tile has two",
            hint=f"name the two streams: match(..., {_quoted(over[:2])})",
        )


def _predicate(
    label: str,
    over: tuple[str, ...],
    test: Callable[..., Any] | SqlCondition,
    prefilter: SqlCondition | None,
    cost_us: float | None,
) -> Predicate:
    """A predicate with everything that follows from its SQL."""
    parts = [one for one in (test, prefilter) if isinstance(one, SqlCondition)]
    bands = tuple(band for one in parts for band in bands_of(one.root))
    said = prefilter is None and len(parts) == 1 and answered(parts[0].root)
    implied = _implied(label, over, bands) if len(over) > 2 else ()
    return Predicate(label, over, test, prefilter, cost_us, bands, said, implied)


def _implied(label: str, over: Sequence[str], bands: Sequence[Band]) -> tuple[Predicate, ...]:
    return tuple(
        Predicate(f"{label}, of {' and '.join(pair)}", pair, test, bands=test.bands, answered=True)
        for pair, test in between_two(bands, over)
    )


def _understood(
    expression: Expression, name: str, over: Sequence[str], columns: Columns, zone: str
) -> SqlCondition:
    for column in columns_of(expression):
        _check_column(column, name, over, columns)
    kinds = {
        Column(stream, column): kind_of(kind)
        for stream in over
        for column, kind in columns[stream].items()
    }
    return typed(name, expression, kinds, zone)


def _check_column(column: Column, name: str, over: Sequence[str], columns: Columns) -> None:
    if column.stream not in columns or column.stream not in over:
        raise PlanError(
            f"the condition {name!r} names {column.stream}.{column.name}, but it is over "
            f"{', '.join(over) or 'no streams'}",
            hint=_streams(columns),
        )
    if column.name not in columns[column.stream]:
        raise PlanError(
            f"the condition {name!r}: stream {column.stream} has no column {column.name}",
            hint=f"its columns are {', '.join(columns[column.stream])}",
        )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _streams(columns: Mapping[str, Any]) -> str:
    return f"the streams are {', '.join(columns)}"


def _name(test: Callable[..., Any]) -> str:
    return str(getattr(test, "__name__", type(test).__name__))
