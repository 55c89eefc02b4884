"""The builders of a group-by over windows of event time, or with a time to live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql.types import StructField, StructType

from spillway.operators.grouping.closing import ClosingOperator
from spillway.operators.grouping.groupby import WindowUpdateOperator
from spillway.operators.grouping.lasting import LastingOperator
from spillway.operators.grouping.marks import Marks, Sessions, Spans
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.plan.join import WindowPlan
from spillway.plan.windows import EventWindows
from spillway.spark.api.groupby import GroupBy, Made
from spillway.spark.runtime.exchange.lanes import nullable


@dataclass(frozen=True)
class GroupByWindow(GroupBy):
    """A group-by over tumbling or hopping windows that has not started; `writeStream` starts it.

    In output mode "append" each key and window gives one final row, when the watermark has passed the
    end of the window. In "update" a batch gives the current row of each key and window that it touched.
    """

    MODES: ClassVar[tuple[str, ...]] = ("append", "update")
    WHY_MODES: ClassVar[str] = (
        "a window gives one final row at its end, or one with every batch that touches it"
    )

    time: WindowPlan | None = None
    windows: EventWindows | None = None

    @property
    def whole_schema(self) -> StructType:
        """The keys, the window, and the aggregates."""
        fields = list(super().whole_schema.fields)
        kind = nullable(self._travelling().schema[self._event_time.time].dataType)
        window = StructType([StructField("start", kind), StructField("end", kind)])
        fields.insert(len(self.keys), StructField(self._event_windows.name, window))
        return StructType(fields)

    @property
    def _event_time(self) -> WindowPlan:
        assert self.time is not None
        return self.time

    @property
    def _event_windows(self) -> EventWindows:
        assert self.windows is not None
        return self.windows

    def _operator(self, stream: StreamColumns, made: Sequence[Made], block_rows: int) -> Operator:
        windows = self._event_windows
        marks: Marks = Sessions(windows.length_us, windows.name)
        if windows.slide_us is not None:
            marks = Spans(windows.length_us, windows.slide_us, windows.start_us, windows.name)
        kind = ClosingOperator if self.mode == "append" else WindowUpdateOperator
        return kind(stream, self._names, made, block_rows, marks)


@dataclass(frozen=True)
class GroupBySession(GroupByWindow):
    """A group-by over sessions that has not started; `writeStream` starts it.

    Each session gives one final row, when the watermark has passed its end.
    """

    MODES: ClassVar[tuple[str, ...]] = ("append",)
    WHY_MODES: ClassVar[str] = (
        "a late row can join two sessions, and so withdraw the rows that they gave"
    )


@dataclass(frozen=True)
class GroupByLasting(GroupBy):
    """A group-by with a time to live that has not started; `writeStream` starts it.

    Every batch gives one row with the current aggregates for each key that it touched. A key whose rows
    pause for longer than its time to live starts anew.
    """

    time: WindowPlan | None = None

    @property
    def _event_time(self) -> WindowPlan:
        assert self.time is not None
        return self.time

    @property
    def _event_windows(self) -> EventWindows:
        return EventWindows(self._event_time.window_us, None, lasting=True)

    def _operator(self, stream: StreamColumns, made: Sequence[Made], block_rows: int) -> Operator:
        marks = Sessions(self._event_time.window_us, None)
        return LastingOperator(stream, self._names, made, block_rows, marks)
