"""How streams of different schemas travel as the rows of one union.

All streams go through one exchange, so their rows need one schema. Columns of equal type share a
*lane*: a stream with (bigint, bigint, string) and one with (bigint, double) need the lanes bigint,
bigint, string, double. A stream leaves the lanes it does not use NULL. Rows of the union are

    _stream smallint, _h int, lane 0, lane 1, ...

where `_h` is the upper half of xxhash64 over the keys, cast to common types. Of rows that can match
nothing (a NULL key of a join, a NULL event time) only the fact travels, to be counted by one slot: all
lanes are NULL, `_stream` is a number below zero (operators/input.py), and `_h` spreads them over the
slots by their content, so that a repeated task counts the same rows. If an outer join keeps the rows of
a stream, their values travel too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from inspect import signature
from operator import and_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DatetimeType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    NumericType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from spillway.errors import PlanError
from spillway.operators.input import AGAIN, MARKER, StreamColumns, null_number
from spillway.plan.join import Plan
from spillway.slot.identity import COPY
from spillway.spark.runtime.exchange.anchors import group_expression

STREAM, HASH = "_stream", "_h"
#: From Spark 4.3 on, the Arrow type of a timestamp needs a zone.
_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
)


@dataclass(frozen=True)
class Lanes:
    """The schema of the union, and the lanes of each stream's columns."""

    types: tuple[DataType, ...]
    streams: tuple[StreamColumns, ...]
    #: For each stream, the value of each stored column as a Spark expression over its DataFrame.
    values: tuple[tuple[Column, ...], ...]
    #: The column, not stored, that says whether a row is a further copy.
    again: str | None = None

    @property
    def structs(self) -> StructType:
        """One struct per stream, with all columns that the user sees."""
        return StructType(
            [
                StructField(
                    stream.name,
                    StructType(
                        [
                            StructField(name, self.types[lane])
                            for name, lane in zip(stream.visible, stream.lanes, strict=False)
                        ]
                    ),
                )
                for stream in self.streams
            ]
        )

    def union(self, frames: Mapping[str, DataFrame], plan: Plan) -> DataFrame:
        """All streams as rows of one schema, with hashes."""
        tagged = [
            self._tagged(number, frames[stream.name], plan)
            for number, stream in enumerate(plan.streams)
        ]
        whole = tagged[0]
        for other in tagged[1:]:
            whole = whole.unionAll(other)
        return whole

    def _tagged(self, number: int, frame: DataFrame, plan: Plan) -> DataFrame:
        columns, stream = self.streams[number], plan.streams[number]
        values = self.values[number]
        keys = [values[at] for at in columns.keys]
        # The keys as they are compared: a cast may make a NULL of a value.
        needed = [] if stream.null_keys else keys
        if stream.window is not None:
            needed = [*needed, F.col(quoted(stream.window.time))]
        present = reduce(and_, (one.isNotNull() for one in needed), F.lit(True))
        lanes: list[Column] = [F.lit(None).cast(kind) for kind in self.types]
        for lane, value in zip(columns.lanes, values, strict=True):
            lanes[lane] = value if stream.alone else F.when(present, value)
        tag = F.lit(number)
        if self.again is not None:
            tag = F.when(F.col(quoted(self.again)), number + AGAIN).otherwise(number)
        return frame.select(
            F.when(present, tag).otherwise(null_number(number)).cast("smallint").alias(STREAM),
            F.when(present, _hash(keys)).otherwise(_hash(self._spreading(number))).alias(HASH),
            *(value.alias(f"lane{at}") for at, value in enumerate(lanes)),
        )

    def _spreading(self, number: int) -> list[Column]:
        """The columns of a stream that Spark can always hash."""
        lanes, values = self.streams[number].lanes, self.values[number]
        return [
            value
            for lane, value in zip(lanes, values, strict=True)
            if isinstance(self.types[lane], NumericType | StringType | DatetimeType)
        ]


def _hash(keys: Sequence[Column]) -> Column:
    """The upper half of a hash; rows without a key get their place in the slot that stores them."""
    return F.shiftright(F.xxhash64(*keys), 32).cast("int") if keys else F.lit(0)


