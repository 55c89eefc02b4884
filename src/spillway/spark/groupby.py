"""The builder of a group-by: immutable, each verb gives a new one, each checks what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from spillway.duration import Duration
from spillway.errors import PlanError
from spillway.operators.aggregates import Aggregate
from spillway.operators.groupby import GroupByOperator
from spillway.plan.groupby import AggregatePlan, GroupByPlan
from spillway.plan.join import StreamPlan
from spillway.settings import Adapt
from spillway.spark.aggregations import Aggregation
from spillway.spark.checks import check_key, check_stream, find_column, find_time, window_of
from spillway.spark.dedup import Dedup
from spillway.spark.lanes import Lanes, arrow_type, assign_lanes, nullable, quoted
from spillway.spark.result import Planned, Result


def stream(frame: DataFrame, name: str = "stream") -> Stream:
    """Begins a query on one streaming DataFrame.

    Example:
        >>> sw.stream(trades).group_by("symbol").agg(mean=sw.avg("price"))  # doctest: +SKIP
    """
    check_stream(name, frame)
    return Stream(name, frame)


def results_of(query: Result, name: str) -> Stream:
    """The results of a query, to be grouped in the same job."""
    empty = query.spark.createDataFrame([], query.schema)
    return Stream(name, empty, query)


@dataclass(frozen=True)
class Stream:
    """One stream, under a name."""

    name: str
    #: The stream; or no rows of the same columns, where it is the results of a query.
    frame: DataFrame
    before: Result | None = None

    def group_by(self, *keys: str) -> Grouped:
        """The keys that rows are grouped by; a key that is NULL is a key like any other."""
        if not keys:
            raise PlanError(
                "group_by() needs at least one key",
                hint='name the columns: .group_by("symbol"); for one group in all, group by a '
                "column that is the same in all rows",
            )
        found = tuple(self._key(key) for key in keys)
        names = [name for name, _ in found]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise PlanError(f"group_by() names the key {twice} twice", hint="name it once")
        return Grouped(self, found)

    def dedup(
        self,
        *keys: str,
        within: Duration | None = None,
        time: str | None = None,
        lateness: Duration = "0 seconds",
        by: str | None = None,
    ) -> Dedup:
        """One row of each key: the first. With `within`, one per range of event time.

        The rows of a batch are taken in the order of `time`, or `by`, and then of their content; the
        result does not depend on the order in which they come. Rows later than `lateness` behind the
        newest are dropped and counted.

        Example:
            >>> sw.stream(events).dedup("id", within="1 hour", time="ts")  # doctest: +SKIP
        """
        if not keys:
            raise PlanError(
                "dedup() needs at least one key", hint='name the columns: .dedup("event_id")'
            )
        if (within is None) != (time is None):
            raise PlanError(
                "dedup() takes within and time together",
                hint='for example .dedup("event_id", within="1 hour", time="ts")',
            )
        hint = f"name a column of {self.name}"
        found = tuple(find_column(self.frame, self.name, key, "key", hint) for key in keys)
        for key in found:
            check_key(self.name, key, self.frame.schema[key].dataType, "dedup")
        window = None
        if within is not None:
            column = find_time(self.frame, self.name, str(time), "dedup")
            window = window_of(self.name, column, within, lateness)
        order = by and find_column(self.frame, self.name, by, "order", hint)
        frames = {self.name: self.frame}
        return Dedup(frames, found, window, order, before=self.before)

    def _key(self, key: str) -> tuple[str, str]:
        """The name that a key has in the results, and what it is in Spark's words."""
        outer, _, inner = str(key).partition(".")
        if key in self.frame.columns or not inner or outer not in self.frame.columns:
            hint = f"name a column of {self.name}"
            name = find_column(self.frame, self.name, key, "key", hint)
            check_key(self.name, name, self.frame.schema[name].dataType, "group-by")
            return name, quoted(name)
        kind = self.frame.schema[outer].dataType
        if not isinstance(kind, StructType) or inner not in kind.names:
            raise PlanError(
                f"{self.name} has no column {key!r} to use as key",
                detail=f"{outer} is {kind.simpleString()}",
                hint="a column of a stream is written stream.column",
            )
        check_key(self.name, key, kind[inner].dataType, "group-by")
        return inner, f"{quoted(outer)}.{quoted(inner)}"


