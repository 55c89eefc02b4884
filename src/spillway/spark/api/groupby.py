"""A group-by over all rows so far: its columns, types and operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.groupby import GroupByOperator
from spillway.plan.groupby import AggregatePlan, GroupByPlan
from spillway.plan.join import StreamPlan, WindowPlan
from spillway.settings import Adapt
from spillway.spark.api.aggregations import Aggregation
from spillway.spark.api.checks import find_column
from spillway.spark.api.expressions.rowwise import column_text
from spillway.spark.api.result import Planned, Result
from spillway.spark.runtime.exchange.lanes import arrow_type, assign_lanes, nullable, quoted


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
            self._source(rows, None),
            tuple(kind.simpleString() for kind in types),
            self._aggregate_plans(),
        )
        frames = dict.fromkeys(self.frames, rows)
        lanes = assign_lanes(plan, frames, types)
        made = [self._made(rows, at, *one) for at, one in enumerate(self._aggregates.items())]
        operator = GroupByOperator(lanes.streams[0], self._names, made, adapt.block_rows)
        return Planned(plan, lanes, frames, operator, self._columns)

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

    def _made(self, rows: DataFrame, at: int, title: str, one: Aggregation) -> Aggregate:
        if one.of is None:
            return Aggregate(title, one.function)
        column = rows.columns.index(self._argument(at))
        order = rows.columns.index(self._order(at)) if one.by else None
        kind: DataType = rows.schema[column].dataType
        return Aggregate(title, one.function, column, arrow_type(kind), order, one.fraction)

    def _travelling(self) -> DataFrame:
        [frame] = self.frames.values()
        return self._columns(frame)

    def _columns(self, rows: DataFrame) -> DataFrame:
        """The keys, and the arguments of the aggregates."""
        return rows.select(*self._needed(rows))

    def _needed(self, rows: DataFrame) -> list[Column]:
        [name] = self.frames
        columns: list[Column] = [F.col(text).alias(key) for key, text in self.keys]
        for at, one in enumerate(self._aggregates.values()):
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
        of = made[at].of
        if not isinstance(of, str):
            return at
        return next(i for i, one in enumerate(made) if isinstance(one.of, str) and one.of == of)

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
