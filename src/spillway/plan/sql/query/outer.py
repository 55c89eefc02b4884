"""Where the conditions of a join belong: into a stream, into the join, or after it.

With inner joins, ON and WHERE mean the same. Outer joins tell them apart: ON says which rows are
partners, WHERE filters results. A stream whose rows come out without partners must not be filtered by
ON, and a stream that may be missing not by WHERE.

Joins of two streams have any kind. Of more, some may be LEFT, in one operator: their ON relates them to
streams that are never missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spillway.plan.sql.query.clauses import ANTI, FULL, LEFT, RIGHT, SEMI
from spillway.plan.sql.query.flat import COMBINING, INSIDE, Condition, Flat, FlatStream
from spillway.plan.sql.query.nodes import Named
from spillway.plan.sql.query.text import refused

#: The words of the API.
_HOW = {LEFT: "left", RIGHT: "right", FULL: "full", SEMI: "semi", ANTI: "anti"}


@dataclass(frozen=True)
class Sorted:
    """A flat query whose streams have their filters, and its other conditions."""

    flat: Flat
    #: What makes rows partners.
    joining: tuple[Condition, ...]
    #: What filters results.
    after: tuple[Condition, ...]
    how: str = "inner"
    #: Streams that may be missing, of more than two.
    optional: tuple[str, ...] = ()

    @property
    def inner(self) -> bool:
        """Whether only combinations are results."""
        return self.how == "inner" and not self.optional

    @property
    def waits(self) -> bool:
        """Whether some rows come out when no partner can come any more."""
        return self.how not in ("inner", "semi") or bool(self.optional)


def sorted_conditions(flat: Flat) -> Sorted:
    """The conditions of a flat query by where they belong."""
    how, optional = _kinds(flat)
    names = [stream.name for stream in flat.streams]
    kept = {"left": names[:1], "anti": names[:1], "right": names[1:], "full": names}
    alone = kept.get(how, [one for one in names if optional and one not in optional])
    lacking = {"left": names[1:], "right": names[:1], "full": names}.get(how, list(optional))
    filters: dict[str, list[Condition]] = {name: [] for name in names}
    joining: list[Condition] = []
    after: list[Condition] = []
    for one in flat.conditions:
        over = one.value.streams
        in_where = one.of is None and flat.outer is not None
        if not over or (in_where and (len(over) > 1 or over[0] in lacking)):
            after.append(one)
        elif len(over) > 1:
            _check_partner(flat, one, optional)
            joining.append(one)
        elif one.of not in (None, INSIDE) and over[0] in alone and _is_outer(flat, one.of):
            raise _about_one_stream(one)
        else:
            filters[over[0]].append(one)
    streams = tuple(_filtered(one, filters[one.name]) for one in flat.streams)
    return Sorted(replace(flat, streams=streams), tuple(joining), tuple(after), how, optional)


def _kinds(flat: Flat) -> tuple[str, tuple[str, ...]]:
    """The kind of a join of two, or the streams of more that may be missing."""
    outer = [one for one in flat.streams if one.kind not in COMBINING]
    if not outer:
        return "inner", ()
    if len(flat.streams) == 2:
        return _HOW[outer[0].kind], ()
    other = next((one for one in outer if one.kind != LEFT), None)
    if other is not None:
        raise refused(
            other.place,
            f"{other.kind.upper()} JOIN is for two streams, and this query joins {len(flat.streams)}",
            "use LEFT JOIN, with the streams that are never missing first",
        )
    return "inner", tuple(one.name for one in outer)


def _is_outer(flat: Flat, stream: str | None) -> bool:
    return any(one.name == stream and one.kind not in COMBINING for one in flat.streams)


def _about_one_stream(one: Condition) -> Exception:
    [stream] = one.value.streams
    return refused(
        one.place,
        f"this condition of ON is about {stream} alone, whose rows come out also without partners",
        f"to drop these rows of {stream}, write it in WHERE; if they shall stay without partners, write "
        "it inside a condition on both streams",
    )


def _check_partner(flat: Flat, one: Condition, optional: tuple[str, ...]) -> None:
    """Rejects conditions between streams of which another may be missing."""
    missing = [name for name in one.value.streams if name in optional and name != one.of]
    if missing:
        raise refused(
            one.place,
            f"{missing[0]} may be missing where this condition of ON needs it",
            f"relate the stream to {flat.streams[0].name} instead, or filter with WHERE",
        )


def _filtered(stream: FlatStream, conditions: list[Condition]) -> FlatStream:
    filters = tuple(Named(one.place.text, one.value.bare) for one in conditions)
    return replace(stream, rows=replace(stream.rows, filters=(*stream.rows.filters, *filters)))
