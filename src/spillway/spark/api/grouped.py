"""A stream grouped by key: its windows, and its aggregates. Each verb checks its arguments at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql.types import DataType

from spillway.duration import Duration
from spillway.errors import PlanError
from spillway.plan.join import WindowPlan
from spillway.plan.windows import EventWindows
from spillway.spark.api.aggregations import Aggregation, PythonFunction, UserFold
from spillway.spark.api.bywindow import GroupByLasting, GroupBySession, GroupByWindow
from spillway.spark.api.checks import (
    check_order,
    check_sortable,
    find_column,
    find_time,
    session_of,
    window_of,
    windows_of,
)
from spillway.spark.api.groupby import GroupBy
from spillway.spark.api.windowed import FinalWithin, WindowedGroupBy

if TYPE_CHECKING:
    from spillway.spark.api.stream import Stream

#: Aggregates that order values.
_ORDERED = (
    *("first", "last", "min", "max", "min_by", "max_by"),
    *("count_distinct", "collect_list", "collect_set"),
)


@dataclass(frozen=True)
class Grouped:
    """A stream grouped by key; `agg` completes it."""

    stream: Stream
    #: For each key, its name in the results and its Spark expression.
    keys: tuple[tuple[str, str], ...]
    event_time: WindowPlan | None = None
    rows: int | None = None
    by: str | None = None
    windows: EventWindows | None = None
    #: Whether `event_time` has how long a key stays, and there is no window.
    ttl: bool = False

    def last(self, rows: int, *, by: str | None = None) -> Grouped:
        """Aggregates over the last `rows` rows of each key.

        Batches are in order; within a batch, `by` and then the content orders the rows.
        """
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
            raise PlanError(
                f"last({rows!r}) must be a positive number of rows", hint="for example .last(100)"
            )
        self._check_ttl("last")
        order = by and self.stream.order(by)
        return replace(self, event_time=None, rows=rows, by=order, windows=None)

    def within(
        self,
        window: Duration,
        *,
        time: str,
        lateness: Duration = "0 seconds",
        final: bool = False,
    ) -> Grouped:
        """Aggregates over the rows of each key in a range of event time that ends at each row.

        A result covers the rows that have come by its batch; rows that come later, with earlier times,
        do not revise it. With `final`, a row gives its result when the watermark has passed its time,
        and the result covers all rows of the range. The query drops and counts rows that are more than
        `lateness` behind the newest row.
        """
        self._check_ttl("within")
        column = find_time(self.stream.frame, self.stream.name, time, "group-by")
        plan = window_of(self.stream.name, column, window, lateness)
        windows = EventWindows(plan.window_us, None, sliding=True) if final else None
        return replace(self, event_time=plan, rows=None, by=None, windows=windows)

    def window(
        self,
        length: Duration,
        *,
        time: str,
        slide: Duration | None = None,
        start: Duration = "0 seconds",
        lateness: Duration = "0 seconds",
    ) -> Grouped:
        """Aggregates over tumbling windows of event time; with `slide`, over hopping ones.

        Windows have the boundaries of Spark's `window(time, length, slide, start)`, and results have its
        column `window` with `start` and `end`. In output mode "append" a window gives one row, when the
        watermark has passed its end; in "update" a row with every batch that touches it. The query drops
        and counts rows that are more than `lateness` behind the newest row.

        Example:
            >>> grouped.window("5 minutes", time="ts", slide="1 minute")  # doctest: +SKIP
        """
        windows = windows_of(self.stream.name, length, slide, start)
        return self._over(windows, time, length, lateness)

    def session(self, gap: Duration, *, time: str, lateness: Duration = "0 seconds") -> Grouped:
        """Aggregates over sessions: rows of a key that are at most `gap` apart, in a chain.

        Sessions are those of Spark's `session_window(time, gap)`, and results have its column
        `session_window`. A session gives one row, when the watermark has passed its end.

        Example:
            >>> grouped.session("10 minutes", time="ts")  # doctest: +SKIP
        """
        return self._over(session_of(self.stream.name, gap), time, gap, lateness)

    def _check_ttl(self, verb: str) -> None:
        if self.ttl:
            raise PlanError(
                f"a group-by with ttl cannot have .{verb.removesuffix('_window')}(...) too",
                detail="windows have an end, when their state leaves",
                hint="leave out ttl",
            )

    def _over(
        self, windows: EventWindows, time: str, length: Duration, lateness: Duration
    ) -> Grouped:
        self._check_ttl(windows.name)
        name = self.stream.name
        column = find_time(self.stream.frame, name, time, "group-by")
        tumbling = windows.slide_us == windows.length_us
        plan = window_of(name, column, length, lateness, tumbling=tumbling)
        taken = next((key for key, _ in self.keys if key.lower() == windows.name), None)
        if taken is not None:
            raise PlanError(
                f"the key {taken} has the name of the column {windows.name} of the results",
                hint=f'give it another name first: .select("{taken} AS {taken}_key", ...)',
            )
        return replace(self, event_time=plan, rows=None, by=None, windows=windows)

    def agg(self, **aggregates: Aggregation) -> GroupBy:
        """Sets the aggregates of every key, each with a name.

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
        frames, before = {self.stream.name: self.stream.frame}, self.stream.before
        if self.ttl:
            lasting = self.event_time
            return GroupByLasting(frames, self.keys, dict(aggregates), lasting, before=before)
        if self.windows is not None and self.windows.sliding:
            return FinalWithin(frames, self.keys, dict(aggregates), self.event_time, before=before)
        if self.windows is not None:
            kind = GroupBySession if self.windows.session else GroupByWindow
            over = self.event_time, self.windows
            return kind(frames, self.keys, dict(aggregates), *over, before=before)
        if self.event_time is None and self.rows is None:
            return GroupBy(frames, self.keys, dict(aggregates), before=before)
        window = self.event_time, self.rows, self.by
        return WindowedGroupBy(frames, self.keys, dict(aggregates), *window, before=before)

    def _check(self, name: str, one: Any) -> None:
        if not isinstance(one, Aggregation):
            raise PlanError(
                f"aggregate {name} is {one!r}, not an aggregate function",
                hint=f'use an aggregate of Spillway: {name}=sw.sum("price")',
            )
        if name.lower() in {key.lower() for key, _ in self.keys}:
            raise PlanError(
                f"aggregate {name} has the same name as a key", hint="give it another name"
            )
        if self.windows is not None and name.lower() == self.windows.name:
            raise PlanError(
                f"aggregate {name} has the same name as the column of the windows",
                hint="give it another name",
            )
        if one.python is not None:
            self._check_function(name, one.python)
        if one.fold is not None:
            self._check_fold(name, one.fold)
        frame = self.stream.frame
        try:
            frame.select(one.as_spark(one.argument()))
            argument = frame.select(one.argument())
        except (AnalysisException, ParseException) as problem:
            raise PlanError(
                f"aggregate {name}={one.text} cannot be resolved",
                detail=str(problem).splitlines()[0],
                hint=f"the columns of {self.stream.name} are "
                + ", ".join(self.stream.frame.columns),
            ) from problem
        self._check_order(name, one, argument.schema[0].dataType)

    def _check_order(self, name: str, one: Aggregation, kind: DataType) -> None:
        """Rejects values that an aggregate must order and cannot."""
        if one.by is not None:
            self.stream.order(one.by)
        if one.function in _ORDERED:
            # Where a column orders the rows, the values only decide between equal ones.
            check = check_order if one.by is None else check_sortable
            check(f"aggregate {name}={one.text}", kind)

    @property
    def _slides(self) -> bool:
        """Whether windows slide over rows, which stay in the state."""
        if self.rows is not None:
            return True
        sliding = self.windows is None or self.windows.sliding
        return self.event_time is not None and sliding and not self.ttl

    def _check_fold(self, name: str, one: UserFold) -> None:
        if self._slides:
            raise PlanError(
                f"aggregate {name} is a fold, which does not work with .last() and .within()",
                detail="their windows slide over rows, so nothing can be merged",
                hint="use sw.function, which gets the rows of each window",
            )
        for column in one.columns:
            hint = f"name a column of {self.stream.name}"
            find_column(self.stream.frame, self.stream.name, column, f"argument of {name}", hint)

    def _check_function(self, name: str, one: PythonFunction) -> None:
        if not self._slides:
            raise PlanError(
                f"aggregate {name} is a Python function, which needs the rows of a sliding window",
                detail="this group-by keeps partial results instead of rows",
                hint='use .last(100) or .within("10 minutes", time="ts") before .agg(...)',
            )
        for column in one.columns:
            hint = f"name a column of {self.stream.name}"
            find_column(self.stream.frame, self.stream.name, column, f"argument of {name}", hint)