@dataclass(frozen=True)
class Grouped:
    """A stream by key, before it is said what of it."""

    stream: Stream
    #: For each key, its name in the results, and what it is in Spark's words.
    keys: tuple[tuple[str, str], ...]

    def agg(self, **aggregates: Aggregation) -> GroupBy:
        """What is computed for every key, each under a name.

        Example:
            >>> grouped.agg(trades=sw.count(), mean=sw.avg("price"))  # doctest: +SKIP
        """
        if not aggregates:
            raise PlanError(
                "agg() needs at least one aggregate",
                hint='for example .agg(trades=sw.count(), mean=sw.avg("price"))',
            )
        for name, one in aggregates.items():
            self._check(name, one)
        frames = {self.stream.name: self.stream.frame}
        return GroupBy(frames, self.keys, dict(aggregates), before=self.stream.before)

    def _check(self, name: str, one: Any) -> None:
        if not isinstance(one, Aggregation):
            raise PlanError(
                f"aggregate {name} is {one!r}, not an aggregate function",
                hint=f'use those of spillway: {name}=sw.sum("price")',
            )
        if name.lower() in {key.lower() for key, _ in self.keys}:
            raise PlanError(f"aggregate {name} has the name of a key", hint="give it another name")
        try:
            self.stream.frame.select(one.as_spark(one.argument()))
        except (AnalysisException, ParseException) as problem:
            raise PlanError(
                f"aggregate {name}={one.text} cannot be resolved",
                detail=str(problem).splitlines()[0],
                hint=f"the columns of {self.stream.name} are "
                + ", ".join(self.stream.frame.columns),
            ) from problem


@dataclass(frozen=True)
class GroupBy(Result):
    """A group-by in the making; `writeStream` starts it.

    Every batch gives one row for every key that it touched, with what its aggregates are now.
    """

    KIND: ClassVar[str] = "a group-by"
    MODES: ClassVar[tuple[str, ...]] = ("update",)
    WHY_MODES: ClassVar[str] = "the aggregates of a key change with every batch that has rows of it"

    keys: tuple[tuple[str, str], ...] = ()
    aggregates: Mapping[str, Aggregation] | None = None

    @property
    def whole_schema(self) -> StructType:
        """The keys and the aggregates, with the types that Spark gives them."""
        rows = self.spark.createDataFrame([], self._travelling().schema)
        made = [
            one.as_spark(F.lit(1) if one.of is None else F.col(self._argument(at))).alias(name)
            for at, (name, one) in enumerate(self._aggregates.items())
        ]
        found = rows.groupBy(*(quoted(key) for key in self._names)).agg(*made).schema
        whole = nullable(found)
        assert isinstance(whole, StructType)
        return whole

    def planned(self, adapt: Adapt, mode: str) -> Planned:  # noqa: ARG002
        """The checked group-by."""
        [name] = self.frames
        rows = self._travelling()
        types = [nullable(rows.schema[key].dataType) for key in self._names]
        source = StreamPlan(
            name,
            tuple((f.name, f.dataType.simpleString()) for f in rows.schema.fields),
            self._names,
            null_keys=True,
        )
        aggregates = tuple(
            AggregatePlan(title, one.function, one.text)
            for at, (title, one) in enumerate(self._aggregates.items())
        )
        plan = GroupByPlan(source, tuple(kind.simpleString() for kind in types), aggregates)
        frames = {name: rows}
        lanes = assign_lanes(plan, frames, types)
        operator = self._operator(rows, lanes, adapt.block_rows)
        return Planned(plan, lanes, frames, operator, self._columns)

    def _operator(self, rows: DataFrame, lanes: Lanes, block_rows: int) -> GroupByOperator:
        made = []
        for at, (title, one) in enumerate(self._aggregates.items()):
            if one.of is None:
                made.append(Aggregate(title, one.function))
                continue
            column = rows.columns.index(self._argument(at))
            order = rows.columns.index(self._order(at)) if one.by else None
            kind: DataType = rows.schema[column].dataType
            made.append(Aggregate(title, one.function, column, arrow_type(kind), order))
        return GroupByOperator(lanes.streams[0], self._names, made, block_rows)

    def _travelling(self) -> DataFrame:
        [frame] = self.frames.values()
        return self._columns(frame)

    def _columns(self, rows: DataFrame) -> DataFrame:
        """The keys, and what aggregates are taken of."""
        [name] = self.frames
        columns: list[Column] = [F.col(text).alias(key) for key, text in self.keys]
        for at, one in enumerate(self._aggregates.values()):
            if one.of is not None:
                columns.append(one.argument().alias(self._argument(at)))
            if one.by is not None:
                by = find_column(rows, name, one.by, "order", f"name a column of {name}")
                columns.append(F.col(quoted(by)).alias(self._order(at)))
        return rows.select(*columns)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.keys)

    @property
    def _aggregates(self) -> Mapping[str, Aggregation]:
        assert self.aggregates
        return self.aggregates

    @staticmethod
    def _argument(at: int) -> str:
        return f"_value{at}"

    @staticmethod
    def _order(at: int) -> str:
        return f"_order{at}"
