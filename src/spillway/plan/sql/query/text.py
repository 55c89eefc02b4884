"""The text of a SQL query as tokens, and errors that point at a place in it.

sqlglot cuts the text into tokens as Spark does. A `Piece` is a range of tokens. Pieces keep the user's
text, so Spark gets every expression as it was written, and an error can show where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import sqlglot
from sqlglot import Token, TokenType
from sqlglot import expressions as sql
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from spillway.errors import PlanError
from spillway.plan.sql.expression import Plain

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


def _keywords(*, joined: bool) -> dict[str, Any]:
    """Spark's keywords; `window(...)` is a function like any other. `joined`: also "GROUP BY" as one."""
    return {
        word: kind
        for word, kind in Spark.Tokenizer.KEYWORDS.items()
        if kind is not TokenType.WINDOW and (joined or " " not in word)
    }


class Dialect(Plain):
    """The expressions of Spark SQL as they are written."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens, without the clause WINDOW."""

        KEYWORDS: ClassVar[dict[str, Any]] = _keywords(joined=True)


class _Words(Plain):
    """The words of a query one by one, EXPLAIN included."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens; "GROUP BY" is two."""

        KEYWORDS: ClassVar[dict[str, Any]] = _keywords(joined=False)
        COMMANDS: ClassVar[set[Any]] = set()


@dataclass(frozen=True)
class Text:
    """A query as the user wrote it."""

    whole: str
    tokens: tuple[Token, ...] = field(repr=False, compare=False)

    @staticmethod
    def of(whole: str) -> Text:
        """The text, cut into tokens."""
        if not isinstance(whole, str) or not whole.strip():
            raise PlanError(
                f"sql() takes a query as text, not {whole!r}",
                hint='for example sw.sql(spark, "SELECT ... FROM orders JOIN payments ON ...")',
            )
        try:
            return Text(whole, tuple(_Words().tokenize(whole)))
        except SqlglotError as problem:
            raise PlanError(
                "the SQL query cannot be read",
                detail=str(problem).splitlines()[0],
                hint="close all quotes and comments",
            ) from problem

    @property
    def piece(self) -> Piece:
        """All tokens."""
        return Piece(self, 0, len(self.tokens))

    def place(self, start: int, end: int) -> str:
        """The line of a place, with marks below it."""
        before = self.whole[:start]
        line, column = before.count("\n") + 1, start - (before.rfind("\n") + 1)
        shown = self.whole.splitlines()[line - 1] if self.whole else ""
        # Tabs stay, so that the marks are below what they mark.
        indent = "".join("\t" if one == "\t" else " " for one in shown[:column])
        marks = "^" * max(1, min(end - start, len(shown) - column))
        number = str(line)
        return (
            f"line {line}, column {column + 1}\n"
            f"    {number} | {shown}\n"
            f"    {' ' * len(number)} | {indent}{marks}"
        )


