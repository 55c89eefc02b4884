"""Errors meant for people.

Every error that a user can cause or fix is a `SpillwayError`: a message that names the thing, what
was expected and what came; a detail if that helps; and a hint to follow. `to_wire` and `from_wire`
carry these parts from a slot task to the driver, inside the text of the exception that arrives there.

No error shows a secret (spillway/redaction.py). A `SpillwayError` hides them when it is made. Errors of
libraries pass `keeping_secrets` or `without_secrets` where they leave Spillway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from spillway.redaction import hidden

#: The hint of an error that only a bug can cause.
BUG = "this is a bug in Spillway: please report it; a restart repeats the batch"

_WIRE = re.compile(r"<<spillway:(\{.*?\}):spillway>>", re.DOTALL)


class SpillwayError(Exception):
    """The base of all errors of Spillway: what happened, in detail, and what to do about it."""

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None) -> None:
        message = hidden(message)
        super().__init__(message)
        self.message = message
        self.detail = None if detail is None else hidden(detail)
        self.hint = None if hint is None else hidden(hint)

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


@contextmanager
def keeping_secrets() -> Iterator[None]:
    """Raises what the block raises, without secrets in its text and in the texts of its causes."""
    try:
        yield
    except Exception as problem:
        clean = without_secrets(problem)
        if clean is problem:
            raise
        raise clean from None


@contextmanager
def passed_to_driver() -> Iterator[None]:
    """In a task: raises a Spillway error in a form that the driver finds in Spark's text."""
    try:
        with keeping_secrets():
            yield
    except SpillwayError as error:
        raise RuntimeError(error.to_wire()) from error


def without_secrets(problem: BaseException) -> BaseException:
    """The problem; if its text or a cause shows a secret, one that says the same without it.

    A traceback prints the causes too, so a problem whose causes show a secret loses them.
    """
    own, *causes = list(_with_causes(problem))
    if hidden(str(own)) != str(own):
        return QueryError(f"{type(own).__name__}: {own}")
    if any(hidden(str(cause)) != str(cause) for cause in causes):
        problem.__cause__ = problem.__context__ = None
    return problem


def _with_causes(problem: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    left: list[BaseException | None] = [problem]
    while left:
        found = left.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            yield found
            left += [found.__context__, found.__cause__]


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
