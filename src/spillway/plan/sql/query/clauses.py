"""The clauses of a SQL query: what stands after SELECT, FROM, WHERE, GROUP BY and HAVING.

    [EXPLAIN] [WITH name AS (query), ...] query
    query     select [UNION ALL select ...]
    select    SELECT [/*+ hints */] [DISTINCT] items FROM relations [WHERE] [GROUP BY] [HAVING]
    relation  name | (query)  [[AS] alias]   joined by commas, JOIN ... ON, JOIN ... USING

The reader cuts tokens and keeps the user's text of every expression. What no clause of a continuous
query can mean is refused here, with its place and what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import TokenType

from spillway.plan.sql.query.text import Piece, Text, is_name, is_word, refused

INNER, CROSS = "inner", "cross"
LEFT, RIGHT, FULL, SEMI, ANTI = "left", "right", "full", "left semi", "left anti"

#: Stands for any number.
NUMBER = "0"

#: The words before JOIN, and the kind of join that they ask for.
_KINDS = {
    (): INNER, ("inner",): INNER, ("cross",): CROSS,
    ("left",): LEFT, ("left", "outer"): LEFT, ("right",): RIGHT, ("right", "outer"): RIGHT,
    ("full",): FULL, ("full", "outer"): FULL, ("outer",): FULL,
    ("semi",): SEMI, ("left", "semi"): SEMI, ("anti",): ANTI, ("left", "anti"): ANTI,
}  # fmt: skip
_BEFORE_JOIN = {word for words in _KINDS for word in words} | {"natural", "asof", "lateral"}
_CLAUSES = ("select", "from", "where", "group", "having")
#: Clauses that a continuous query cannot have: what follows the word, the reason, what to do instead.
_SET = ("select", "(", "all", "distinct")
_NO_ORDER = ("results of a stream have no end, so they have no order", "sort where they are read")
_SLOTS = ("slots distribute the rows", "leave it out; writeStream.adapt(slots=...) sets them")
_ALL = ("write LEFT ANTI JOIN ... ON all columns",)
_NO_CLAUSE: dict[str, tuple[tuple[str, ...], str, str]] = {
    "order": (("by",), *_NO_ORDER), "sort": (("by",), *_NO_ORDER),
    "distribute": (("by",), *_SLOTS), "cluster": (("by",), *_SLOTS),
    "limit": ((NUMBER, "all"), "a continuous query has no last row", "leave LIMIT out, and limit where "
              "results are read"),
    "offset": ((NUMBER,), "a continuous query has no first row", "leave OFFSET out"),
    "lateral": (("view",), "LATERAL VIEW is not supported", "explode in the stream, before the query: "
                'orders.selectExpr("*", "explode(items) AS item")'),
    "pivot": (("(",), "PIVOT is not supported", "write one aggregate for each value: "
              "sum(CASE WHEN kind = 'a' THEN x END)"),
    "unpivot": (("(",), "UNPIVOT is not supported", "reshape the stream before the query"),
    "tablesample": (("(",), "a sample would differ in a repeated batch", "filter by a hash of a column"),
    "intersect": (_SET, "INTERSECT is not supported", "write LEFT SEMI JOIN ... ON all columns"),
    "except": (_SET, "EXCEPT is not supported", *_ALL), "minus": (_SET, "MINUS is not supported", *_ALL),
}  # fmt: skip


@dataclass(frozen=True)
class Item:
    """One expression of a SELECT, with the name that the user gave it."""

    expression: Piece
    alias: str | None = None


@dataclass(frozen=True)
class Relation:
    """What stands in a FROM: a stream by name or a query, and how it is joined with those before."""

    place: Piece
    of: str | Query
    alias: str
    kind: str = CROSS
    on: Piece | None = None
    using: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Select:
    """One SELECT."""

    place: Piece
    items: tuple[Item, ...]
    relations: tuple[Relation, ...]
    hints: Piece | None = None
    distinct: Piece | None = None
    where: Piece | None = None
    group: tuple[Piece, ...] = ()
    having: Piece | None = None


@dataclass(frozen=True)
class Query:
    """SELECTs joined by UNION ALL, and the named queries that they may read."""

    selects: tuple[Select | Query, ...]
    named: Mapping[str, Query]


@dataclass(frozen=True)
class Statement:
    """A query, or the wish to have it explained."""

    query: Query
    text: Text
    explain: bool = False
    #: The first character of the query, behind EXPLAIN.
    query_at: int = 0


def read(whole: str) -> Statement:
    """A SQL text as clauses.

    Example:
        >>> [select] = read("SELECT a.x FROM a JOIN b ON a.k = b.k").query.selects
        >>> [relation.alias for relation in select.relations]
        ['a', 'b']
    """
    text = Text.of(whole)
    piece, explain = text.piece, False
    if len(piece) and piece.tokens[-1].token_type is TokenType.SEMICOLON:
        piece = piece.part(0, len(piece) - 1)
    for at, token in enumerate(piece.tokens):
        if token.token_type is TokenType.SEMICOLON:
            rest = piece.part(at, at + 1)
            raise refused(
                rest, "it has more than one statement", "run each with a sql() of its own"
            )
    if piece.words(0, "explain"):
        explain = True
        skip = 2 if any(piece.words(1, word) for word in ("extended", "formatted")) else 1
        piece = piece.part(skip, len(piece))
    return Statement(_query(piece), text, explain, piece.start_at)


def _query(piece: Piece) -> Query:
    piece = piece.unwrapped()
    if not piece.words(0, "with"):
        return Query(tuple(_union(piece)), {})
    named: dict[str, Query] = {}
    at = 1
    while True:
        name = piece.part(at, at + 1).name()
        as_at = at + 1 + piece.words(at + 1, "as")
        if as_at >= len(piece) or piece.tokens[as_at].token_type is not TokenType.L_PAREN:
            raise refused(
                piece.part(at, at + 1),
                f"WITH {name} has no query",
                f"write WITH {name} AS (SELECT ...)",
            )
        end = piece.closing(as_at)
        named[name.lower()] = _query(piece.part(as_at + 1, end))
        at = end + 1
        if at < len(piece) and piece.tokens[at].token_type is TokenType.COMMA:
            at += 1
            continue
        return Query(tuple(_union(piece.part(at, len(piece)))), named)


def _union(piece: Piece) -> Iterator[Select | Query]:
    start = 0
    for at in piece.outside():
        if not is_word(piece.tokens[at], "union"):
            continue
        if not piece.words(at + 1, "all"):
            raise refused(
                piece.part(at, at + 1),
                "UNION without ALL removes duplicates of all rows so far",
                "write UNION ALL, and SELECT DISTINCT around it: "
                "SELECT DISTINCT * FROM (... UNION ALL ...)",
            )
        yield _part(piece.part(start, at))
        start = at + 2
    yield _part(piece.part(start, len(piece)))


def _part(piece: Piece) -> Select | Query:
    inner = piece.unwrapped()
    if inner is not piece and not inner.words(0, "select"):
        return _query(inner)
    return _select(inner)


def _select(piece: Piece) -> Select:
    if not piece.words(0, "select"):
        what = f"{piece.tokens[0].text} is not a query" if len(piece) else "a query is missing"
        raise refused(
            piece.part(0, 1), what, "write SELECT ... FROM ...; start it with writeStream"
        )
    clauses = _clauses(piece)
    items = clauses["select"]
    hints = distinct = None
    while len(items):
        if items.tokens[0].token_type is TokenType.HINT:
            hints = items.part(0, 1)
        elif items.words(0, "distinct"):
            distinct = items.part(0, 1)
        elif not items.words(0, "all"):
            break
        items = items.part(1, len(items))
    if "from" not in clauses:
        raise refused(piece, "it reads no stream", "add FROM and the name of a stream")
    return Select(
        piece,
        tuple(_item(one) for one in items.split(",")),
        tuple(_relations(clauses["from"])),
        hints,
        distinct,
        clauses.get("where"),
        _keys(clauses["group"]) if "group" in clauses else (),
        clauses.get("having"),
    )


def _clauses(piece: Piece) -> dict[str, Piece]:
    """The tokens of each clause, without its first word."""
    starts: list[tuple[str, int]] = []
    for at in piece.outside():
        word = str(piece.tokens[at].text).lower()
        if not is_word(piece.tokens[at], word) or _is_column(piece, at):
            continue
        _refuse_clause(piece, at, word)
        if word in _CLAUSES:
            if word in dict(starts) or (starts and _place(word) < _place(starts[-1][0])):
                raise refused(
                    piece.part(at, at + 1),
                    f"{word.upper()} is not expected here",
                    "write SELECT, FROM, WHERE, GROUP BY and HAVING once each, in this order",
                )
            starts.append((word, at))
    ends = [*(at for _, at in starts[1:]), len(piece)]
    found = {}
    for (word, at), end in zip(starts, ends, strict=True):
        clause = piece.part(at + 1, end)
        if not len(clause):
            raise refused(piece.part(at, at + 1), f"{word.upper()} is empty", "complete the clause")
        found[word] = clause
    return found


def _place(word: str) -> int:
    return _CLAUSES.index(word)


def _is_column(piece: Piece, at: int) -> bool:
    """Whether a word is no clause: `orders.limit`, or `a IS DISTINCT FROM b`."""
    behind_point = at > 0 and piece.tokens[at - 1].token_type is TokenType.DOT
    compares = at > 1 and piece.words(at - 1, "distinct", "from")
    return behind_point or (compares and any(piece.words(at - 2, word) for word in ("is", "not")))


def _refuse_clause(piece: Piece, at: int, word: str) -> None:
    """Rejects a clause that no continuous query has; as a name, the same word stands alone."""
    follows, why, hint = _NO_CLAUSE.get(word, ((), "", ""))
    if at + 1 >= len(piece):
        return
    after = piece.tokens[at + 1]
    number = NUMBER in follows and after.token_type is TokenType.NUMBER
    if number or any(is_word(after, one) for one in follows):
        raise refused(piece.part(at, at + 1), why, hint)


def _keys(clause: Piece) -> tuple[Piece, ...]:
    if not clause.words(0, "by"):
        raise refused(clause.part(0, 1), "GROUP needs BY", "write GROUP BY and the columns")
    clause = clause.part(1, len(clause))
    for word in ("rollup", "cube", "grouping", "all"):
        if clause.words(0, word) or clause.words(len(clause) - 2, "with", word):
            raise refused(
                clause,
                f"GROUP BY {word.upper()} is not supported",
                "write the columns of one grouping",
            )
    return tuple(clause.split(","))


def _item(piece: Piece) -> Item:
    """An expression and its name: `price * 2 AS double`, `price double`, or without a name."""
    if not len(piece):
        raise refused(piece, "an expression is missing here", "remove the comma, or write a column")
    for at in piece.outside():
        if is_word(piece.tokens[at], "as"):
            return Item(piece.part(0, at), piece.part(at + 1, len(piece)).name())
    last = piece.tokens[-1]
    if len(piece) > 1 and is_name(last) and not is_word(last, "end"):
        before = piece.tokens[-2]
        ends_a_value = before.token_type in _VALUES or is_name(before)
        unit = len(piece) > 2 and is_word(piece.tokens[-3], "interval")
        if ends_a_value and not unit and not _is_operator(before):
            return Item(piece.part(0, len(piece) - 1), str(last.text))
    return Item(piece)


#: Tokens at which an expression can end, next to names.
_VALUES = (
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
    TokenType.STRING,
    TokenType.NUMBER,
    TokenType.STAR,
)
_OPERATORS = (
    *("and", "or", "not", "is", "like", "rlike", "in", "between", "div"),
    *("case", "when", "then", "else", "interval", "date", "timestamp", "from", "to", "collate"),
)


def _is_operator(token: object) -> bool:
    return str(getattr(token, "text", "")).lower() in _OPERATORS


def _relations(clause: Piece) -> Iterator[Relation]:
    for piece in clause.split(","):
        cuts = [at for at in piece.outside() if is_word(piece.tokens[at], "join")]
        start, kind = 0, CROSS
        for cut in cuts:
            words = cut
            while words > start and str(piece.tokens[words - 1].text).lower() in _BEFORE_JOIN:
                words -= 1
            yield _relation(piece.part(start, words), kind)
            kind, start = _kind(piece.part(words, cut + 1)), cut + 1
        yield _relation(piece.part(start, len(piece)), kind)


def _kind(words: Piece) -> str:
    said = tuple(str(token.text).lower() for token in words.tokens[:-1])
    if "asof" in said:
        raise refused(
            words, "ASOF JOIN is not supported in SQL yet", "join on a range of time instead"
        )
    if said not in _KINDS:
        raise refused(
            words,
            f"{' '.join(said).upper()} JOIN is not supported",
            "write JOIN ... ON with the conditions spelled out",
        )
    return _KINDS[said]


def _relation(piece: Piece, kind: str) -> Relation:
    on_at = next((at for at in piece.outside() if is_word(piece.tokens[at], "on")), None)
    using_at = next((at for at in piece.outside() if is_word(piece.tokens[at], "using")), None)
    end = min(at for at in (on_at, using_at, len(piece)) if at is not None)
    named = piece.part(0, end)
    if not len(named):
        raise refused(
            piece, "a stream is missing here", "write its name, or remove the comma or JOIN"
        )
    on = None if on_at is None else piece.part(on_at + 1, len(piece))
    using: tuple[Piece, ...] = ()
    if using_at is not None:
        using = tuple(piece.part(using_at + 1, len(piece)).unwrapped().split(","))
    if on is not None and not len(on):
        raise refused(piece.part(on_at or 0, (on_at or 0) + 1), "ON has no condition", "write one")
    return _aliased(named, kind, on, using)


def _aliased(named: Piece, kind: str, on: Piece | None, using: tuple[Piece, ...]) -> Relation:
    """A stream or a query with its name in the query."""
    if named.tokens[0].token_type is TokenType.L_PAREN:
        end = named.closing(0)
        of: str | Query = _query(named.part(1, end))
        rest = named.part(end + 1, len(named))
        alias = ""
    else:
        end = 1
        while end + 1 < len(named) and named.tokens[end].token_type is TokenType.DOT:
            end += 2
        of = ".".join(named.part(at, at + 1).name() for at in range(0, end, 2))
        rest, alias = named.part(end, len(named)), of.rpartition(".")[2]
        if len(rest) and rest.tokens[0].token_type is TokenType.L_PAREN:
            raise refused(
                named, f"{of}(...) is a table function", "name a stream, or a query in parentheses"
            )
    if rest.words(0, "as"):
        rest = rest.part(1, len(rest))
    if len(rest):
        alias = rest.name()
    return Relation(named, of, alias, kind, on, using)
