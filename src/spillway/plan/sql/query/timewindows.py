"""Time windows in GROUP BY: `window(ts, '5 minutes')` and `session_window(ts, '5 minutes')`."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.duration import duration_us
from spillway.errors import PlanError
from spillway.plan.sql.query.scope import Scope
from spillway.plan.sql.query.text import Piece, refused
from spillway.plan.sql.query.values import Value

WINDOW, SESSION = "window", "session_window"
#: The functions, with the largest number of their arguments.
FUNCTIONS = {WINDOW: 4, SESSION: 2}


@dataclass(frozen=True)
class TimeWindow:
    """The windows that a key asks for."""

    kind: str
    time: Value
    length_us: int
    slide_us: int | None
    start_us: int
    place: Piece


def is_time_window(piece: Piece) -> bool:
    """Whether a piece is a call of one of these functions."""
    opens = any(piece.words(0, name, "(") for name in FUNCTIONS)
    return opens and piece.closing(1) == len(piece) - 1


def time_window_of(piece: Piece, scope: Scope, known: TimeWindow | None) -> TimeWindow:
    """The time windows that a key asks for."""
    if known is not None:
        raise refused(piece, "GROUP BY has two time windows", "keep one of them")
    kind = str(piece.tokens[0].text).lower()
    arguments = piece.part(2, len(piece) - 1).split(",")
    if not 2 <= len(arguments) <= FUNCTIONS[kind]:
        raise refused(piece, "the window has the wrong arguments", "write window(ts, '5 minutes')")
    lengths = [_length(one) for one in arguments[1:]]
    length, slide = lengths[0], lengths[1] if len(lengths) > 1 else None
    return TimeWindow(
        kind,
        scope.value(arguments[0]),
        length,
        None if slide == length else slide,
        lengths[2] if len(lengths) > 2 else 0,
        piece,
    )


def _length(piece: Piece) -> int:
    text = piece.text
    if text[:1] not in "'\"":
        raise refused(piece, "the length of a window must be text", "write window(ts, '5 minutes')")
    try:
        return duration_us("window", text[1:-1])
    except PlanError as problem:
        raise refused(piece, problem.message, str(problem.hint)) from problem
