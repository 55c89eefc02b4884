"""Whether a checkpoint belongs to a query: the two plans, as plain data, must be equal.

A difference is told in the user's words: which stream, key, column, window or option changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spillway.errors import QueryError
from spillway.plan.join import JoinPlan, window_from


def refuse_other_query(location: str, written: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises, naming the first difference, if a checkpoint belongs to another query."""
    difference = _difference(written, asked)
    if difference is not None:
        raise QueryError(
            f"the checkpoint at {location} belongs to another query: {difference}",
            hint="use another checkpointLocation for the changed query, or start the query that made "
            "this checkpoint",
        )


def _difference(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """The first difference, in words; None: there is none."""
    for look in (_operators, _streams, _key_types, _aggregates, _others):
        if (found := look(written, asked)) is not None:
            return found
    return None


def _operators(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    # The first checkpoints were all of joins, and do not say so.
    was, now = (found.get("operator", JoinPlan.OPERATOR) for found in (written, asked))
    return None if was == now else f"its operator is {was}, this query's is {now}"


def _streams(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    old = {s["name"]: s for s in written["streams"]}
    new = {s["name"]: s for s in asked["streams"]}
    if list(old) != list(new):
        return f"its streams are {_names(old)}, this query's are {_names(new)}"
    differences = (_stream(old[name], new[name], joined=len(new) > 1) for name in new)
    return next((found for found in differences if found is not None), None)


def _stream(old: Mapping[str, Any], new: Mapping[str, Any], *, joined: bool) -> str | None:
    name = new["name"]
    if old["keys"] != new["keys"]:
        verb, word = ("joined", "on") if joined else ("grouped", "by")
        was, now = _names(old["keys"]), _names(new["keys"])
        return f"stream {name} was {verb} {word} {was}, now {word} {now}"
    if old["columns"] != new["columns"]:
        return f"the schema of stream {name} {_schema_change(old['columns'], new['columns'])}"
    if old["window"] != new["window"]:
        was, now = _window(old["window"]), _window(new["window"])
        return f"the window of stream {name} was {was}, now {now}"
    return None


def _key_types(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    was, now = written["key_types"], asked["key_types"]
    return None if was == now else f"the key types were {_names(was)}, now {_names(now)}"


def _aggregates(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    was, now = (
        [f"{one[0]}={one[2]}" for one in query.get("aggregates", ())] for query in (written, asked)
    )
    return None if was == now else f"its aggregates were {_names(was)}, now {_names(now)}"


def _others(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """Whatever else a plan records; older checkpoints may not have it."""
    for what in sorted({*written, *asked} - _COMPARED):
        was, now = (found.get(what, _UNSAID.get(what)) for found in (written, asked))
        if was != now:
            return _DIFFERENT.get(what, _differently)(what, was, now)
    return None


#: Parts of a plan that have comparisons of their own; and the values of others where none is recorded.
_COMPARED = {"operator", "streams", "key_types", "aggregates"}
_UNSAID: dict[str, Any] = {"copies": 1}


def _differently(what: str, was: Any, now: Any) -> str:
    return f"its {what!r} was {was}, now {now}"


def _other_conditions(_: str, was: Any, now: Any) -> str:
    # Their numbers tell them apart in statistics, and mean nothing here.
    before, after = ([one.partition(":")[2] for one in some or ()] for some in (was, now))
    return f"its conditions were {_names(before)}, now {_names(after)}"


def _other_copies(_: str, was: int, now: int) -> str:
    return (
        f"every row was stored {was} times, now {now} times: see distribute= and copies="
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
