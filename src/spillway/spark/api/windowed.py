"""The builder of a group-by over windows: the last rows of each key, or a range of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.final import FinalOperator
from spillway.operators.grouping.windowed import LastRows, WindowedOperator, Within
from spillway.operators.grouping.windows import AnyAggregate, PythonAggregate
from spillway.plan.groupby import GroupByPlan
from spillway.plan.join import WindowPlan
from spillway.plan.windows import EventWindows
from spillway.settings import Adapt
from spillway.spark.api.groupby import GroupBy
from spillway.spark.api.result import Planned
from spillway.spark.runtime.exchange.lanes import arrow_type, assign_lanes, nullable, quoted


@dataclass(frozen=True)
class WindowedGroupBy(GroupBy):
    """A group-by over windows that has not started; `writeStream` starts it.

    In output mode "append" every row gives a result: the aggregates over its window. In "update" a batch
    gives one result for each key that it touched: that of the key's last row.
    """

    MODES: ClassVar[tuple[str, ...]] = ("append", "update")
    WHY_MODES: ClassVar[str] = "a window gives a result for every row, or for every key of a batch"

    window: WindowPlan | None = None
    #: The number of last rows, if there is no range of time, and the column that orders those of a
    #: batch.
    last: int | None = None
    by: str | None = None

    @property
    def whole_schema(self) -> StructType:
        """The keys, the time or order of the row, and the aggregates."""
        fields = list(super().whole_schema.fields)
        if self._ordered is not None:
            kind = self._travelling().schema[self._ordered].dataType
            fields.insert(len(self.keys), StructField(self._ordered, nullable(kind)))
        return StructType(fields)

    def planned(self, adapt: Adapt) -> Planned:
        """The checked group-by."""
        rows = self._travelling()
        types = [nullable(rows.schema[key].dataType) for key in self._names]
        plan = GroupByPlan(
            self._source(rows, self.window),
            tuple(kind.simpleString() for kind in types),
            self._aggregate_plans(),
            None if self.last is None else (self.last, self.by),
            self._event_windows,
            self.mode,
        )
        frames = dict.fromkeys(self.frames, rows)
        lanes = assign_lanes(plan, frames, types)
        shown = [*self._names, *(() if self._ordered is None else (self._ordered,))]
        order = None if self.by is None else rows.columns.index(self.by)
        kind = WindowedOperator if self._event_windows is None else FinalOperator
        operator = kind(
            lanes.streams[0],
            [(name, rows.columns.index(name)) for name in shown],
            self._windowed_aggregates(rows),
            Within() if self.last is None else LastRows(self.last, order),
            per_row=self.mode == "append",
            block_rows=adapt.block_rows,
        )
        return Planned(plan, lanes, frames, operator, self._columns)

    @property
    def _ordered(self) -> str | None:
        name = self.by if self.window is None else self.window.time
        return None if name in self._names else name

    def _windowed_aggregates(self, rows: DataFrame) -> list[AnyAggregate]:
        made: list[AnyAggregate] = []
        for at, (name, one) in enumerate(self._aggregates.items()):
            if one.python is None:
                plain = self._made(rows, at, name, one)
                assert isinstance(plain, Aggregate)
                made.append(plain)
                continue
            kind = rows.sparkSession.createDataFrame([], f"v {one.python.returns}").schema["v"]
            places = tuple(
                (column, rows.columns.index(self._given(at, column)))
                for column in one.python.columns
            )
            made.append(PythonAggregate(name, one.python.call, places, arrow_type(kind.dataType)))
        return made

    def _columns(self, rows: DataFrame) -> DataFrame:
        """The keys, the arguments of the aggregates, and the time or order."""
        more: list[Column] = []
        if self._ordered is not None:
            more.append(F.col(quoted(self._ordered)))
        return rows.select(*self._needed(rows), *more)


@dataclass(frozen=True)
class FinalWithin(WindowedGroupBy):
    """A group-by over a range of time before each row that has not started; `writeStream` starts it.

    Every row gives one result, when the watermark has passed its time: the aggregates over the rows of
    its key in the range that ends at the row, whatever the order in which they came.
    """

    MODES: ClassVar[tuple[str, ...]] = ("append",)
    WHY_MODES: ClassVar[str] = "a row gives its result once, when it is final"

    @property
    def _event_windows(self) -> EventWindows:
        assert self.window is not None
        return EventWindows(self.window.window_us, None, sliding=True)
