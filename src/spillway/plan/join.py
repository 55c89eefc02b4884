"""The plan of an n-way join: names, keys and windows, as plain values without Spark objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from spillway.plan.kind import INNER_JOIN, JoinKind


@dataclass(frozen=True)
class WindowPlan:
    """When rows of one stream find partners, and how late they may arrive."""

    time: str
    window_us: int
    lateness_us: int
    #: Whether `window_us` is the length of tumbling windows from the epoch on; else row times are
    #: compared.
    tumbling: bool = False


@dataclass(frozen=True)
class StreamPlan:
    """One stream of a join."""

    name: str
    #: Column names and their Spark types as DDL text, in order.
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    window: WindowPlan | None = None
    #: Whether NULL is a key like any other; in a join it matches nothing.
    null_keys: bool = False
    #: Whether rows come out that match nothing: of a stream that an outer join keeps.
    alone: bool = False


class Plan(Protocol):
    """What the state of a query depends on: all of it must be equal when a checkpoint starts again."""

    OPERATOR: ClassVar[str]

    @property
    def streams(self) -> tuple[StreamPlan, ...]:
        """The input streams."""
        ...

    @property
    def key_types(self) -> tuple[str, ...]:
        """The type of each key, as DDL text."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """The plan as plain data, for the checkpoint's metadata."""
        ...


@dataclass(frozen=True)
class JoinPlan:
    """An n-way join on equal keys."""

    OPERATOR: ClassVar[str] = "n-way join"

    streams: tuple[StreamPlan, ...]
    #: The common type of each key, as DDL text.
    key_types: tuple[str, ...]
    kind: JoinKind = INNER_JOIN

    @property
    def windowed(self) -> bool:
        """Whether rows ever expire."""
        return self.streams[0].window is not None

    def fingerprint(self) -> dict[str, Any]:
        """The plan as plain data, for the checkpoint's metadata."""
        return {**streams_fingerprint(self), **kind_fingerprint(self.kind)}


def kind_fingerprint(kind: JoinKind) -> dict[str, Any]:
    """The kind of a join as plain data; inner joins do not say it, as in older checkpoints."""
    return {} if kind == INNER_JOIN else {"kind": kind.text}


def streams_fingerprint(plan: Plan) -> dict[str, Any]:
    """The streams and keys of a plan as plain data."""
    return {
        "streams": [
            {
                "name": s.name,
                "columns": [list(column) for column in s.columns],
                "keys": list(s.keys),
                "window": None if s.window is None else _window_fingerprint(s.window),
            }
            for s in plan.streams
        ],
        "key_types": list(plan.key_types),
    }


def _window_fingerprint(window: WindowPlan) -> list[Any]:
    # Fingerprints of other windows must stay as older checkpoints have them.
    more = [True] if window.tumbling else []
    return [window.time, window.window_us, window.lateness_us, *more]


def window_from(written: Sequence[Any]) -> WindowPlan:
    """The window in a checkpoint's metadata."""
    return WindowPlan(*written)
