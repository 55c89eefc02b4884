"""Time windows in GROUP BY: `window(ts, '5 minutes')` and `session_window(ts, '5 minutes')`."""

from __future__ import annotations

from spillway.duration import duration_us
from spillway.errors import PlanError
from spillway.plan.sql.query.nodes import TimeWindowNode
from spillway.plan.sql.query.scope import Scope
from spillway.plan.sql.query.text import Piece, refused

TUMBLING, SLIDING, SESSION = "tumbling", "sliding", "session"
FUNCTIONS = ("window", "session_window")


def is_time_window(piece: Piece) -> bool:
    """Whether a piece is a call of one of these functions."""
    opens = any(piece.words(0, name, "(") for name in FUNCTIONS)
    return opens and piece.closing(1) == len(piece) - 1


def time_window_of(piece: Piece, scope: Scope, known: TimeWindowNode | None) -> TimeWindowNode:
    """The time windows that a key asks for."""
    if known is not None:
        raise refused(piece, "GROUP BY has two time windows", "keep one of them")
    arguments = piece.part(2, len(piece) - 1).split(",")
    session = piece.words(0, "session_window")
    if not 2 <= len(arguments) <= (2 if session else 3):
        raise refused(piece, "the window has the wrong arguments", "write window(ts, '5 minutes')")
    time = scope.value(arguments[0]).column
    if time is None:
        raise refused(arguments[0], "the time of a window must be a column", "name the event time")
    length, *slide = (_length(one) for one in arguments[1:])
    if session:
        return TimeWindowNode(SESSION, time.name, length, place=piece)
    if not slide or slide[0] == length:
        return TimeWindowNode(TUMBLING, time.name, length, place=piece)
    return TimeWindowNode(SLIDING, time.name, length, slide[0], place=piece)


def _length(piece: Piece) -> int:
    text = piece.text
    try:
        return duration_us("window", text[1:-1] if text[:1] in "'\"" else text)
    except PlanError as problem:
        raise refused(piece, problem.message, str(problem.hint)) from problem
