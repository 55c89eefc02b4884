"""Whether a checkpoint belongs to a query: the plans of all stages, as plain data, must be equal.

The error names the first difference in the user's words: stage, stream, key, column, window or option.
A query reads the same sources again, in the same order: Spark keeps one offset for each position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spillway.errors import QueryError
from spillway.plan.join import JoinPlan, window_from
from spillway.plan.kind import INNER_JOIN

#: The plan of one stage as plain data.
Fingerprint = Mapping[str, Any]


def refuse_other_query(
    location: str, written: Sequence[Fingerprint], asked: Sequence[Fingerprint]
) -> None:
    """Raises, naming the first difference, if a checkpoint belongs to another query.

    Both are the stages of a query, in the order in which rows pass them.
    """
    _refuse(location, _stages(written, asked))


def refuse_other_sources(
    location: str, written: Mapping[str, Sequence[Any]], asked: Mapping[str, Sequence[Any]]
) -> None:
    """Raises if a stream is read from another source.

    A source is its kind, its place, and whether it is a directory of files. Another place is possible
    (a topic may be renamed), unless it belongs to another stream. A directory cannot change: Spark
    looks for the files of the last batch in it.
    """
    _refuse(location, _sources(written, asked))


def _refuse(location: str, difference: str | None) -> None:
    if difference is not None:
        raise QueryError(
            f"the checkpoint at {location} belongs to another query: {difference}",
            hint="use another checkpointLocation for the changed query, or start the query that made "
            "this checkpoint",
        )


def _stages(written: Sequence[Fingerprint], asked: Sequence[Fingerprint]) -> str | None:
    old, new = ([operator_of(one) for one in stages] for stages in (written, asked))
    if old != new and max(len(old), len(new)) > 1:
        return f"its stages are {_names(old)}, this query's are {_names(new)}"
    for at, (was, now) in enumerate(zip(written, asked, strict=True), start=1):
        if (found := _difference(was, now)) is not None:
            return found if len(new) == 1 else f"in stage {at} ({new[at - 1]}), {found}"
    return None


def operator_of(fingerprint: Fingerprint) -> str:
    """The name of the operator of a stage."""
    # The first checkpoints were all of joins, and do not say so.
    return str(fingerprint.get("operator", JoinPlan.OPERATOR))


def _sources(
    written: Mapping[str, Sequence[Any]], asked: Mapping[str, Sequence[Any]]
) -> str | None:
    places = [list(one) for sources in written.values() for one in sources]
    for stream, sources in asked.items():
        before = written.get(stream, ())
        pairs = list(zip(before, sources, strict=False))
        if len(before) != len(sources) or any(_moved(*pair, places) for pair in pairs):
            return f"stream {stream} was read from {_places(before)}, now from {_places(sources)}"
    return None


def _moved(was: Sequence[Any], now: Sequence[Any], places: Sequence[list[Any]]) -> bool:
    """Whether a source became another one."""
    (kind, place, files), (new_kind, new_place, _) = was, now
    if kind != new_kind:
        return True
    return bool(place != new_place and (files or list(now) in places))


def _places(sources: Sequence[Sequence[Any]]) -> str:
    return " and ".join(" ".join(map(str, one[:2])).strip() for one in sources) or "no source"


def _difference(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """The first difference, in words; None: there is none."""
    for look in (_operators, _aggregates, _streams, _key_types, _shaped, _others):
        if (found := look(written, asked)) is not None:
            return found
    return None


def _operators(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    was, now = operator_of(written), operator_of(asked)
    return None if was == now else f"its operator is {was}, this query's is {now}"


def _streams(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    old = {s["name"]: s for s in written["streams"]}
    new = {s["name"]: s for s in asked["streams"]}
    if list(old) != list(new):
        return f"its streams are {_names(old)}, this query's are {_names(new)}"
    differences = (_stream(old[name], new[name]) for name in new)
    return next((found for found in differences if found is not None), None)


def _stream(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    name = new["name"]
    if old["keys"] != new["keys"]:
        was, now = _names(old["keys"]), _names(new["keys"])
        return f"the keys of stream {name} were {was}, now {now}"
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


def _shaped(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """The where and select between two stages; equal text or equal meaning is enough.

    The meaning is Spark's text for the resolved expressions: another version of Spark may write it in
    another way, and the user may write the same in other words.
    """
    was, now = (query.get("shaped", _UNSHAPED) for query in (written, asked))
    if was["text"] == now["text"] or was["meaning"] == now["meaning"]:
        return None
    return f"its rows passed {_chained(was['text'])}, now {_chained(now['text'])}"


def _chained(steps: Sequence[str]) -> str:
    return ".".join(steps) or "unchanged"


def _others(written: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """Whatever else a plan records; older checkpoints may not have it."""
    for what in sorted({*written, *asked} - _COMPARED):
        was, now = (found.get(what, _UNSAID.get(what)) for found in (written, asked))
        if was != now:
            return _DIFFERENT.get(what, _differently)(what, was, now)
    return None


#: Parts of a plan that have comparisons of their own; and the values of others where none is recorded.
_COMPARED = {"operator", "streams", "key_types", "aggregates", "shaped"}
_UNSHAPED: dict[str, Any] = {"text": [], "meaning": []}
_UNSAID: dict[str, Any] = {"copies": 1, "kind": INNER_JOIN.text}


def _differently(what: str, was: Any, now: Any) -> str:
    return f"its {what!r} was {was}, now {now}"


def _other_conditions(_: str, was: Any, now: Any) -> str:
    # Their numbers tell them apart in statistics, and mean nothing here.
    before, after = ([one.partition(":")[2] for one in some or ()] for some in (was, now))
    return f"its conditions were {_names(before)}, now {_names(after)}"


def _other_copies(_: str, was: int, now: int) -> str:
    return (
        f"it stored every row {was} times, now {now} times: see distribute= and copies="
        if min(was, now) > 1
        else f'it was distribute="{_copied(was)}", now "{_copied(now)}"'
    )


def _copied(copies: int) -> str:
    return "psp" if copies == 1 else "ctr"


def _other_segments(_: str, was: Any, now: Any) -> str:
    return f"it had {_segments(was)}, now {_segments(now)}"


def _other_kind(_: str, was: str, now: str) -> str:
    return f"its join was {was}, now {now}"


def _segments(segment: Any) -> str:
    return (
        "no segments" if segment is None else f"segments of {segment[0] / 1e6:g} s of {segment[1]}"
    )


def _other_windows(_: str, was: Any, now: Any) -> str:
    return f"it had {_windows(was)}, now {_windows(now)}"


def _windows(written: Any) -> str:
    return "no windows" if written is None else f'{written[0]} in outputMode("{written[1]}")'


_DIFFERENT: dict[str, Callable[[str, Any, Any], str]] = {
    "conditions": _other_conditions,
    "copies": _other_copies,
    "kind": _other_kind,
    "segment": _other_segments,
    "windows": _other_windows,
}


def _schema_change(before: list[list[str]], now: list[list[str]]) -> str:
    old, new = ({column[0]: column[1] for column in schema} for schema in (before, now))
    for name, kind in old.items():
        if name not in new:
            return f"no longer has the column {name} {kind}"
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
