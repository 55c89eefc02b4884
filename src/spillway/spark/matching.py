"""Joins with predicates: how they are spread over slots, and what works on them.

    on(...) and match(...)   the n-way join, with the predicates as conditions on what the keys found
    match(...) alone         "psp", the time-sliced join: every row is stored once, and visits all slots
                             "ctr", the same with several copies of every slice, of which one is visited
                             "atr", the n-way join on segments of time, to which rows are copied

All give the same rows. PSP section 7 says what speaks for which; "psp" is what a query has that does not
choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, TimestampNTZType

from spillway.duration import duration_us
from spillway.errors import PlanError, SettingsError
from spillway.operators.join import JoinOperator
from spillway.operators.predicates import Condition, Predicate, bound
from spillway.operators.sliced import SlicedJoin
from spillway.plan.join import StreamPlan, WindowPlan
from spillway.plan.sliced import MatchedPlan, SlicedPlan
from spillway.routing.segments import Segments
from spillway.routing.slices import slicing_for
from spillway.settings import Adapt
from spillway.spark.lanes import arrow_type, assign_lanes, quoted
from spillway.spark.result import Planned

#: What a condition may be.
Test = Callable[..., Any] | str | Condition
#: Conditions, with the streams that they were said to be over.
Conditions = tuple[tuple[Test, tuple[str, ...]], ...]

SEGMENT = "_segment"
#: A segment that is so many times as long as the longest window has few copies of each row.
SEGMENT_WINDOWS = 3


def predicates_of(frames: Mapping[str, DataFrame], conditions: Conditions) -> list[Predicate]:
    """The conditions, checked against the columns of the streams."""
    columns = {name: frame.columns for name, frame in frames.items()}
    return [bound(test, over, columns, number) for number, (test, over) in enumerate(conditions)]


def planned_matching(
    frames: Mapping[str, DataFrame],
    conditions: Conditions,
    windows: Mapping[str, WindowPlan] | None,
    adapt: Adapt,
) -> Planned:
    """The checked join without equal keys."""
    if windows is None:
        raise PlanError(
            f"the join of {', '.join(frames)} has conditions, but neither equal keys nor a window",
            detail="every row would have to be compared with all rows of all time",
            hint='add .within("10 minutes", time="..."), or .on(...) for equal keys',
        )
    for name, refused in (("skew_buffer", adapt.skew_buffer), ("spill_mode", _turns(adapt))):
        if refused is not None:
            raise SettingsError(
                f"{name}={refused!r} is not for joins without equal keys",
                detail="every row visits all slots, so no slot can let rows wait",
                hint=f"leave {name} out",
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
        return _aligned(frames, streams, predicates, windows, adapt)
    return _sliced(frames, streams, predicates, adapt)


def _turns(adapt: Adapt) -> str | None:
    return adapt.spill_mode if adapt.spill_mode == "rotation" else None


def _sliced(
    frames: Mapping[str, DataFrame],
    streams: tuple[StreamPlan, ...],
    predicates: Sequence[Predicate],
    adapt: Adapt,
) -> Planned:
    copies = adapt.copies if adapt.distribute == "ctr" else 1
    plan = SlicedPlan(streams, tuple(one.label for one in predicates), copies)
    lanes = assign_lanes(plan, frames, ())
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
) -> Planned:
    """The join on segments of time: the first stream is the one that is cut (ATR)."""
    names = list(frames)
    lengths = tuple(windows[name].window_us for name in names)
    length = SEGMENT_WINDOWS * max(lengths)
    if adapt.segment is not None:
        length = duration_us("segment", adapt.segment)
    segments = Segments(length, 0, lengths)
    copied = {
        name: frame.select(
            "*", F.explode(F.expr(segments.sql(at, _micros(frame, windows[name])))).alias(SEGMENT)
        )
        for at, (name, frame) in enumerate(frames.items())
    }
    plan = MatchedPlan(
        tuple(replace(stream, keys=(SEGMENT,)) for stream in streams),
        ("bigint",),
        tuple(one.label for one in predicates),
        (length, names[0]),
    )
    lanes = assign_lanes(plan, copied, [LongType()], hidden=(SEGMENT,))
    operator = JoinOperator(lanes.streams, adapt.block_rows, predicates)
    return Planned(plan, lanes, copied, operator)


def _micros(frame: DataFrame, window: WindowPlan) -> str:
    """The microseconds of a stream's time, in SQL."""
    if isinstance(frame.schema[window.time].dataType, TimestampNTZType):
        epoch = "timestamp_ntz'1970-01-01 00:00:00'"
        return f"timestampdiff(MICROSECOND, {epoch}, {quoted(window.time)})"
    return f"unix_micros({quoted(window.time)})"
