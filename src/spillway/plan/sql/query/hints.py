"""Hints of a query: what SQL has no words for. Spark ignores them, so the text stays valid SQL.

    /*+ LATENESS('30 seconds') */              rows of every stream may be so late
    /*+ LATENESS(orders, '1 minute') */        rows of one stream
    /*+ PLAN('auto') */, /*+ PLAN('((a b) c)') */   join orders

No hint changes which results rows in time give. Lateness says when a row may be dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway.duration import duration_us
from spillway.errors import PlanError
from spillway.plan.sql.query.text import Piece, Text, refused

NAMES = ("LATENESS", "PLAN")


@dataclass(frozen=True)
class Hints:
    """The hints of one SELECT."""

    #: Lateness in microseconds by the alias of a stream; "" is for all streams.
    lateness: Mapping[str, int] = field(default_factory=dict)
    plan: str | None = None
    #: Where each alias stands.
    places: Mapping[str, Piece] = field(default_factory=dict, repr=False, compare=False)

    def of(self, alias: str) -> int | None:
        """The lateness of a stream, if the hints say it."""
        return self.lateness.get(alias.lower(), self.lateness.get(""))


def hints_of(token: Piece | None) -> Hints:
    """The hints in a token `/*+ ... */`."""
    if token is None:
        return Hints()
    start, whole = token.start_at, token.source.whole
    # The same text, with everything but the hints blank: places stay what they are.
    inner = " " * (start + 3) + token.text[3:-2]
    tokens = Text.of(inner).tokens if inner.strip() else ()
    piece = Text(whole, tokens).piece
    lateness: dict[str, int] = {}
    places: dict[str, Piece] = {}
    plan = None
    for one in piece.split(",") if len(piece) else ():
        name, arguments = _called(one)
        if name == "PLAN":
            [argument] = _exactly(one, arguments, 1, 1)
            plan = argument.tokens[0].text
            continue
        *streams, length = _exactly(one, arguments, 1, 2)
        alias = streams[0].name().lower() if streams else ""
        lateness[alias], places[alias] = _lateness(length), one
    return Hints(lateness, plan, places)


def _called(one: Piece) -> tuple[str, list[Piece]]:
    name = str(one.tokens[0].text).upper() if len(one) else ""
    if name not in NAMES:
        raise refused(
            one,
            f"{name or 'this'} is not a hint of Spillway",
            "use LATENESS('30 seconds'), LATENESS(stream, '30 seconds') or PLAN('auto')",
        )
    return name, one.part(2, len(one) - 1).split(",") if len(one) > 3 else []


def _exactly(one: Piece, arguments: list[Piece], least: int, most: int) -> list[Piece]:
    if not least <= len(arguments) <= most or not all(len(argument) for argument in arguments):
        raise refused(
            one, "the hint has the wrong arguments", "write for example LATENESS('30 seconds')"
        )
    return arguments


def _lateness(piece: Piece) -> int:
    text = piece.text
    quoted = text[1:-1] if text[:1] in "'\"" else text
    try:
        return duration_us("lateness", quoted)
    except PlanError as problem:
        raise refused(piece, problem.message, str(problem.hint)) from problem