def assign_lanes(
    plan: Plan,
    frames: Mapping[str, DataFrame],
    key_types: Sequence[DataType],
    hidden: Collection[str] = (),
    read: Mapping[str, Collection[str]] | None = None,
    again: str | None = None,
) -> Lanes:
    """Gives every stored column of every stream a lane of its type.

    The columns in `hidden` come last and are not part of the results. `read` names the columns that
    results need, for streams that they do not need whole. `again` is a last column that is not stored.
    """
    if len(plan.streams) > AGAIN:
        raise PlanError(
            f"the query has {len(plan.streams)} streams; Spillway joins at most {AGAIN}",
            hint="union streams of the same kind first",
        )
    types: list[DataType] = []
    keys_of_lanes: list[str] = []
    streams: list[StreamColumns] = []
    values: list[tuple[Column, ...]] = []
    for stream in plan.streams:
        frame = frames[stream.name]
        if again is not None:
            frame = frame.drop(again)
        stored, key_at = _stored_columns(frame, stream.keys, key_types)
        taken: set[int] = set()
        lanes = []
        for _, kind in stored:
            wanted = nullable(kind).json()
            lane = next(
                (a for a, k in enumerate(keys_of_lanes) if k == wanted and a not in taken), None
            )
            if lane is None:
                lane = len(types)
                types.append(nullable(kind))
                keys_of_lanes.append(wanted)
            taken.add(lane)
            lanes.append(lane)
        names = tuple(name for name in frame.columns if name not in hidden)
        needed = (read or {}).get(stream.name)
        streams.append(
            StreamColumns(
                stream.name,
                names,
                tuple(lanes),
                tuple(key_at),
                None if stream.window is None else names.index(stream.window.time),
                None if stream.window is None else stream.window.window_us,
                None if needed is None else tuple(map(names.index, needed)),
            )
        )
        values.append(tuple(value for value, _ in stored))
    return Lanes(tuple(types), tuple(streams), tuple(values), again)


def _stored_columns(
    frame: DataFrame, keys: Sequence[str], key_types: Sequence[DataType]
) -> tuple[list[tuple[Column, DataType]], list[int]]:
    """The visible columns, then a normalised copy of each key that needs one."""
    stored = [(F.col(quoted(f.name)), f.dataType) for f in frame.schema.fields]
    key_at = []
    for key, common in zip(keys, key_types, strict=True):
        at = frame.columns.index(key)
        if nullable(frame.schema[key].dataType) == common and not _is_float(common):
            key_at.append(at)
        else:
            key_at.append(len(stored))
            stored.append((_normalised(F.col(quoted(key)), common), common))
    return stored, key_at


def _normalised(key: Column, common: DataType) -> Column:
    value = key.cast(common)
    if not _is_float(common):
        return value
    # In SQL, NaN equals NaN and 0.0 equals -0.0; after this, equal values have equal bits.
    zero = F.lit(0.0).cast(common)
    return (
        F.when(F.isnan(value), F.lit(float("nan")).cast(common))
        .when(value == zero, zero)
        .otherwise(value)
    )


def check_arrow(stream: str, schema: StructType) -> None:
    """Rejects a column that Spark cannot pass to Python through Arrow."""
    for one in schema.fields:
        try:
            to_arrow_type(one.dataType, **_ZONE)
        except Exception as problem:
            raise PlanError(
                f"column {one.name} of stream {stream} has type {one.dataType.simpleString()}, "
                "which does not pass through Arrow",
                detail=next(iter(str(problem).splitlines()), None),
                hint=f"cast or drop {one.name} before the join",
            ) from problem


def lanes_schema(lanes: Lanes) -> StructType:
    """The schema of the exchanged rows."""
    return StructType(
        [
            StructField(STREAM, ShortType()),
            StructField(HASH, IntegerType()),
            *(StructField(f"lane{at}", kind) for at, kind in enumerate(lanes.types)),
        ]
    )


