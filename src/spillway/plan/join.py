"""The plan of an n-way join: names, keys, windows, with nothing of Spark's objects in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from spillway.errors import QueryError


@dataclass(frozen=True)
class WindowPlan:
    """When rows of one stream find partners, and how late they may come."""

    time: str
    window_us: int
    lateness_us: int
    #: Whether it is the length of stretches of time that begin at the epoch; else rows are compared.
    tumbling: bool = False


@dataclass(frozen=True)
class StreamPlan:
    """One stream of a join."""

    name: str
    #: Column names and their Spark types as DDL text, in order.
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    window: WindowPlan | None = None
    #: Whether a key that is NULL is a key like any other; to a join it matches nothing.
    null_keys: bool = False


class Plan(Protocol):
    """What the state of a query depends on; two starts of a checkpoint must agree on all of it."""

    #: What the operator is called.
    OPERATOR: ClassVar[str]

    @property
    def streams(self) -> tuple[StreamPlan, ...]:
        """The streams that come in."""
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

    @property
    def windowed(self) -> bool:
        """Whether rows ever expire."""
        return self.streams[0].window is not None

    def fingerprint(self) -> dict[str, Any]:
        """The plan as plain data, for the checkpoint's metadata."""
        return streams_fingerprint(self)


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
    # The checkpoints of other windows stay as they were.
    more = [True] if window.tumbling else []
    return [window.time, window.window_us, window.lateness_us, *more]


def window_from(written: Sequence[Any]) -> WindowPlan:
    """A window as a checkpoint has it."""
    return WindowPlan(*written)


def refuse_other_query(location: str, written: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises, naming the first difference, if a checkpoint belongs to another query."""
    difference = _difference(written, asked)
    if difference is not None:
        raise QueryError(
            f"the checkpoint at {location} belongs to another query: {difference}",
            hint="use another checkpointLocation for the changed query, or start the query as it "
            "was when the checkpoint was made",
        )


def _difference(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    # The first checkpoints were all of joins, and do not say so.
    was, now = (found.get("operator", JoinPlan.OPERATOR) for found in (written, asked))
    if was != now:
        return f"it is of the operator {was}, this query's is {now}"
    old = {s["name"]: s for s in written["streams"]}
    new = {s["name"]: s for s in asked["streams"]}
    if list(old) != list(new):
        return f"its streams are {_names(old)}, this query's are {_names(new)}"
    for name, stream in new.items():
        before = old[name]
        if before["keys"] != stream["keys"]:
            verb, word = ("joined", "on") if len(new) > 1 else ("grouped", "by")
            keys = _names(before["keys"]), _names(stream["keys"])
            return f"stream {name} was {verb} {word} {keys[0]}, now {word} {keys[1]}"
        if before["columns"] != stream["columns"]:
            change = _schema_change(before["columns"], stream["columns"])
            return f"the schema of stream {name} {change}"
        if before["window"] != stream["window"]:
            windows = _window(before["window"]), _window(stream["window"])
            return f"the window of stream {name} was {windows[0]}, now {windows[1]}"
    if written["key_types"] != asked["key_types"]:
        return (
            f"the key types were {_names(written['key_types'])}, now {_names(asked['key_types'])}"
        )
    told = ([f"{one[0]}={one[2]}" for one in q.get("aggregates", ())] for q in (written, asked))
    before, after = told
    if before != after:
        return f"its aggregates were {_names(before)}, now {_names(after)}"
    # Whatever else a plan says of itself: a checkpoint that does not has the first value.
    for what in sorted({*written, *asked} - _COMPARED):
        was, now = (found.get(what, _UNSAID.get(what)) for found in (written, asked))
        if was != now:
            return _DIFFERENT.get(what, _differently)(what, was, now)
    return None


#: Parts of a plan that have been compared by then; and what others are where they are not said.
_COMPARED = {"operator", "streams", "key_types", "aggregates"}
_UNSAID: dict[str, Any] = {"copies": 1}


def _differently(what: str, was: Any, now: Any) -> str:
    return f"its {what!r} was {was}, now {now}"


def _other_conditions(_: str, was: Any, now: Any) -> str:
    # Their numbers tell them apart in statistics, and say nothing here.
    before, after = ([one.partition(":")[2] for one in some or ()] for some in (was, now))
    return f"its conditions were {_names(before)}, now {_names(after)}"


def _other_copies(_: str, was: int, now: int) -> str:
    return (
        f"every row was stored {was} times, now {now} times, which distribute= and copies= say"
        if min(was, now) > 1
        else f'it was distribute="{_copied(was)}", now "{_copied(now)}"'
    )


def _copied(copies: int) -> str:
    return "psp" if copies == 1 else "ctr"


def _other_segments(_: str, was: Any, now: Any) -> str:
    return f"it was cut into {_segments(was)}, now into {_segments(now)}"


def _segments(segment: Any) -> str:
    return "none" if segment is None else f"segments of {segment[0] / 1e6:g} s of {segment[1]}"


_DIFFERENT: dict[str, Callable[[str, Any, Any], str]] = {
    "conditions": _other_conditions,
    "copies": _other_copies,
    "segment": _other_segments,
}


def _schema_change(before: list[list[str]], now: list[list[str]]) -> str:
    old, new = ({column[0]: column[1] for column in schema} for schema in (before, now))
    for name, kind in old.items():
        if name not in new:
            return f"had a column {name} {kind} that is gone"
        if new[name] != kind:
            return f"had {name} {kind}, now {new[name]}"
    added = [name for name in new if name not in old]
    return f"has the new column {added[0]}" if added else "has its columns in another order"


def _window(written: list[Any] | None) -> str:
    if written is None:
        return "unbounded"
    window = window_from(written)
    every = "every " if window.tumbling else ""
    lateness = f"lateness {window.lateness_us / 1e6:g} s"
    return f"{every}{window.window_us / 1e6:g} s on {window.time} with {lateness}"


def _names(names: Any) -> str:
    return "(" + ", ".join(names) + ")"
