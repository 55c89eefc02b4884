"""Flat queries: the streams, conditions and columns of a SELECT whose subqueries have disappeared.

A subquery without state, or a join, becomes part of the query around it: its streams are joined with
the others, its conditions hold too, and its columns are expressions (scope.py). A query that ends in a
group-by or a dedup stays what it is: the query around it reads its results (`Done`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spillway.plan.sql.expression import Column
from spillway.plan.sql.query.clauses import CROSS, INNER
from spillway.plan.sql.query.nodes import Node, Rows
from spillway.plan.sql.query.scope import Scope
from spillway.plan.sql.query.text import Piece, is_word
from spillway.plan.sql.query.values import Value

#: Joins that keep only combinations of rows.
COMBINING = (INNER, CROSS)
#: The place of a condition that holds before the streams are joined.
INSIDE = ""


@dataclass(frozen=True)
class FlatStream:
    """One stream of a flat query."""

    name: str
    rows: Rows
    #: The type of each column; unknown for columns of a UNION ALL.
    kinds: Mapping[str, str]
    watermark: tuple[str, int] | None
    place: Piece
    #: How it joins the streams before it.
    kind: str = CROSS


@dataclass(frozen=True)
class Condition:
    """A condition, and both sides of it where it is an equality."""

    value: Value
    sides: tuple[Value, Value] | None = None
    #: The stream in whose ON it is; INSIDE: in a subquery; None: in WHERE.
    of: str | None = None

    @property
    def place(self) -> Piece:
        """Where the user wrote it."""
        return self.value.place


@dataclass(frozen=True)
class Done:
    """A query with a group-by or a dedup, whose results another query reads."""

    node: Node
    names: tuple[str, ...]
    #: Whether its rows are versions of groups, which later rows replace.
    updates: bool
    place: Piece


@dataclass(frozen=True)
class Flat:
    """The streams of a query, its conditions, and its columns."""

    streams: tuple[FlatStream, ...]
    conditions: tuple[Condition, ...]
    outputs: tuple[tuple[str | None, Value], ...]
    place: Piece
    #: Lateness by the name of a stream.
    lateness: Mapping[str, int]
    plan: str | None = None
    #: The query that it reads instead of streams.
    done: Done | None = None

    @property
    def outer(self) -> FlatStream | None:
        """The first stream that joins in another way than inner."""
        return next((one for one in self.streams if one.kind not in COMBINING), None)

    @property
    def joins(self) -> bool:
        """Whether it is a join."""
        return len(self.streams) > 1

    def text(self, value: Value) -> str:
        """An expression over the rows of the query."""
        return value.sql if self.joins else value.bare

    @property
    def kinds(self) -> dict[Column, str]:
        """The types of all columns."""
        return {
            Column(stream.name, name): kind
            for stream in self.streams
            for name, kind in stream.kinds.items()
        }

    def with_outputs(self, outputs: tuple[tuple[str | None, Value], ...]) -> Flat:
        """The same rows with other columns."""
        return replace(self, outputs=outputs)


def condition_of(piece: Piece, scope: Scope, of: str | None = None) -> Condition:
    """A condition with its names resolved."""
    value = scope.value(piece)
    inner = piece.unwrapped()
    sides = inner.split("=")
    plain = not any(
        is_word(inner.tokens[at], word)
        for at in inner.outside()
        for word in ("or", "and", "not", "between", "in", "is", "like", "<", ">", "<=", ">=", "!=",
                     "<>", "<=>", "==")
    )  # fmt: skip
    if len(sides) != 2 or not plain or not all(len(side) for side in sides):
        return Condition(value, None, of)
    left, right = (scope.value(side.unwrapped()) for side in sides)
    return Condition(value, (left, right), of)
