"""Errors meant for people.

Every error that a user can cause or fix is a `SpillwayError`: a message that names the thing, what was
expected and what came; a detail if that helps; and a hint that the user can follow. An error raised
inside a slot task crosses a process and a JVM on its way to the driver; `to_wire` and `from_wire` carry
its three parts through the text of the exception that arrives there.
"""

from __future__ import annotations

import json
import re

_WIRE = re.compile(r"<<spillway:(\{.*?\}):spillway>>", re.DOTALL)


class SpillwayError(Exception):
    """The base of all errors of Spillway: what happened, in detail, and what to do about it."""

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message]
        if self.detail:
            parts.append(f"  detail: {self.detail}")
        if self.hint:
            parts.append(f"  hint: {self.hint}")
        return "\n".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self).__name__, self.message, self.detail, self.hint)

    def to_wire(self) -> str:
        """The error as text that can be found again inside a longer text."""
        return "<<spillway:" + json.dumps(_parts(self)) + ":spillway>>"


class PlanError(SpillwayError):
    """The query as written cannot run: a column, a key, a window or a stream is wrong."""


class SettingsError(SpillwayError):
    """A setting has a value that is not valid."""


class StateError(SpillwayError):
    """State on disk or in memory is missing or damaged, or does not fit."""


class QueryError(SpillwayError):
    """A running query, or its checkpoint, cannot do what was asked."""


class EnvironmentMissing(SpillwayError):
    """The machine lacks something that Spillway needs, for example Java."""


_KINDS: dict[str, type[SpillwayError]] = {
    kind.__name__: kind
    for kind in (
        SpillwayError,
        PlanError,
        SettingsError,
        StateError,
        QueryError,
        EnvironmentMissing,
    )
}


def from_wire(text: str) -> SpillwayError | None:
    """The first Spillway error quoted in `text`, if there is one."""
    found = _WIRE.search(text)
    if found is None:
        return None
    parts = json.loads(found.group(1))
    return _rebuild(parts["kind"], parts["message"], parts["detail"], parts["hint"])


def _parts(error: SpillwayError) -> dict[str, str | None]:
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "detail": error.detail,
        "hint": error.hint,
    }


def _rebuild(kind: str, message: str, detail: str | None, hint: str | None) -> SpillwayError:
    return _KINDS.get(kind, SpillwayError)(message, detail=detail, hint=hint)
