"""The plan of an n-way join: names, keys, windows, with nothing of Spark's objects in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from spillway.errors import QueryError


@dataclass(frozen=True)
class WindowPlan:
    """When rows of one stream find partners, and how late they may come."""

    time: str
    window_us: int
    lateness_us: int


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
                "window": None
                if s.window is None
                else [s.window.time, s.window.window_us, s.window.lateness_us],
            }
            for s in plan.streams
        ],
        "key_types": list(plan.key_types),
    }


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
            verb, word = ("joined", "on") if now == JoinPlan.OPERATOR else ("grouped", "by")
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
    for what in ("last", "by"):
        if written.get(what) != asked.get(what):
            return f"its {what!r} was {written.get(what)}, now {asked.get(what)}"
    return None


def _schema_change(before: list[list[str]], now: list[list[str]]) -> str:
    old, new = ({column[0]: column[1] for column in schema} for schema in (before, now))
    for name, kind in old.items():
        if name not in new:
            return f"had a column {name} {kind} that is gone"
        if new[name] != kind:
            return f"had {name} {kind}, now {new[name]}"
    added = [name for name in new if name not in old]
    return f"has the new column {added[0]}" if added else "has its columns in another order"


def _window(window: list[Any] | None) -> str:
    if window is None:
        return "unbounded"
    return f"{window[1] / 1e6:g} s on {window[0]} with lateness {window[2] / 1e6:g} s"


def _names(names: Any) -> str:
    return "(" + ", ".join(names) + ")"
