"""The kind of a join as the user says it: `how="left"` for two streams, `.optional(...)` for more.

docs/guide/outer-joins.md has the definition. All that does not fit is refused before the start.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spillway.errors import PlanError
from spillway.operators.operator import Deciding
from spillway.plan.kind import ALIASES, INNER, KINDS, LEFT, JoinKind

if TYPE_CHECKING:
    from spillway.operators.predicates.predicate import Predicate
    from spillway.spark.api.result import Planned

_EXAMPLE = 'for example sw.join(orders=orders, payments=payments, how="left")'


def kind_of(how: str, streams: Sequence[str]) -> JoinKind:
    """The kind that `how` names, in the words of Spillway, Spark or SQL."""
    name = how.strip().lower().replace(" ", "_")
    name = ALIASES.get(name, name)
    if name not in KINDS:
        near = difflib.get_close_matches(name, [*KINDS, *ALIASES], n=1)
        raise PlanError(
            f"how={how!r} is not a kind of join",
            detail=f"the kinds are {', '.join(KINDS)}",
            hint=f"did you mean {ALIASES.get(near[0], near[0])!r}?" if near else _EXAMPLE,
        )
    if name != INNER and len(streams) > 2:
        raise PlanError(
            f"how={how!r} is for two streams, and this join has {len(streams)}",
            hint="for a left outer join of several streams, name those that may be missing: "
            + f".optional({', '.join(map(repr, streams[1:]))})",
        )
    return JoinKind(name, (streams[1],) if name == LEFT else ())


def optional_kind(kind: JoinKind, names: Sequence[str], streams: Sequence[str]) -> JoinKind:
    """The left outer join in which some streams may be missing."""
    if kind.how != INNER:
        raise PlanError(
            f"optional() is for a join without how, and this one has how={kind.how!r}",
            hint='how="left" makes the second of two streams optional; use one of both',
        )
    if not names:
        raise PlanError(
            "optional() takes the streams that may be missing in a result",
            hint=f"for example .optional({streams[-1]!r})",
        )
    for name in names:
        if name not in streams:
            raise PlanError(
                f"optional() names {name!r}, which is not one of the joined streams",
                hint=f"the streams are {', '.join(streams)}",
            )
    if streams[0] in names:
        raise PlanError(
            f"{streams[0]} is the first stream of the join, and cannot be optional",
            detail="a left outer join gives every row of its first stream",
            hint=f"name another stream first in sw.join(...); of two streams, "
            f'how="right" keeps the rows of {streams[1]}',
        )
    return JoinKind(LEFT, tuple(name for name in streams if name in names))


def check_kind(
    kind: JoinKind,
    streams: Sequence[str],
    windows: Mapping[str, Any] | None,
    predicates: Sequence[Predicate],
    *,
    planned: bool,
) -> None:
    """Rejects what a join of a kind cannot do; `planned` says that it has plan()."""
    if kind.how == INNER:
        return
    if planned:
        raise PlanError(
            f"a {kind.how} join cannot have plan()",
            detail="its meaning follows the order of the streams in sw.join(...)",
            hint="leave plan() out",
        )
    if windows is None and kind.waits:
        raise PlanError(
            f"the {kind.how} join of {', '.join(streams)} has no window",
            detail="without one a partner may always come, so no row is ever known to have none",
            hint='add .within("10 minutes", time="...")',
        )
    optional = kind.optional or streams[1:]
    for one in predicates if len(streams) > 2 else ():
        # The condition belongs to the join of the last of its streams.
        *before, last = sorted(one.streams, key=list(streams).index)
        missing = [name for name in before if name in optional]
        if missing:
            raise PlanError(
                f"the condition {one.name!r} is about {missing[0]}, which may be missing when "
                f"{last} joins",
                detail=f"{missing[0]} is optional and comes before {last}",
                hint=f"take {missing[0]} out of optional(), or filter the results with .where(...)",
            )


def check_later_window(before: Planned, after: Planned) -> None:
    """Rejects a window over results that come so much later than others that they would be late."""
    operator, window = before.operator, after.plan.streams[0].window
    if not isinstance(operator, Deciding) or window is None:
        return
    waits = max(operator.streams[at].window_us or 0 for at in operator.sources)
    if window.lateness_us < waits:
        raise PlanError(
            f"the window of the {after.plan.OPERATOR} allows {window.lateness_us / 1e6:g} s of "
            f"lateness, but rows without partners come {waits / 1e6:g} s later than others",
            detail="they would be late, and dropped",
            hint=f'set lateness="{waits / 1e6:g} seconds" or more in its within()',
        )


def refuse_unkeyed(kind: JoinKind, streams: Sequence[str]) -> None:
    """Rejects a kind other than inner for a join without equal keys."""
    if kind.how != INNER:
        raise PlanError(
            f"the {kind.how} join of {', '.join(streams)} has no equal keys",
            detail="without them rows of one slot have partners in all slots, and none sees all",
            hint="add .on(...) and keep .match(...) for the other conditions",
        )
