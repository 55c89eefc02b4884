"""Which columns of its streams the results of a join need: the others are not made.

The analysed plan of a query's where and select says it: `a.id` is a field of the attribute a. Where an
attribute is used as a whole, all its fields are needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

_FIELD, _ATTRIBUTE = ".GetStructField", ".AttributeReference"
#: What has a plan within it, whose columns are not gone through.
_WITHIN = "Subquery"


def fields_read(rows: DataFrame) -> dict[str, set[str]] | None:
    """The fields of the structs of a source that a query on it reads, by their columns.

    A column that is read as a whole is left out; None: nothing is known of what is read.
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
    """The nodes of all expressions within a plan, each with the one before it.

    An expression is the list of its nodes, parents first: the only child of a node comes after it.
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
