"""Names in a query: which column of which stream an identifier means.

A scope has the relations of one FROM, each with its columns. A column of a stream is itself; a column of
a subquery is the expression that the subquery gives it. So a subquery without state disappears: its
streams, conditions and expressions become part of the query around it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import TokenType
from sqlglot import expressions as sql

from spillway.plan.sql.query.text import Piece, is_word, refused
from spillway.plan.sql.query.values import Value, spliced


@dataclass(frozen=True)
class Visible:
    """A relation of a FROM: the names of its columns, as written, with what they mean."""

    alias: str
    columns: Mapping[str, Value]


@dataclass(frozen=True)
class Scope:
    """The relations that expressions of one SELECT can name."""

    relations: tuple[Visible, ...]
    #: Columns of JOIN ... USING, by lower-case name: they need no relation in front.
    shared: Mapping[str, Value] = field(default_factory=dict)

    def value(self, piece: Piece) -> Value:
        """An expression with its names resolved."""
        _refuse_queries(piece)
        tree = piece.parsed()
        _refuse_kinds(piece, tree)
        found = [self._column(piece, node) for node in tree.find_all(sql.Column)]
        return spliced(piece, found)

    def star(self, piece: Piece) -> list[tuple[str, Value]] | None:
        """The columns behind `*` and `t.*`; None: the piece is an expression."""
        if not len(piece) or piece.tokens[-1].token_type is not TokenType.STAR:
            return None
        if len(piece) == 1:
            shared = [(value.column.name if value.column else name, value)
                      for name, value in self.shared.items()]  # fmt: skip
            own = [
                (name, value)
                for relation in self.relations
                for name, value in relation.columns.items()
                if name.lower() not in self.shared
            ]
            return [*shared, *own]
        if len(piece) == 3 and piece.tokens[1].token_type is TokenType.DOT:
            return list(self.relation(piece.part(0, 1)).columns.items())
        return None

    def has(self, piece: Piece) -> bool:
        """Whether a name is a column of some relation."""
        name = piece.name().lower()
        columns = (column.lower() for one in self.relations for column in one.columns)
        return name in self.shared or name in columns

    def relation(self, piece: Piece) -> Visible:
        """The relation with a name."""
        name = piece.name()
        found = self._relation(name)
        if found is None:
            names = [one.alias for one in self.relations]
            raise refused(piece, f"{name} is not in FROM", _near(name, names, "FROM has"))
        return found

    def _relation(self, name: str) -> Visible | None:
        return next((one for one in self.relations if one.alias.lower() == name.lower()), None)

    def _column(self, piece: Piece, node: sql.Column) -> tuple[int, int, Value]:
        """The characters of a column's name in the piece, and what it means."""
        parts = list(node.parts)
        place = _place(piece, parts)
        if any(isinstance(one, sql.Star) for one in parts):
            raise refused(place, "* is not supported inside an expression", "name the columns")
        first = self._relation(parts[0].name) if len(parts) > 1 else None
        used = 1 if first is None else 2
        if first is None:
            value = self._anywhere(place, parts)
        else:
            value = self._inside(place, first, parts[1].name)
        return int(parts[0].meta["start"]), int(parts[used - 1].meta["end"]) + 1, value

    def _inside(self, place: Piece, relation: Visible, name: str) -> Value:
        found = _by_name(relation.columns, name)
        if not found:
            raise refused(
                place,
                f"{relation.alias} has no column {name}",
                _near(name, list(relation.columns), f"{relation.alias} has"),
            )
        return found[0]

    def _anywhere(self, place: Piece, parts: Sequence[sql.Expr]) -> Value:
        name = parts[0].name
        if name.lower() in self.shared:
            return self.shared[name.lower()]
        found = [
            (one.alias, value) for one in self.relations for value in _by_name(one.columns, name)
        ]
        if len(found) > 1:
            aliases = [alias for alias, _ in found]
            raise refused(
                place, f"{name} is a column of {', '.join(aliases)}", f"write {aliases[0]}.{name}"
            )
        if found:
            return found[0][1]
        if len(parts) > 1:
            names = [one.alias for one in self.relations]
            raise refused(place, f"{name} is not in FROM", _near(name, names, "FROM has"))
        names = [column for one in self.relations for column in one.columns]
        raise refused(
            place, f"no stream has a column {name}", _near(name, names, "the columns are")
        )


def _by_name(columns: Mapping[str, Value], name: str) -> list[Value]:
    return [value for known, value in columns.items() if known.lower() == name.lower()]


def _near(name: str, names: Sequence[str], have: str) -> str:
    folded = {one.lower(): one for one in names}
    near = difflib.get_close_matches(name.lower(), folded, n=1)
    told = f"{have} {', '.join(dict.fromkeys(names))}"
    return f"did you mean {folded[near[0]]}? {told}" if near else told


def _place(piece: Piece, parts: Sequence[sql.Expr]) -> Piece:
    """The tokens of a column's name."""
    start, end = int(parts[0].meta["start"]), int(parts[-1].meta["end"])
    numbers = [
        at for at, token in enumerate(piece.tokens) if start <= token.start - piece.start_at <= end
    ]
    return piece.part(numbers[0], numbers[-1] + 1)


def _refuse_queries(piece: Piece) -> None:
    """Rejects queries inside expressions."""
    for at, token in enumerate(piece.tokens):
        if is_word(token, "select"):
            raise refused(
                piece.part(at, at + 1),
                "a query inside an expression is not supported",
                "write it as a stream in FROM: IN (SELECT k ...) is LEFT SEMI JOIN ... ON, NOT EXISTS "
                "is LEFT ANTI JOIN ... ON",
            )


def _refuse_kinds(piece: Piece, tree: sql.Expr) -> None:
    """Rejects window functions."""
    if any(True for _ in tree.find_all(sql.Window)):
        at = next(at for at, token in enumerate(piece.tokens) if is_word(token, "over"))
        raise refused(
            piece.part(at, at + 1),
            "window functions (OVER) are not supported",
            "use GROUP BY; the last rows of each key are "
            'sw.stream(trades).group_by("symbol").last(100).agg(...) in Python',
        )


def calls(piece: Piece, names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The outermost calls of these functions in a piece: number of the name's token, and of its ")"."""
    at = 0
    while at + 1 < len(piece):
        token, follows = piece.tokens[at], piece.tokens[at + 1]
        behind_point = at > 0 and piece.tokens[at - 1].token_type is TokenType.DOT
        opens = follows.token_type is TokenType.L_PAREN
        if opens and not behind_point and any(is_word(token, name) for name in names):
            end = piece.closing(at + 1)
            yield at, end
            at = end
        at += 1
