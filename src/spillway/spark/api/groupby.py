"""A group-by over all rows so far: its columns, types and operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.folds import Fold, FoldAggregate
from spillway.operators.grouping.groupby import GroupByOperator
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.plan.groupby import AggregatePlan, GroupByPlan
from spillway.plan.join import StreamPlan, WindowPlan
from spillway.plan.windows import EventWindows
from spillway.settings import Adapt
from spillway.spark.api.aggregations import Aggregation, UserFold
from spillway.spark.api.checks import find_column
from spillway.spark.api.expressions.rowwise import column_text
from spillway.spark.api.result import Planned, Result
from spillway.spark.runtime.exchange.lanes import arrow_type, assign_lanes, nullable, quoted

#: An aggregate in the form of the operators.
Made = Aggregate | FoldAggregate


@dataclass(frozen=True)
class GroupBy(Result):
    """A group-by that has not started; `writeStream` starts it.

    Every batch gives one row with the current aggregates for each key that it touched.
    """

    KIND: ClassVar[str] = "a group-by"
    MODES: ClassVar[tuple[str, ...]] = ("update",)
    WHY_MODES: ClassVar[str] = "the aggregates of a key change with every batch that has its rows"

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

    def planned(self, adapt: Adapt) -> Planned:
        """The checked group-by."""
        rows = self._travelling()
        types = [nullable(rows.schema[key].dataType) for key in self._names]
        plan = GroupByPlan(
            self._source(rows, self._event_time),
            tuple(kind.simpleString() for kind in types),
            self._aggregate_plans(),
            windows=self._event_windows,
            mode=self.mode,
        )
        frames = dict.fromkeys(self.frames, rows)
        lanes = assign_lanes(plan, frames, types)
        made = [self._made(rows, at, *one) for at, one in enumerate(self._aggregates.items())]
        operator = self._operator(lanes.streams[0], made, adapt.block_rows)
        return Planned(plan, lanes, frames, operator, self._columns)

    @property
    def _event_time(self) -> WindowPlan | None:
        """The time of rows, and how long state needs them; None: it keeps everything."""
        return None

    @property
    def _event_windows(self) -> EventWindows | None:
        """What rows of a key are aggregated together; None: all."""
        return None

    def _operator(self, stream: StreamColumns, made: Sequence[Made], block_rows: int) -> Operator:
        return GroupByOperator(stream, self._names, made, block_rows)

    def _source(self, rows: DataFrame, window: WindowPlan | None) -> StreamPlan:
        [name] = self.frames
        columns = tuple((f.name, f.dataType.simpleString()) for f in rows.schema.fields)
        return StreamPlan(name, columns, self._names, window, null_keys=True)

    def _aggregate_plans(self) -> tuple[AggregatePlan, ...]:
        [frame] = self.frames.values()
        return tuple(
            AggregatePlan(title, one.function, _stable(one, frame).text)
            for title, one in self._aggregates.items()
        )

    def _made(self, rows: DataFrame, at: int, title: str, one: Aggregation) -> Made:
        if one.fold is not None:
            return self._folded(rows, at, title, one.fold)
        if one.of is None:
            return Aggregate(title, one.function)
        column = rows.columns.index(self._argument(at))
        order = rows.columns.index(self._order(at)) if one.by else None
        kind: DataType = rows.schema[column].dataType
        return Aggregate(
            title, one.function, column, arrow_type(kind), order, one.fraction, one.limit
        )

    def _folded(self, rows: DataFrame, at: int, title: str, one: UserFold) -> FoldAggregate:
        def arrow_of(ddl: str) -> pa.DataType:
            return arrow_type(self.spark.createDataFrame([], f"v {ddl}").schema["v"].dataType)

        places = tuple((c, rows.columns.index(self._given(at, c))) for c in one.columns)
        parts = tuple((name, arrow_of(kind)) for name, kind in one.partials)
        partial = Fold(title, one.make, one.merge, places, parts)
        return FoldAggregate(title, partial, one.finish, arrow_of(one.returns))

    def _travelling(self) -> DataFrame:
        [frame] = self.frames.values()
        return self._columns(frame)

    def _columns(self, rows: DataFrame) -> DataFrame:
        """The keys, the arguments of the aggregates, and the time."""
        timed = self._event_time
        more = [] if timed is None or timed.time in self._names else [F.col(quoted(timed.time))]
        return rows.select(*self._needed(rows), *more)

    def _needed(self, rows: DataFrame) -> list[Column]:
        [name] = self.frames
        columns: list[Column] = [F.col(text).alias(key) for key, text in self.keys]
        for at, one in enumerate(self._aggregates.values()):
            user = one.python or one.fold
            for column in user.columns if user else ():
                columns.append(F.col(quoted(column)).alias(self._given(at, column)))
            if one.of is not None and self._shared(at) == at:
                columns.append(one.argument().alias(self._argument(at)))
            if one.by is not None:
                by = find_column(rows, name, one.by, "order", f"name a column of {name}")
                columns.append(F.col(quoted(by)).alias(self._order(at)))
        return columns

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.keys)

    @property
    def _aggregates(self) -> Mapping[str, Aggregation]:
        assert self.aggregates
        return self.aggregates

    def _argument(self, at: int) -> str:
        return f"_value{self._shared(at)}"

    def _shared(self, at: int) -> int:
        """The first aggregate with the same text as argument; both use one column."""
        made = list(self._aggregates.values())
        of, hashes = made[at].of, made[at].function == "approx_count_distinct"
        if not isinstance(of, str) or hashes:
            return at
        return next(
            i
            for i, one in enumerate(made)
            if one.of == of and one.function != "approx_count_distinct"
        )

    @staticmethod
    def _given(at: int, column: str) -> str:
        return f"_given{at}_{column}"

    @staticmethod
    def _order(at: int) -> str:
        return f"_order{at}"


def _stable(one: Aggregation, frame: DataFrame) -> Aggregation:
    """The same aggregate with text in place of a Column."""
    return (
        one
        if one.of is None or isinstance(one.of, str)
        else replace(one, of=column_text(one.of, frame))
    )
