"""The builder of an n-way join: immutable, each verb gives a new one, each checks what it is given."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from spillway.duration import Duration, duration_us
from spillway.errors import PlanError
from spillway.plan.join import JoinPlan, StreamPlan, WindowPlan
from spillway.spark.lanes import Lanes, assign_lanes, check_arrow, common_type, result_schema
from spillway.spark.writer import StreamWriter

#: Types of keys that can be equal to one another, by family; keys of two families cannot.
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


def join(**streams: DataFrame) -> Join:
    """Begins a join of two or more streaming DataFrames, each under a name.

    Example:
        >>> sw.join(orders=orders, payments=payments).on("order_id")  # doctest: +SKIP
    """
    if len(streams) < 2:
        raise PlanError(
            f"a join needs at least two streams, not {len(streams)}",
            hint="name them: sw.join(orders=orders, payments=payments)",
        )
    for name, frame in streams.items():
        _check_stream(name, frame)
    names = list(streams)
    for at, name in enumerate(names):
        for earlier in names[:at]:
            if _same(streams[name], streams[earlier]):
                raise PlanError(
                    f"streams {earlier} and {name} are the same DataFrame",
                    hint="to join a stream with itself, read its source twice: "
                    f"{name} = spark.readStream....load()",
                )
    return Join(dict(streams))


@dataclass(frozen=True)
class Join:
    """An n-way join in the making; `writeStream` starts it."""

    frames: Mapping[str, DataFrame]
    keys: Mapping[str, tuple[str, ...]] | None = None
    windows: Mapping[str, WindowPlan] | None = None
    #: where and select, in the order they were written.
    steps: tuple[tuple[str, tuple[Any, ...]], ...] = field(default=())

    @property
    def spark(self) -> SparkSession:
        """The session of the streams."""
        return next(iter(self.frames.values())).sparkSession

    def on(self, *columns: str, **per_stream: str | Sequence[str]) -> Join:
        """The equal keys: names all streams have, or the names in each stream.

        Example:
            >>> join.on("currency", "offer")  # doctest: +SKIP
            >>> join.on(bank1="cur", bank2="currency")  # doctest: +SKIP
        """
        if bool(columns) == bool(per_stream):
            raise PlanError(
                "on() takes the names of key columns, or one name per stream",
                hint='for example .on("id") or .on(orders="id", payments="order_id")',
            )
        chosen = dict.fromkeys(self.frames, columns)
        if per_stream:
            self._all_streams("on()", per_stream)
            chosen = {name: _as_tuple(per_stream[name]) for name in self.frames}
        resolved = {
            name: tuple(self._column(name, key, "key") for key in keys)
            for name, keys in chosen.items()
        }
        counts = {name: len(keys) for name, keys in resolved.items()}
        if len(set(counts.values())) != 1:
            raise PlanError(
                f"every stream needs the same number of keys, not {counts}",
                hint="give the keys in the same order for every stream",
            )
        self._key_types(resolved)
        return replace(self, keys=resolved)

    def within(
        self,
        window: Duration | Mapping[str, Duration],
        *,
        time: str | Mapping[str, str],
        lateness: Duration | Mapping[str, Duration] = "0 seconds",
    ) -> Join:
        """The window: a combination is a result when T - t < window for each of its rows.

        T is the largest time of the combination. `window`, `time` and `lateness` are one value for
        all streams, or one for each. Rows later than `lateness` behind the slowest stream are dropped
        and counted.
        """
        values = {
            what: self._per_stream(what, value)
            for what, value in (("window", window), ("time", time), ("lateness", lateness))
        }
        windows = {}
        for name in self.frames:
            column = self._time_column(name, str(values["time"][name]))
            length = duration_us("window", values["window"][name])
            if length <= 0:
                raise PlanError(
                    f"the window of stream {name} is {values['window'][name]!r}",
                    hint="a window must be longer than nothing",
                )
            lateness_us = duration_us("lateness", values["lateness"][name])
            if lateness_us < 0:
                raise PlanError(
                    f"the lateness of stream {name} is {values['lateness'][name]!r}",
                    hint="a lateness cannot be less than nothing",
                )
            windows[name] = WindowPlan(column, length, lateness_us)
        self._comparable_times(windows)
        return replace(self, windows=windows)

    def where(self, condition: str | Column) -> Join:
        """Keeps the joined rows for which a condition holds: Spark SQL text or a Column."""
        return self._with_step("where", (condition,))

    def filter(self, condition: str | Column) -> Join:
        """The same as `where`."""
        return self.where(condition)

    def select(self, *columns: str | Column) -> Join:
        """The columns of the result: Spark SQL text ("bank1.price * 2 AS double") or Columns."""
        return self._with_step("select", columns)

    @property
    def joined_schema(self) -> StructType:
        """The schema before where and select: one struct per stream."""
        return result_schema(self.frames)

    @property
    def schema(self) -> StructType:
        """The schema of the results."""
        return self.shaped(self.spark.createDataFrame([], self.joined_schema)).schema

    def shaped(self, rows: DataFrame) -> DataFrame:
        """The where and select of the query, applied to joined rows."""
        for verb, arguments in self.steps:
            if verb == "where":
                rows = rows.where(arguments[0])
            else:
                rows = rows.select(*(_expression(column) for column in arguments))
        return rows

    @property
    def writeStream(self) -> StreamWriter:
        """Where the results go; ends in `start()`."""
        return StreamWriter(self)

    def planned(self) -> tuple[JoinPlan, Lanes]:
        """The checked plan, and the lanes its rows travel in."""
        if self.keys is None:
            shared = set.intersection(*({*frame.columns} for frame in self.frames.values()))
            raise PlanError(
                f"the join of {', '.join(self.frames)} has no keys",
                detail=f"columns all of them have: {', '.join(sorted(shared)) or 'none'}",
                hint='add .on("column"), or .on(stream="column", ...) where the names differ',
            )
        types = self._key_types(self.keys)
        streams = tuple(
            StreamPlan(
                name,
                tuple((f.name, f.dataType.simpleString()) for f in frame.schema.fields),
                self.keys[name],
                None if self.windows is None else self.windows[name],
            )
            for name, frame in self.frames.items()
        )
        plan = JoinPlan(streams, tuple(kind.simpleString() for kind in types))
        return plan, assign_lanes(plan, self.frames, types)

    def _with_step(self, verb: str, arguments: tuple[Any, ...]) -> Join:
        changed = replace(self, steps=(*self.steps, (verb, arguments)))
        try:
            changed.schema  # noqa: B018 - resolves the new step against the joined columns
        except (AnalysisException, ParseException) as problem:
            text = ", ".join(str(argument) for argument in arguments)
            raise PlanError(
                f"{verb}({text}) cannot be resolved",
                detail=str(problem).splitlines()[0],
                hint="columns are written stream.column: " + "; ".join(self._columns_by_stream()),
            ) from problem
        return changed

    def _columns_by_stream(self) -> list[str]:
        return [
            ", ".join(f"{name}.{column}" for column in frame.columns)
            for name, frame in self.frames.items()
        ]

    def _all_streams(self, verb: str, given: Mapping[str, Any]) -> None:
        unknown = [name for name in given if name not in self.frames]
        missing = [name for name in self.frames if name not in given]
        if unknown or missing:
            what = f"names no stream {unknown[0]}" if unknown else f"leaves out {missing[0]}"
            raise PlanError(f"{verb} {what}", hint=f"the streams are {', '.join(self.frames)}")

    def _per_stream(self, what: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            return dict.fromkeys(self.frames, value)
        self._all_streams(f"within({what}=...)", value)
        return value

    def _column(self, stream: str, name: str, role: str) -> str:
        columns = self.frames[stream].columns
        if name in columns:
            return name
        folded = [column for column in columns if column.lower() == str(name).lower()]
        if len(folded) == 1:
            return folded[0]
        near = difflib.get_close_matches(str(name), columns, n=1)
        raise PlanError(
            f"stream {stream} has no column {name!r} to use as {role}",
            detail=f"its columns are {', '.join(columns)}",
            hint=f"did you mean {near[0]!r}?"
            if near
            else f'name the column of each stream: .on({stream}="...", ...)'
            if role == "key"
            else f"name a column of {stream}",
        )

    def _time_column(self, stream: str, name: str) -> str:
        column = self._column(stream, name, "event time")
        kind = self.frames[stream].schema[column].dataType
        if not isinstance(kind, TimestampType | TimestampNTZType):
            raise PlanError(
                f"the window of stream {stream} is on {column}, which is {kind.simpleString()}, "
                "not a time",
                hint=f"use a timestamp column, or cast it before the join: "
                f"to_timestamp({column}) or timestamp_micros({column})",
            )
        return column

    def _comparable_times(self, windows: Mapping[str, WindowPlan]) -> None:
        kinds = {n: self.frames[n].schema[w.time].dataType for n, w in windows.items()}
        if len({kind.simpleString() for kind in kinds.values()}) > 1:
            told = (f"{n}.{windows[n].time} is {k.simpleString()}" for n, k in kinds.items())
            raise PlanError(
                f"times that cannot be compared: {', '.join(told)}",
                hint="cast one of them before the join, so that all are with or without a zone",
            )

    def _key_types(self, keys: Mapping[str, tuple[str, ...]]) -> list[DataType]:
        width = len(next(iter(keys.values())))
        return [self._key_type({n: keys[n][at] for n in self.frames}) for at in range(width)]

    def _key_type(self, columns: Mapping[str, str]) -> DataType:
        kinds = {n: self.frames[n].schema[c].dataType for n, c in columns.items()}
        for name, kind in kinds.items():
            _check_key(name, columns[name], kind)
        families = {n: _family(kind) for n, kind in kinds.items()}
        if len(set(families.values())) > 1:
            told = ", ".join(f"{n}.{columns[n]} is {k.simpleString()}" for n, k in kinds.items())
            raise PlanError(
                f"keys that cannot be compared: {told}",
                hint="cast one of them before the join, so that all are of one kind",
            )
        return common_type(self.spark, list(kinds.values()))


def _check_stream(name: str, frame: Any) -> None:
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
            hint="rename them apart before the join",
        )
    check_arrow(name, frame.schema)


def _check_key(stream: str, column: str, kind: DataType) -> None:
    if isinstance(kind, StructType | ArrayType | MapType) or _family(kind) is None:
        raise PlanError(
            f"{stream}.{column} is {kind.simpleString()}, which cannot be a join key",
            hint="join on its fields, or on a text or number made from it",
        )
    if isinstance(kind, StringType) and getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY":
        raise PlanError(
            f"{stream}.{column} has collation {kind.collation}, which cannot be a join key",
            hint=f"normalise it before the join, for example lower({column}) COLLATE UTF8_BINARY",
        )


def _as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _family(kind: DataType) -> str | None:
    return next((name for name, kinds in _FAMILIES if isinstance(kind, kinds)), None)


def _same(one: DataFrame, other: DataFrame) -> bool:
    if one is other:
        return True
    plans = [frame._jdf.queryExecution().analyzed() for frame in (one, other)]
    return bool(plans[0].equals(plans[1]))


def _expression(column: str | Column) -> Column:
    from pyspark.sql import functions as F

    if not isinstance(column, str):
        return column
    # "*" and "bank1.*" are not expressions that stand alone.
    return F.col(column) if column.endswith("*") else F.expr(column)
