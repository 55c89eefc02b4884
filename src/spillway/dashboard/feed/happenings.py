"""Lines of the timeline, from events and moves.

Reasons and names come from outside, so they lose their secrets here, and what is too long is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from spillway.dashboard.feed.history import MOST_SOME, safe
from spillway.dashboard.feed.news import Happening, Moving
from spillway.metrics.events import Event, MoveEvent


def _subclasses(kind: type[Event]) -> Iterator[type[Event]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


#: The protocol message of each kind of event that is a step.
MESSAGES: dict[str, str] = {
    one.kind: one.message for one in _subclasses(MoveEvent) if issubclass(one, MoveEvent)
}
#: Events whose `slot` is not the slot that did it: the new slot count.
_COUNTS = ("scaled",)


def happenings_of(
    events: Iterable[Mapping[str, Any]], *, stage: int, at_s: float, first: int
) -> tuple[Happening, ...]:
    """Returns the lines of events, as plain data of the codec, numbered from `first`."""
    return tuple(_line(event, stage, at_s, first + at) for at, event in enumerate(events))


def _line(event: Mapping[str, Any], stage: int, at_s: float, number: int) -> Happening:
    kind, groups = event["event"], event["groups"]
    return Happening(
        number=number,
        at_s=round(at_s, 3),
        stage=stage,
        batch=event["batch"],
        kind=kind,
        reason=safe(event["reason"]),
        slot=None if kind in _COUNTS else event["slot"],
        receiver=event.get("receiver"),
        move=event.get("move"),
        groups=len(groups),
        some=tuple(groups[:MOST_SOME]),
        bytes=event["bytes"],
        seconds=round(event["seconds"], 4),
        rows_out=event.get("rows_out", 0),
        message=MESSAGES.get(kind, ""),
        shapes=(event["before"], event["shape"]) if "shape" in event else (),
    )


def moving_of(moves: Sequence[Mapping[str, Any]]) -> tuple[Moving, ...]:
    """Returns the moves in progress, from plain data of the codec."""
    return tuple(
        Moving(
            move["move"],
            move["sender"],
            move["receiver"],
            move["protocol"],
            move["phase"],
            len(move["groups"]),
            tuple(move["groups"][:MOST_SOME]),
            move["bytes"] or move["wanted_bytes"],
            safe(move["reason"]),
        )
        for move in moves
    )
