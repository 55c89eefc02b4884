"""Joins with predicates: how they use the slots, and which operator runs them.

    on(...) and match(...)   the n-way join; the predicates filter rows with equal keys
    match(...) alone         "psp", the time-sliced join: one slot stores each row; it visits all slots
                             "ctr", the same with several copies of each slice; a row visits one copy
                             "atr", the n-way join on segments of time, to which rows are copied

All give the same rows. Section 7 of PSP compares them. "psp" is the default. "auto" uses it until it has
seen the first rows (spark/api/start/distribution.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from spillway.duration import duration_us
from spillway.errors import PlanError, SettingsError
from spillway.operators.equi.join import JoinOperator
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.conditions import Condition
from spillway.operators.predicates.predicate import Predicate
from spillway.operators.theta.sliced import SlicedJoin
from spillway.plan.join import StreamPlan, WindowPlan
from spillway.plan.sliced import MatchedPlan, SlicedPlan
from spillway.policies.ring.slicing import SEGMENT_WINDOWS
from spillway.routing.intervals import MOST_COPIES, Intervals
from spillway.routing.slices import slicing_for
from spillway.settings import Adapt
from spillway.spark.api.result import Planned
from spillway.spark.runtime.exchange.lanes import arrow_type, assign_lanes, micros, quoted

#: What `match` accepts as a condition.
Test = Callable[..., Any] | str | Condition
#: Conditions, each with the streams that the user named for it.
Conditions = tuple[tuple[Test, tuple[str, ...]], ...]

#: Extra columns of rows in a join by segments: the segment, and whether an earlier one has the row too.
SEGMENT, REPEATED = "_segment", "_repeated"
#: Why slots cannot buffer rows, for each distribution.
_NO_WAITING = {
    "psp": "every row visits all slots, so a slot cannot buffer rows",
    "ctr": "every row visits enough slots to see all slices, so a slot cannot buffer rows",
    "atr": "every row is copied to several segments, and a slot cannot buffer copies",
    "auto": "every row visits, or is copied to, several slots, so a slot cannot buffer rows",
}


def predicates_of(frames: Mapping[str, DataFrame], conditions: Conditions) -> list[Predicate]:
    """The conditions, checked against the columns of the streams."""
    columns = {
        name: {one.name: one.dataType.simpleString() for one in frame.schema.fields}
        for name, frame in frames.items()
    }
    session = next(iter(frames.values())).sparkSession
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    found = [
        bound(test, over, columns, number, zone) for number, (test, over) in enumerate(conditions)
    ]
    texts = [text for one in found if (text := one.sql) is not None]
    if texts and (session.conf.get("spark.sql.ansi.enabled") or "true").lower() == "false":
        raise PlanError(
            f"the condition {texts[0]!r} needs ANSI SQL, but spark.sql.ansi.enabled is false",
            detail="without ANSI mode, numbers overflow silently and division by zero gives NULL",
            hint="set spark.sql.ansi.enabled to true, or pass a function over the columns instead of "
            "text",
        )
    return found


def planned_matching(
    frames: Mapping[str, DataFrame],
    conditions: Conditions,
    windows: Mapping[str, WindowPlan] | None,
    adapt: Adapt,
    read: Mapping[str, Sequence[str]],
) -> Planned:
    """The checked join without equal keys; `read` names the columns that results need (lanes.py)."""
    if windows is None:
        raise PlanError(
            f"the join of {', '.join(frames)} has conditions, but neither equal keys nor a window",
            detail="the query would have to compare every row with all earlier rows",
            hint='add .within("10 minutes", time="..."), or .on(...) for equal keys',
        )
    for name, refused in (("skew_buffer", adapt.skew_buffer), ("spill_mode", _turns(adapt))):
        if refused is not None:
            raise SettingsError(
                f"{name}={refused!r} is not possible for a join without equal keys",
                detail=_NO_WAITING[adapt.distribute],
                hint=f"leave {name} out",
            )
    if adapt.master is not None and adapt.master not in frames:
        raise SettingsError(
            f"master={adapt.master!r} is not one of the joined streams",
            hint=f"the streams are {', '.join(frames)}",
        )
    streams = tuple(
        StreamPlan(
            name,
            tuple((f.name, f.dataType.simpleString()) for f in frame.schema.fields),
            (),
            windows[name],
        )
        for name, frame in frames.items()
    )
    predicates = predicates_of(frames, conditions)
    if adapt.distribute == "atr":
        found = _aligned(frames, streams, predicates, windows, adapt, read)
    else:
        found = _sliced(frames, streams, predicates, adapt, read)
    return replace(found, warnings=tuple(told_of_equalities(predicates)))


def told_of_equalities(predicates: Sequence[Predicate]) -> Iterator[str]:
    """Warnings about equalities that the join tests on all pairs."""
    for one in predicates:
        for left, right in one.equalities:
            yield (
                f"the condition {one.name!r} compares {left.stream}.{left.name} with "
                f"{right.stream}.{right.name} in every pair of rows within the window; "
                f'.on({left.stream}="{left.name}", {right.stream}="{right.name}", ...) is faster: '
                "it finds equal keys by hash"
            )


def _turns(adapt: Adapt) -> str | None:
    return adapt.spill_mode if adapt.spill_mode == "rotation" else None


def _sliced(
    frames: Mapping[str, DataFrame],
    streams: tuple[StreamPlan, ...],
    predicates: Sequence[Predicate],
    adapt: Adapt,
    read: Mapping[str, Sequence[str]],
) -> Planned:
    copies = adapt.copies if adapt.distribute == "ctr" else 1
    plan = SlicedPlan(streams, tuple(one.label for one in predicates), copies)
    lanes = assign_lanes(plan, frames, (), read=read)
    windows = [stream.window for stream in streams if stream.window is not None]
    slicing = slicing_for(
        [one.window_us for one in windows],
        [one.lateness_us for one in windows],
        adapt.groups,
        copies,
    )
    types = [[arrow_type(f.dataType) for f in frame.schema.fields] for frame in frames.values()]
    how = (slicing, adapt.block_rows, adapt.interleave)
    operator = SlicedJoin(lanes.streams, types, predicates, *how)
    return Planned(plan, lanes, frames, operator)


def _aligned(
    frames: Mapping[str, DataFrame],
    streams: tuple[StreamPlan, ...],
    predicates: Sequence[Predicate],
    windows: Mapping[str, WindowPlan],
    adapt: Adapt,
    read: Mapping[str, Sequence[str]],
) -> Planned:
    """The join on segments of time (ATR): one stream defines them, rows of the others are copied."""
    names = list(frames)
    master = names[0] if adapt.master is None else adapt.master
    lengths = tuple(windows[name].window_us for name in names)
    length = SEGMENT_WINDOWS * max(lengths)
    if adapt.segment is not None:
        length = duration_us("segment", adapt.segment)
    intervals = Intervals(length, names.index(master), lengths)
    _check_copies(intervals, names)
    segment, repeated = (_unused(name, frames) for name in (SEGMENT, REPEATED))
    copied = {
        name: _in_segments(
            frame,
            intervals.sql(at, _micros(frame, windows[name].time)),
            segment,
            repeated,
        )
        for at, (name, frame) in enumerate(frames.items())
    }
    plan = MatchedPlan(
        tuple(replace(stream, keys=(segment,)) for stream in streams),
        ("bigint",),
        tuple(one.label for one in predicates),
        (length, master),
    )
    lanes = assign_lanes(plan, copied, [LongType()], hidden=(segment,), read=read, again=repeated)
    operator = JoinOperator(lanes.streams, adapt.block_rows, predicates)
    return Planned(plan, lanes, copied, operator)


def _check_copies(intervals: Intervals, names: Sequence[str]) -> None:
    """Rejects segments so short that each row has too many copies."""
    stream, master = names[intervals.most_copied()], names[intervals.master]
    copies = intervals.copies_of_each(intervals.most_copied())
    if copies > MOST_COPIES:
        least_s = -(-intervals.shortest_us() // 1_000_000)
        raise SettingsError(
            f"segments of {intervals.length_us / 1e6:g} s would copy a row of {stream} {copies} times",
            detail=f"the join copies a row to all segments within the windows of {stream} and {master}; "
            f"the limit is {MOST_COPIES} copies",
            hint=f'use segment="{least_s} seconds" or more, or leave segment out: the default is '
            f"{SEGMENT_WINDOWS} times the longest window",
        )


def _in_segments(frame: DataFrame, segments: str, segment: str, repeated: str) -> DataFrame:
    """Each row once for each of its segments, with a flag on all copies but the first."""
    # A row without a time has no segment; it remains, to be counted.
    each = F.posexplode_outer(F.expr(segments)).alias(repeated, segment)
    own = (F.col(quoted(name)) for name in (*frame.columns, segment))
    return frame.select("*", each).select(*own, (F.col(repeated) > 0).alias(repeated))


def _unused(name: str, frames: Mapping[str, DataFrame]) -> str:
    """A column name that no stream has; case does not matter."""
    taken = {column.lower() for frame in frames.values() for column in frame.columns}
    while name in taken:
        name = f"_{name}"
    return name


def _micros(frame: DataFrame, time: str) -> str:
    return micros(quoted(time), frame.schema[time].dataType)
