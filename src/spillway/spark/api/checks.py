"""Checks of what the user passes to a query: streams, columns, keys and times. Errors name them."""

from __future__ import annotations

import difflib
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

from spillway.duration import Duration, duration_us
from spillway.errors import PlanError
from spillway.plan.join import WindowPlan
from spillway.plan.windows import EventWindows
from spillway.spark.runtime.exchange.lanes import check_arrow

#: The collation that compares bytes.
_BINARY = "UTF8_BINARY"
#: Families of key types. Keys can be equal only within one family.
_FAMILIES: tuple[tuple[str, tuple[type[DataType], ...]], ...] = (
    ("number", (NumericType,)),
    ("text", (StringType, VarcharType, CharType)),
    ("binary", (BinaryType,)),
    ("boolean", (BooleanType,)),
    ("date", (DateType,)),
    ("timestamp", (TimestampType,)),
    ("timestamp without zone", (TimestampNTZType,)),
    ("interval", (DayTimeIntervalType,)),
)


def check_stream(name: str, frame: Any) -> None:
    """Rejects anything but a streaming DataFrame with distinct column names."""
    if not isinstance(frame, DataFrame):
        raise PlanError(
            f"stream {name} is a {type(frame).__name__}, not a streaming DataFrame",
            hint="pass what spark.readStream...load() returns",
        )
    if not frame.isStreaming:
        raise PlanError(
            f"stream {name} is a batch DataFrame, not a stream",
            hint=f"read it with spark.readStream instead of spark.read to make {name} a stream",
        )
    folded = [column.lower() for column in frame.columns]
    twice = next((column for column in frame.columns if folded.count(column.lower()) > 1), None)
    if twice is not None:
        raise PlanError(
            f"stream {name} has more than one column called {twice}",
            hint="give each column its own name before the query",
        )
    check_arrow(name, frame.schema)


def check_key(stream: str, column: str, kind: DataType, verb: str) -> None:
    """Rejects a key type whose values are not equal exactly when their bits are."""
    if isinstance(kind, StructType | ArrayType | MapType) or family(kind) is None:
        raise PlanError(
            f"{stream}.{column} is {kind.simpleString()}, which cannot be a {verb} key",
            hint=f"{verb} on one of its fields, or on text or a number made from it",
        )
    if (collation := _collation(kind)) is not None:
        raise PlanError(
            f"{stream}.{column} has collation {collation}, which cannot be a {verb} key",
            hint=f"normalise it before the {verb}, for example lower({column}) COLLATE UTF8_BINARY",
        )


def check_order(what: str, kind: DataType) -> None:
    """Rejects values that have no order, or another order than their bytes."""
    check_sortable(what, kind)
    if (collation := _collation(kind)) is not None:
        raise PlanError(
            f"{what} cannot be ordered by collation {collation}: text is ordered by its bytes",
            hint="order by another form of the text: lower(...) COLLATE UTF8_BINARY for letters of any "
            "case, or ... COLLATE UTF8_BINARY for its bytes",
        )


def check_sortable(what: str, kind: DataType) -> None:
    """Rejects values that have no order at all."""
    if isinstance(kind, StructType | ArrayType | MapType | NullType | VariantType):
        raise PlanError(
            f"{what} cannot be ordered: the type is {kind.simpleString()}",
            hint="use one of its parts, or text or a number made from it",
        )


def _collation(kind: DataType) -> str | None:
    """The collation of text that is not compared by its bytes."""
    found = getattr(kind, "collation", _BINARY) if isinstance(kind, StringType) else _BINARY
    return None if found == _BINARY else str(found)


def family(kind: DataType) -> str | None:
    """The family of a key type; None if the type cannot be a key."""
    return next((name for name, kinds in _FAMILIES if isinstance(kind, kinds)), None)


def find_column(frame: DataFrame, stream: str, name: str, role: str, hint: str) -> str:
    """The column that the user means; case does not matter."""
    columns = frame.columns
    if name in columns:
        return name
    folded = [column for column in columns if column.lower() == str(name).lower()]
    if len(folded) == 1:
        return folded[0]
    near = difflib.get_close_matches(str(name), columns, n=1)
    raise PlanError(
        f"stream {stream} has no column {name!r} to use as {role}",
        detail=f"its columns are {', '.join(columns)}",
        hint=f"did you mean {near[0]!r}?" if near else hint,
    )


def find_time(frame: DataFrame, stream: str, name: str, verb: str) -> str:
    """The event-time column that the user means."""
    column = find_column(frame, stream, name, "event time", f"name a column of {stream}")
    kind = frame.schema[column].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise PlanError(
            f"the window of stream {stream} is on {column}, which is {kind.simpleString()}, "
            "not a timestamp",
            hint=f"use a timestamp column, or cast it before the {verb}: "
            f"to_timestamp({column}) or timestamp_micros({column})",
        )
    return column


def window_of(
    stream: str, time: str, window: Duration, lateness: Duration, *, tumbling: bool = False
) -> WindowPlan:
    """A window with checked lengths."""
    length = duration_us("window", window)
    if length <= 0:
        raise PlanError(
            f"the window of stream {stream} must be positive, not {window!r}",
            hint='write for example "10 minutes"',
        )
    lateness_us = duration_us("lateness", lateness)
    if lateness_us < 0:
        raise PlanError(
            f"the lateness of stream {stream} cannot be negative: {lateness!r}",
            hint='write for example "30 seconds", or leave lateness out',
        )
    return WindowPlan(time, length, lateness_us, tumbling)


def windows_of(
    stream: str, length: Duration, slide: Duration | None, start: Duration
) -> EventWindows:
    """Tumbling or hopping windows with checked lengths."""
    length_us = _positive(stream, "window", length)
    slide_us = length_us if slide is None else _positive(stream, "slide", slide)
    if slide_us > length_us:
        raise PlanError(
            f"the slide of stream {stream} cannot be longer than the window: {slide!r} > {length!r}",
            hint="rows between two windows would be in none; filter them out before instead",
        )
    start_us = duration_us("start", start)
    if abs(start_us) >= slide_us:
        raise PlanError(
            f"the start of the windows of stream {stream} must be less than their slide: {start!r}",
            hint=f"windows start every {slide_us / 1e6:g} s, so a start within that is enough",
        )
    return EventWindows(length_us, slide_us, start_us)


def session_of(stream: str, gap: Duration) -> EventWindows:
    """Sessions with a checked gap."""
    return EventWindows(_positive(stream, "gap", gap), None)


def _positive(stream: str, what: str, length: Duration) -> int:
    length_us = duration_us(what, length)
    if length_us <= 0:
        raise PlanError(
            f"the {what} of stream {stream} must be positive, not {length!r}",
            hint='write for example "10 minutes"',
        )
    return length_us