def with_markers(
    rows: DataFrame, slot: Column, lanes: Lanes, slots: int
) -> tuple[DataFrame, Column]:
    """The rows and their slots, and for every slot one row that tells its task which slot it is.

    A task cannot know it otherwise: a sink that coalesces or unites partitions renumbers the tasks. Such
    a row has no stream; its hash is the number of the slot.
    """
    numbers = rows.sparkSession.range(0, slots, 1, 1)
    marks = numbers.select(
        F.lit(MARKER).cast("smallint").alias(STREAM),
        F.col("id").cast("int").alias(HASH),
        *(F.lit(None).cast(kind).alias(f"lane{at}") for at, kind in enumerate(lanes.types)),
    )
    return rows.unionAll(marks), F.when(F.col(STREAM) == MARKER, F.col(HASH)).otherwise(slot)


def with_copies(
    rows: DataFrame, slot: Column, copies: Mapping[int, int], groups: int
) -> tuple[DataFrame, Column]:
    """The rows and their slots; rows of some groups come twice, the copy for the given slot.

    The number of its stream marks a copy: the flag of PLANS 3.2.
    """
    to = ",".join(str(copies.get(group, -1)) for group in range(groups))
    there = F.expr(f"get(array({to}), cast({group_expression(groups)} as int))")
    once = (there < 0) | (F.col(STREAM) < 0)
    shifts = F.when(once, F.array(F.lit(0))).otherwise(F.array(F.lit(0), F.lit(COPY)))
    names = rows.columns
    twice = rows.select("*", F.explode(shifts).alias("_shift"))
    stream = (F.col(STREAM) + F.col("_shift")).cast("smallint").alias(STREAM)
    marked = twice.select(*(stream if name == STREAM else F.col(name) for name in names))
    return marked, F.when(F.col(STREAM) < COPY, slot).otherwise(there)


def result_schema(frames: Mapping[str, DataFrame]) -> StructType:
    """One struct per stream, with the stream's own columns."""
    return StructType([StructField(n, nullable(frame.schema)) for n, frame in frames.items()])


def common_type(spark: SparkSession, types: Sequence[DataType]) -> DataType:
    """Spark's common type, as `coalesce` finds it."""
    casts = ", ".join(f"cast(null as {kind.simpleString()})" for kind in types)
    return nullable(spark.sql(f"select coalesce({casts}) as k").schema["k"].dataType)


def stored_as(kind: pa.DataType) -> pa.DataType:
    """The type with UTC as the zone of all zoned timestamps, and with everything nullable.

    Spark labels timestamps with the session's zone, which may differ after a restart, while the instants
    do not. Its nullability depends on the other streams. Merged runs, and rows that travel between
    rounds, must have one schema.
    """
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(stored_as(f.type)).with_nullable(True) for f in kind])
    if pa.types.is_list(kind):
        inner = kind.value_field.with_type(stored_as(kind.value_type))
        return pa.list_(inner.with_nullable(True))
    if pa.types.is_map(kind):
        return pa.map_(stored_as(kind.key_type), stored_as(kind.item_type))
    return kind


def arrow_type(kind: DataType) -> pa.DataType:
    """The type of a stored column."""
    return stored_as(to_arrow_type(kind, **_ZONE))


def _is_float(kind: DataType) -> bool:
    return isinstance(kind, FloatType | DoubleType)


def nullable(kind: DataType) -> DataType:
    """The type with everything nullable."""
    if isinstance(kind, StructType):
        return StructType(
            [StructField(f.name, nullable(f.dataType), True, f.metadata) for f in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType), True)
    return kind


def micros(time: str, kind: DataType) -> str:
    """SQL for the stored form of a time: microseconds since 1970.

    For a time without a zone, the SQL adds up its parts: `timestampdiff` uses the session's zone, in
    which an hour of the year may be missing.
    """
    if not isinstance(kind, TimestampNTZType):
        return f"unix_micros({time})"
    minutes = f"(unix_date(cast({time} AS date)) * 24L + hour({time})) * 60L + minute({time})"
    return f"(({minutes}) * 60000000L + cast(extract(SECOND FROM {time}) * 1000000 AS bigint))"


def quoted(name: str) -> str:
    """A column name in backticks, so that Spark takes any characters."""
    return "`" + name.replace("`", "``") + "`"
