"""Expressions of a query with their names resolved: the user's text around columns of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sqlglot import expressions

from spillway.plan.sql.expression import Column
from spillway.plan.sql.query.text import Piece, Text, folded, parsed


@dataclass(frozen=True)
class Value:
    """An expression; columns stand between pieces of the user's text."""

    parts: tuple[str | Column, ...]
    #: Where the user wrote it.
    place: Piece = field(repr=False, compare=False)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that it reads, each once."""
        return tuple(dict.fromkeys(one for one in self.parts if isinstance(one, Column)))

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads, each once."""
        return tuple(dict.fromkeys(column.stream for column in self.columns))

    @property
    def column(self) -> Column | None:
        """The column that it is, if it is nothing more."""
        [*found] = self.parts
        return found[0] if len(found) == 1 and isinstance(found[0], Column) else None

    @property
    def sql(self) -> str:
        """Spark SQL text with columns as stream.column."""
        return self._written(lambda one: f"{quoted(one.stream)}.{quoted(one.name)}")

    @property
    def bare(self) -> str:
        """Spark SQL text with columns by their names alone."""
        return self._written(lambda one: quoted(one.name))

    @property
    def tree(self) -> expressions.Expr:
        """The text with stream.column, as sqlglot's tree."""
        return parsed(self.sql, self.place)

    @property
    def signature(self) -> tuple[object, ...]:
        """The expression without spaces and case; equal ones mean the same."""
        found: list[object] = []
        for one in self.parts:
            if isinstance(one, Column):
                found.append(one)
            elif one.strip():
                found += [folded(token) for token in Text.of(one).tokens]
        return tuple(found)

    @property
    def inner(self) -> tuple[str | Column, ...]:
        """Its parts, in parentheses where it is part of another expression."""
        return self.parts if self.column is not None else ("(", *self.parts, ")")

    def _written(self, name: Callable[[Column], str]) -> str:
        return "".join(one if isinstance(one, str) else name(one) for one in self.parts).strip()


def spliced(place: Piece, found: Iterable[tuple[int, int, Value | Column]]) -> Value:
    """The text of a piece with values in place of ranges of its characters, which count from 0."""
    text, at = place.text, 0
    parts: list[str | Column] = []
    for start, end, value in sorted(found, key=lambda one: one[0]):
        parts.append(text[at:start])
        whole = start == 0 and end == len(text)
        parts += [value] if isinstance(value, Column) else value.parts if whole else value.inner
        at = end
    parts.append(text[at:])
    return Value(tuple(one for one in parts if one != ""), place)


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"
