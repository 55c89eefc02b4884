"""The where and select of a query: whether Spark computes them row by row, and what they mean.

Spark applies them to the results of one batch. An aggregate or a window function would give one answer
per batch instead of one per query, so Spillway rejects them.

Spillway also rejects functions whose value does not follow from the row: `rand`, `uuid`,
`monotonically_increasing_id`, `input_file_name`, a non-deterministic UDF. A repeated batch would give
other results, and after an exchange the position of a row in its partition means nothing.

The current time is one value in all rows of a batch, so results may contain it; in a repeated batch it
is later. Between two stages Spillway rejects it, because state would depend on it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import Column, DataFrame

from spillway.errors import PlanError

#: The steps of a plan that give the results of a row from this row alone.
_BY_ROW = ("Project", "Filter", "Generate", "Expand")
_CURRENT = re.compile(r"\.(Current(Timestamp|Date|Time)|Now|LocalTimestamp)$")
#: The name of a Python lambda's variable; its number counts the lambdas of the session.
_VARIABLE = re.compile(r"\b([xyz])_\d+\b")
#: Spark's number for a column or a variable.
_NUMBER = re.compile(r"#\d+")


def check_by_row(asked: str, rows: DataFrame) -> None:
    """Rejects steps that are not functions of single rows; `asked` is the last as the user wrote it."""
    steps = list(_steps(_analysed(rows)))
    names = (str(one.nodeName()) for one in steps)
    if found := next((name for name in names if name not in _BY_ROW), None):
        what = {"Aggregate": "an aggregate", "Window": "a window function"}.get(found, found)
        raise PlanError(
            f"{asked} has {what}, which cannot be computed row by row",
            detail="Spark would apply it to the rows of each batch, and give an answer for each batch",
            hint="use group_by(...).agg(...) before it; a window over the last rows of a key is "
            "group_by(...).last(100).agg(...)",
        )
    if not all(value.deterministic() for one in steps for value in _each(one.expressions())):
        raise PlanError(
            f"{asked} has a function whose value does not follow from the row",
            detail="a batch that is repeated after a failure would give other results",
            hint="leave it out, or compute it where the results are read; for an id, use a hash of "
            "columns, such as xxhash64(...)",
        )


def check_timeless(name: str, rows: DataFrame) -> None:
    """Rejects the current time in rows that another stage reads."""
    nodes = json.loads(_analysed(rows).toJSON())
    for found in _classes(nodes[:-1]):
        if _CURRENT.search(found):
            raise PlanError(
                f"the results of {name} depend on the current time, so they cannot be grouped",
                detail=f"its where and select use {found.rpartition('.')[2]}; a batch that is repeated "
                "after a failure would give other rows",
                hint="use a time of the rows, or select the current time after the group-by",
            )


def meaning_of(rows: DataFrame) -> list[str]:
    """What the steps of `rows` compute, as text that is the same after a restart."""
    return list(_meanings(_analysed(rows)))


def column_text(column: Column, frame: DataFrame) -> str:
    """A column of a frame as text that is the same after a restart; the text of a UDF is not."""
    [found] = _each(_analysed(frame.select(column)).projectList())
    return str((found.child() if found.nodeName() == "Alias" else found).sql())


def text_of(verb: str, arguments: Iterable[str | Column]) -> str:
    """A where or select as the user wrote it."""
    return _VARIABLE.sub(r"\1", f"{verb}({', '.join(map(str, arguments))})")


def _analysed(rows: DataFrame) -> Any:
    return rows._jdf.queryExecution().analyzed()


def _steps(plan: Any) -> Iterator[Any]:
    """The steps between the source and the results."""
    for child in _each(plan.children()):
        yield plan
        yield from _steps(child)


def _meanings(plan: Any) -> Iterator[str]:
    """The resolved expressions of each step; they name columns, and not Spark's numbers for them."""
    told = ", ".join(_told(one) for one in _each(plan.expressions()))
    yield f"{plan.nodeName()}({told})"
    for inner in (*_each(plan.subqueries()), *_each(plan.children())):
        yield from _meanings(inner)


def _told(expression: Any) -> str:
    told = str(expression.sql())
    # The SQL does not tell the variables of a lambda apart; the other text of Spark numbers them.
    return f"{told} {_renumbered(str(expression.toString()))}" if "lambda" in told else told


def _renumbered(text: str) -> str:
    """The text with numbers that count from 0, whatever the session has numbered before."""
    found: dict[str, int] = {}
    plain = _VARIABLE.sub(r"\1", text)
    return _NUMBER.sub(lambda one: f"#{found.setdefault(one.group(), len(found))}", plain)


def _each(values: Any) -> Iterator[Any]:
    found = values.iterator()
    while found.hasNext():
        yield found.next()


def _classes(value: Any) -> Iterator[str]:
    """The class of every node in a plan as JSON."""
    if isinstance(value, dict):
        if "class" in value:
            yield value["class"]
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _classes(inner)
