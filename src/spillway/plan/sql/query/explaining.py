"""The text of EXPLAIN: what each condition of a query became, and what the state of the query is."""

from __future__ import annotations

from collections.abc import Iterator

from spillway.plan.sql.query.nodes import (
    DedupNode,
    GroupNode,
    JoinNode,
    MatchNode,
    Node,
    Planned,
    Read,
    Rows,
    SelectNode,
    StreamNode,
    TimeWindowNode,
    WindowNode,
)


def explained(planned: Planned) -> str:
    """A planned query as text, the last operator first."""
    lines = [*_node(planned.node, ""), *(f"note: {note.text}" for note in planned.notes)]
    return "\n".join(lines)


def _node(node: Node | StreamNode, indent: str) -> Iterator[str]:
    inner = indent + "  "
    match node:
        case SelectNode(before=before, filters=filters, columns=columns):
            if columns is not None:
                named = ", ".join(f"{one.text} AS {one.name}" for one in columns)
                yield f"{indent}select {named}"
            yield from (f"{indent}where {one}" for one in filters)
            yield from _node(before, indent)
        case GroupNode(before=before, keys=keys, aggregates=aggregates, window=window):
            often = "one row at the end of each window" if window else "a version in every batch"
            yield f"{indent}group-by, {often}"
            yield f"{inner}keys {', '.join(keys) or 'none'}"
            if window is not None:
                yield f"{inner}{_time_window(window)}"
            for one in aggregates:
                fraction = "" if one.fraction is None else f", {one.fraction:g}"
                order = "" if one.by is None else f", {one.by}"
                yield f"{inner}{one.name} = {one.function}({one.of or '*'}{fraction}{order})"
            yield from _node(before, inner)
        case DedupNode(before=before, keys=keys):
            yield f"{indent}dedup, the first row of each combination"
            yield f"{inner}keys {', '.join(keys)}"
            yield from _node(before, inner)
        case JoinNode():
            yield from _join(node, indent)
        case StreamNode(name=name, rows=rows):
            yield f"{indent}stream {name}"
            yield from _rows(rows, inner)


def _join(node: JoinNode, indent: str) -> Iterator[str]:
    inner = indent + "  "
    kind = "n-way join on equal keys" if node.keys else "time-sliced join on conditions"
    how = "" if node.how == "inner" else f"{node.how} "
    yield f"{indent}{how}{kind} of {len(node.streams)} streams"
    if node.optional:
        yield f"{inner}optional {', '.join(node.optional)}"
    for at, key in enumerate(node.keys):
        equal = " = ".join(f"{s.name}.{c}" for s, c in zip(node.streams, key, strict=True))
        yield f"{inner}key {at + 1}: {equal}"
    yield from (f"{inner}{_match(one, node)}" for one in node.matches)
    yield from (f"{inner}where {one}, in Spark, over the results" for one in node.filters)
    if node.plan is not None:
        yield f"{inner}plan {node.plan}"
    windows: tuple[WindowNode | None, ...] = node.windows or (None,) * len(node.streams)
    for stream, window in zip(node.streams, windows, strict=True):
        yield f"{inner}stream {stream.name}"
        yield from _rows(stream.rows, inner + "  ")
        yield f"{inner}  {_window(window)}"


def _match(one: MatchNode, node: JoinNode) -> str:
    return (
        f"condition {one.text}, {'tested on pairs' if not node.keys else 'of rows with equal keys'}"
    )


def _window(window: WindowNode | None) -> str:
    if window is None:
        return "window unbounded: rows stay for ever"
    return (
        f"window {_seconds(window.window_us)} on {window.time}, "
        f"lateness {_seconds(window.lateness_us)}"
    )


def _time_window(window: TimeWindowNode) -> str:
    slide = "" if window.slide_us is None else f" every {_seconds(window.slide_us)}"
    return (
        f"{window.kind} of {_seconds(window.length_us)}{slide}, "
        f"lateness {_seconds(window.lateness_us)}"
    )


def _seconds(us: int) -> str:
    return f"{us / 1e6:.6f}".rstrip("0").rstrip(".") + " s"


def _rows(rows: Rows, indent: str) -> Iterator[str]:
    if isinstance(rows.of, Read):
        yield f"{indent}reads {rows.of.relation}"
    else:
        yield f"{indent}unites"
        for part in rows.of:
            yield from _rows(part, indent + "  ")
    yield from (f"{indent}where {one.text}" for one in rows.filters)
    for one in (*(rows.columns or ()), *rows.more):
        yield f"{indent}column {one.name} = {one.text}"
