"""What Spark tells a task of itself, like `TaskContext`: its number and its host.

The number says nothing about the slot: a sink that coalesces runs several slots under one. A task of a
coalesced sink, or a speculative one, also runs on another host than the slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskContext:
    """One attempt at a task."""

    partition: int
    host: int


_CURRENT: ContextVar[TaskContext | None] = ContextVar("task", default=None)


def current_task() -> TaskContext | None:
    """The task that runs in this thread; None between tasks."""
    return _CURRENT.get()


@contextmanager
def task_running(context: TaskContext) -> Iterator[None]:
    """The task runs within."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)
