"""The streams that a query can read: their columns, types and watermarks, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from spillway.plan.sql.query.clauses import Query, Relation, Statement
from spillway.plan.sql.query.text import Piece


@dataclass(frozen=True)
class Registered:
    """A stream that a query can name."""

    #: The type of each column, as DDL text.
    columns: Mapping[str, str]
    #: The event time and its lateness in microseconds, if `withWatermark` set them.
    watermark: tuple[str, int] | None = None


@dataclass(frozen=True)
class Catalog:
    """All streams by lower-case name, and what else of a session changes the meaning of a query."""

    streams: Mapping[str, Registered] = field(default_factory=dict)
    #: Whether all days have 24 hours in the session's time zone.
    steady: bool = True


def relations_of(statement: Statement) -> Iterator[tuple[str, Piece]]:
    """The names in FROM that are not named queries, each with its place."""
    yield from _of_query(statement.query, frozenset())


def _of_query(query: Query, known: frozenset[str]) -> Iterator[tuple[str, Piece]]:
    for name, inner in query.named.items():
        yield from _of_query(inner, known)
        known |= {name}
    for select in query.selects:
        if isinstance(select, Query):
            yield from _of_query(select, known)
        else:
            for relation in select.relations:
                yield from _of_relation(relation, known)


def _of_relation(relation: Relation, known: frozenset[str]) -> Iterator[tuple[str, Piece]]:
    if isinstance(relation.of, Query):
        yield from _of_query(relation.of, known)
    elif relation.of.lower() not in known:
        yield relation.of, relation.place