@dataclass(frozen=True)
class Piece:
    """A range of tokens of a query."""

    source: Text = field(repr=False)
    first: int
    #: One after the last token.
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Its tokens."""
        return self.source.tokens[self.first : self.end]

    @property
    def start_at(self) -> int:
        """Its first character in the query."""
        if self.first < len(self.source.tokens):
            return int(self.source.tokens[self.first].start)
        return len(self.source.whole.rstrip())

    @property
    def end_at(self) -> int:
        """The character after its last one."""
        if not len(self):
            return self.start_at + 1
        return int(self.source.tokens[self.end - 1].end) + 1

    @property
    def text(self) -> str:
        """Its part of the user's text."""
        return self.source.whole[self.start_at : self.end_at] if len(self) else ""

    def part(self, first: int, end: int) -> Piece:
        """The tokens from one number of this piece up to another, as far as they are in it."""
        start = min(self.first + max(first, 0), self.end)
        return Piece(self.source, start, max(start, min(self.first + end, self.end)))

    def words(self, at: int, *words: str) -> bool:
        """Whether these words stand at a token of this piece; case does not matter."""
        tokens = self.tokens[at : at + len(words)]
        return len(tokens) == len(words) and all(
            is_word(token, word) for token, word in zip(tokens, words, strict=True)
        )

    def outside(self) -> Iterator[int]:
        """The numbers of the tokens that are in no parentheses."""
        depth = 0
        for at, token in enumerate(self.tokens):
            if token.token_type in _CLOSE:
                depth -= 1
                if depth < 0:
                    raise refused(self.part(at, at + 1), "no parenthesis is open here", "remove it")
            if depth == 0 and token.token_type not in _CLOSE:
                yield at
            if token.token_type in _OPEN:
                depth += 1
        if depth:
            raise refused(self, "a parenthesis is not closed", "close it")

    def closing(self, at: int) -> int:
        """The number of the token that closes the parenthesis at `at`."""
        depth = 0
        for to in range(at, len(self)):
            kind = self.tokens[to].token_type
            depth += (kind in _OPEN) - (kind in _CLOSE)
            if depth == 0:
                return to
        raise refused(self.part(at, at + 1), "this parenthesis is not closed", "close it")

    def split(self, what: str) -> list[Piece]:
        """The pieces between commas or words outside parentheses."""
        cuts = [at for at in self.outside() if is_word(self.tokens[at], what)]
        starts, ends = [0, *(at + 1 for at in cuts)], [*cuts, len(self)]
        return [self.part(start, end) for start, end in zip(starts, ends, strict=True)]

    def conjuncts(self) -> list[Piece]:
        """The conditions that AND joins; AND binds more tightly than OR."""
        inner = self.unwrapped()
        if inner is not self:
            return inner.conjuncts()
        cuts = self._ands()
        if not cuts:
            return [self]
        starts, ends = [0, *(at + 1 for at in cuts)], [*cuts, len(self)]
        pieces = [self.part(start, end) for start, end in zip(starts, ends, strict=True)]
        for piece in pieces:
            if not len(piece):
                raise refused(piece, "a condition is missing here", "write one, or remove AND")
        return [inner for piece in pieces for inner in piece.conjuncts()]

    def _ands(self) -> list[int]:
        """The tokens AND between conditions; none if the piece has OR."""
        cuts, between, cases = [], 0, 0
        for at in self.outside():
            token = self.tokens[at]
            cases += is_word(token, "case") - is_word(token, "end")
            if cases:
                continue
            if is_word(token, "or"):
                return []
            if is_word(token, "between"):
                between += 1
            elif is_word(token, "and") and between:
                between -= 1
            elif is_word(token, "and"):
                cuts.append(at)
        return cuts

    def unwrapped(self) -> Piece:
        """The piece without parentheses around all of it."""
        opens = len(self) > 2 and self.tokens[0].token_type is TokenType.L_PAREN
        if opens and self.closing(0) == len(self) - 1:
            return self.part(1, len(self) - 1).unwrapped()
        return self

    def parsed(self) -> sql.Expr:
        """The piece as sqlglot's tree; places in it count from the start of the piece."""
        return parsed(self.text, self)

    def name(self) -> str:
        """The piece as one name."""
        if len(self) == 1 and is_name(self.tokens[0]):
            return str(self.tokens[0].text)
        raise refused(self, f"{self.text or 'this'} is not a name", "write one name, such as price")


def parsed(text: str, piece: Piece) -> sql.Expr:
    """An expression as sqlglot's tree; errors point at the piece."""
    try:
        found = sqlglot.parse_one(text, dialect=Dialect)
    except SqlglotError as problem:
        why = str(problem).splitlines()[0].split(". Line")[0]
        raise refused(
            piece,
            "this cannot be parsed as an expression of Spark SQL",
            "write it as Spark SQL",
            why,
        ) from problem
    return found


def is_word(token: Token, word: str) -> bool:
    """Whether a token is this keyword or sign, and not a quoted name or text."""
    quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    return not quoted and str(token.text).lower() == word


def folded(token: Token) -> tuple[str, str]:
    """A token as it counts in comparisons: the case of words does not matter."""
    kept = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    return token.token_type.name, str(token.text) if kept else str(token.text).lower()


def is_name(token: Token) -> bool:
    """Whether a token can be a name: a word that starts with a letter, or a name in backticks."""
    if token.token_type is TokenType.IDENTIFIER:
        return True
    text = str(token.text)
    return token.token_type not in (TokenType.STRING, TokenType.NUMBER) and (
        text[:1].isalpha() or text[:1] == "_"
    )


def refused(
    where: Piece | Sequence[Piece], why: str, hint: str, detail: str | None = None
) -> PlanError:
    """The error for a place in a query: what is wrong there, the place, and what to write instead."""
    pieces = [where] if isinstance(where, Piece) else list(where)
    source = pieces[0].source
    place = source.place(pieces[0].start_at, pieces[-1].end_at)
    return PlanError(
        f"the SQL query cannot run: {why}",
        detail=place if detail is None else f"{detail}; {place}",
        hint=hint,
    )
