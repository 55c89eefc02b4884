"""Finds the columns that the results of a join need, so that the join makes no others.

The analysed plan of the query's where and select tells: `a.id` is a field of the attribute a. If the
plan uses an attribute as a whole, the results need all its fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

_FIELD, _ATTRIBUTE = ".GetStructField", ".AttributeReference"
#: Marks a nested plan, whose columns this module does not search.
_WITHIN = "Subquery"


def fields_read(rows: DataFrame) -> dict[str, set[str]] | None:
    """For each struct column of a source, the fields that the query on it reads.

    The result omits columns that the query reads whole. None: unknown.
    """
    *steps, source = json.loads(rows._jdf.queryExecution().analyzed().toJSON())
    text = json.dumps(steps)
    if _WITHIN in text:
        return None
    known = {one["exprId"]["id"]: one["name"] for [one] in source["output"]}
    found: dict[str, set[str]] = {name: set() for name in known.values()}
    for before, node in _pairs(steps):
        if not node["class"].endswith(_ATTRIBUTE) or node["exprId"]["id"] not in known:
            continue
        name = known[node["exprId"]["id"]]
        if before is None or not before["class"].endswith(_FIELD):
            found.pop(name, None)
        elif name in found:
            found[name].add(_field(node, before["ordinal"]))
    return found


def _field(attribute: dict[str, Any], ordinal: int) -> str:
    return str(attribute["dataType"]["fields"][ordinal]["name"])


def _pairs(value: Any) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any]]]:
    """The nodes of all expressions in a plan, each with the node before it.

    An expression is a list of nodes, parents first: the only child of a node follows it.
    """
    if isinstance(value, dict):
        for inner in value.values():
            yield from _pairs(inner)
    if not isinstance(value, list):
        return
    before = None
    for one in value:
        if isinstance(one, dict) and "class" in one and "num-children" in one:
            yield before, one
            before = one
        yield from _pairs(one)
