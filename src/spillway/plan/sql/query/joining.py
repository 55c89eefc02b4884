"""A flat query of several streams as a join: keys, windows, conditions of the join, filters.

Each condition goes where it costs least: into the stream if it reads one, into the keys if they imply
it, into the windows if they do, else into the join (`match`). Spark filters results by what the join
cannot test. Each is exact: keys and windows only say where partners can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spillway.plan.sql.expression import Column
from spillway.plan.sql.query.bounds import (
    Difference,
    Times,
    bound_of,
    is_implied,
    unbounded,
    windows_of,
)
from spillway.plan.sql.query.flat import Condition, Flat, FlatStream
from spillway.plan.sql.query.keys import COMPUTED, Equality, Keys, equality_of, keys_of
from spillway.plan.sql.query.nodes import (
    JoinNode,
    MatchNode,
    Named,
    Note,
    StreamNode,
    WindowNode,
)
from spillway.plan.sql.query.outer import Sorted, sorted_conditions
from spillway.plan.sql.query.text import refused
from spillway.plan.sql.query.values import Value


@dataclass(frozen=True)
class Joined:
    """A join with what to tell the user about it."""

    node: JoinNode
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class _Read:
    """A condition with what it means for keys and times."""

    condition: Condition
    equality: Equality | None = None
    differences: tuple[Difference, ...] = ()


def joined(flat: Flat, steady: bool) -> Joined:
    """The join of a flat query."""
    _check_sources(flat)
    sort = sorted_conditions(flat)
    flat, conditions = _with_computed_keys(sort.flat, sort.joining)
    times = Times(flat.kinds, steady)
    read = [
        _Read(one, equality_of(one.sides, flat.kinds), bound_of(one.value, times))
        for one in conditions
    ]
    names = [stream.name for stream in flat.streams]
    keys = keys_of(names, [one.equality for one in read if one.equality], flat.kinds)
    chosen = _times(flat, [one.differences for one in read])
    bounds = [d for one in read if _of_times(one.differences, chosen) for d in one.differences]
    windows = windows_of(names, bounds, sort.optional)
    late = _lateness(flat, chosen)
    nodes: tuple[WindowNode, ...] = ()
    if windows is not None and late is not None:
        nodes = tuple(WindowNode(chosen[n].name, windows[n], late[n]) for n in names)
    else:
        _check_unwindowed(sort, keys, read, bounds)
    left = [one for one in read if not _implied(one, keys, windows if nodes else None, chosen)]
    required = not keys.columns or not sort.inner
    matched = [one for one in left if flat.plan is None or not sort.inner]
    filters = [one.condition for one in left if one not in matched]
    node = JoinNode(
        tuple(StreamNode(stream.name, stream.rows) for stream in flat.streams),
        tuple(tuple(key[name].name for name in names) for key in keys.columns),
        nodes,
        tuple(
            match
            for one in matched
            for match in _matches(one, required, windows if nodes else None, chosen)
        ),
        tuple(one.value.sql for one in (*filters, *sort.after)),
        sort.how,
        sort.optional,
        flat.plan,
        flat.place if flat.outer is None else flat.outer.place,
    )
    return Joined(node, tuple(_notes(flat, node, windows, steady)))


def _check_sources(flat: Flat) -> None:
    """Rejects a stream that is read twice."""
    seen: dict[str, FlatStream] = {}
    for stream in flat.streams:
        for read in stream.rows.relations:
            if read.relation.lower() in seen:
                raise refused(
                    read.place,
                    f"{read.relation} is joined with itself",
                    "read its source twice, as two streams of different names",
                )
        seen |= {read.relation.lower(): stream for read in stream.rows.relations}


def _with_computed_keys(flat: Flat, joining: Sequence[Condition]) -> tuple[Flat, list[Condition]]:
    """Keys that are expressions of one stream become columns of it."""
    more: dict[str, list[Named]] = {}
    conditions = []
    for one in joining:
        if one.sides is None or not _is_computed(one.sides):
            conditions.append(one)
            continue
        sides = []
        for side in one.sides:
            [stream] = side.streams
            sides.append(_as_column(side, stream, more.setdefault(stream, [])))
        conditions.append(replace(one, sides=(sides[0], sides[1])))
    streams = tuple(
        replace(
            stream,
            rows=replace(stream.rows, more=tuple(more.get(stream.name, ()))),
            kinds={**stream.kinds, **{one.name: COMPUTED for one in more.get(stream.name, ())}},
        )
        for stream in flat.streams
    )
    return replace(flat, streams=streams), conditions


def _as_column(value: Value, stream: str, known: list[Named]) -> Value:
    """An expression as a column that its stream has, or gets."""
    if value.column is not None:
        return value
    name = next((one.name for one in known if one.text == value.bare), f"_key{len(known)}")
    if name not in [one.name for one in known]:
        known.append(Named(name, value.bare))
    return Value((Column(stream, name),), value.place)


def _is_computed(sides: tuple[Value, Value]) -> bool:
    """Whether an equality is one of expressions over one stream each."""
    over = [side.streams for side in sides]
    single = all(len(streams) == 1 for streams in over) and over[0] != over[1]
    return single and any(side.column is None for side in sides)


def _times(flat: Flat, differences: Sequence[tuple[Difference, ...]]) -> dict[str, Column]:
    """The time column of each stream: that of its watermark, or the first that a bound names."""
    found: dict[str, Column] = {}
    for stream in flat.streams:
        if stream.watermark is not None:
            found[stream.name] = Column(stream.name, stream.watermark[0])
    for some in differences:
        for one in some:
            for column in (one.later, one.earlier):
                found.setdefault(column.stream, column)
    return found


def _of_times(differences: Sequence[Difference], chosen: dict[str, Column]) -> bool:
    """Whether a condition bounds the chosen times."""
    columns = {column for one in differences for column in (one.later, one.earlier)}
    return bool(columns) and all(chosen[column.stream] == column for column in columns)


def _lateness(flat: Flat, chosen: dict[str, Column]) -> dict[str, int] | None:
    """The lateness of every stream; None: the query does not say it for all of them."""
    found = {}
    for stream in flat.streams:
        late = flat.lateness.get(stream.name)
        if late is None and stream.watermark is not None:
            late = stream.watermark[1]
        if late is None or stream.name not in chosen:
            return None
        found[stream.name] = late
    return found


def _implied(
    one: _Read, keys: Keys, windows: dict[str, int] | None, chosen: dict[str, Column]
) -> bool:
    if one.equality is not None and keys.implies(one.equality):
        return True
    if windows is None or not _of_times(one.differences, chosen):
        return False
    return is_implied(one.differences, windows)


def _matches(
    one: _Read, required: bool, windows: dict[str, int] | None, chosen: dict[str, Column]
) -> Iterator[MatchNode]:
    """The conditions of the join; a bound is one for each difference that the windows do not imply."""
    value = one.condition.value
    texts = [value.sql]
    if one.differences:
        bounded = windows is not None and _of_times(one.differences, chosen)
        texts = [
            difference.sql
            for difference in one.differences
            if windows is None or not bounded or not is_implied([difference], windows)
        ]
    for text in texts:
        yield MatchNode(text, value.streams, value.sql, required, value.place)


def _check_unwindowed(
    sort: Sorted, keys: Keys, read: Sequence[_Read], differences: Sequence[Difference]
) -> None:
    """Rejects a join that would compare every row with all earlier rows, and lateness for nothing."""
    flat = sort.flat
    names = [stream.name for stream in flat.streams]
    open_pairs = unbounded(names, differences, sort.optional)
    places = [stream.place for stream in flat.streams]
    if open_pairs and (flat.lateness or sort.waits):
        a, b = open_pairs[0]
        what = "rows without partners never come out" if sort.waits else "LATENESS has no effect"
        raise refused(
            places,
            f"{what}: no condition bounds how much later than a row of {b} a row of {a} may be",
            f"add a bound such as {a}.ts < {b}.ts + INTERVAL 10 MINUTES"
            + (" to ON" if sort.waits else ", or leave LATENESS out"),
        )
    if sort.waits:
        raise refused(
            places,
            "an outer join needs to know how late rows may be",
            "write SELECT /*+ LATENESS('30 seconds') */ ..., or use withWatermark on every stream",
        )
    if keys.columns:
        return
    across = [one.condition for one in read if len(one.condition.value.streams) > 1]
    if not across:
        raise refused(
            places,
            f"nothing joins {' and '.join(names)}",
            f"add an equality such as {names[0]}.id = {names[1]}.id",
        )
    if open_pairs:
        a, b = open_pairs[0]
        raise refused(
            across[0].place,
            "no column of every stream is equal to one of the others, and no condition bounds how "
            f"much later than a row of {b} a row of {a} may be, so every row would be compared with "
            "all earlier ones",
            f"add an equality for every stream, or a bound such as "
            f"{a}.ts < {b}.ts + INTERVAL 10 MINUTES for every pair",
        )
    raise refused(
        across[0].place,
        "a join without an equality for every stream needs to know how late rows may be",
        "write SELECT /*+ LATENESS('30 seconds') */ ..., or use withWatermark on every stream",
    )


def _notes(
    flat: Flat, node: JoinNode, windows: dict[str, int] | None, steady: bool
) -> Iterator[Note]:
    if node.windows:
        return
    names = ", ".join(stream.name for stream in flat.streams)
    if windows is None:
        zone = "; in the session's time zone, which has summer time, a.ts - b.ts is no bound"
        yield Note(
            f"the join of {names} keeps all rows for ever: its conditions do not bound the time "
            "between every two streams, as a.ts < b.ts + INTERVAL 10 MINUTES does"
            + ("" if steady else zone)
        )
    else:
        yield Note(
            f"the join of {names} keeps all rows for ever, although its conditions bound the time "
            "between them: nothing says how late rows may be; write SELECT "
            "/*+ LATENESS('30 seconds') */ ..., or use withWatermark on every stream",
            warns=True,
        )
