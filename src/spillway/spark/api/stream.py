"""Queries on one stream: group-by and dedup. Each verb checks its arguments at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from spillway.duration import Duration
from spillway.errors import PlanError
from spillway.plan.join import WindowPlan
from spillway.plan.windows import EventWindows
from spillway.spark.api.aggregations import Aggregation, PythonFunction, UserFold
from spillway.spark.api.bywindow import GroupByLasting, GroupBySession, GroupByWindow
from spillway.spark.api.checks import (
    check_key,
    check_order,
    check_sortable,
    check_stream,
    find_column,
    find_time,
    session_of,
    window_of,
    windows_of,
)
from spillway.spark.api.dedup import Dedup
from spillway.spark.api.expressions.rowwise import check_timeless
from spillway.spark.api.groupby import GroupBy
from spillway.spark.api.result import Result
from spillway.spark.api.windowed import FinalWithin, WindowedGroupBy
from spillway.spark.runtime.exchange.lanes import quoted

#: Aggregates that order values.
_ORDERED = (
    *("first", "last", "min", "max", "min_by", "max_by"),
    *("count_distinct", "collect_list", "collect_set"),
)


def stream(frame: DataFrame, name: str = "stream") -> Stream:
    """Starts a query on one streaming DataFrame.

    Example:
        >>> sw.stream(trades).group_by("symbol").agg(mean=sw.avg("price"))  # doctest: +SKIP
    """
    check_stream(name, frame)
    return Stream(name, frame)


def results_of(query: Result, name: str) -> Stream:
    """The results of a query as a stream, for a group-by in the same job."""
    check_timeless(name, query.empty)
    empty = query.spark.createDataFrame([], query.schema)
    return Stream(name, empty, query)


@dataclass(frozen=True)
class Stream:
    """One named stream."""

    name: str
    #: The stream; for the results of a query, an empty frame with the same columns.
    frame: DataFrame
    before: Result | None = None

    def group_by(
        self,
        *keys: str,
        ttl: Duration | None = None,
        time: str | None = None,
        lateness: Duration = "0 seconds",
    ) -> Grouped:
        """Groups rows by key; NULL is a key like any other.

        With `ttl`, a key starts anew when its rows pause for longer than that, by `time`. What it had
        leaves the state when the watermark shows that no row can continue it. The query drops and counts
        rows that are more than `lateness` behind the newest row.

        Example:
            >>> sw.stream(events).group_by("user", ttl="1 hour", time="ts")  # doctest: +SKIP
        """
        if not keys:
            raise PlanError(
                "group_by() needs at least one key",
                hint='name the columns: .group_by("symbol"); for a single group, group by a '
                "column with one value in all rows",
            )
        found = tuple(self._key(key) for key in keys)
        _check_names(keys, found)
        if (ttl is None) != (time is None):
            raise PlanError(
                "group_by() takes ttl and time together",
                detail="a key leaves by the times of rows, so that results do not depend on batches",
                hint='for example .group_by("user", ttl="1 hour", time="ts")',
            )
        if ttl is None:
            return Grouped(self, found)
        column = find_time(self.frame, self.name, str(time), "group-by")
        return Grouped(self, found, window_of(self.name, column, ttl, lateness), ttl=True)

    def window(
        self,
        length: Duration,
        *,
        time: str,
        slide: Duration | None = None,
        start: Duration = "0 seconds",
        lateness: Duration = "0 seconds",
    ) -> Grouped:
        """Groups all rows by window, without a key; see `Grouped.window`. One slot has them all."""
        return Grouped(self, ()).window(
            length, time=time, slide=slide, start=start, lateness=lateness
        )

    def session(self, gap: Duration, *, time: str, lateness: Duration = "0 seconds") -> Grouped:
        """Groups all rows by session, without another key; see `Grouped.session`."""
        return Grouped(self, ()).session(gap, time=time, lateness=lateness)

    def dedup(
        self,
        *keys: str,
        within: Duration | None = None,
        every: Duration | None = None,
        time: str | None = None,
        lateness: Duration = "0 seconds",
        by: str | None = None,
    ) -> Dedup:
        """Keeps the first row of each key; with `within` or `every`, one row per key and time interval.

        `within` keeps a row if it is at least this far in time, before or after, from every kept row of
        its key. `every` cuts time into intervals of this length, as Spark's `window` does, and keeps the
        first row of each key in each interval.

        The query orders the rows of a batch by `time`, or `by`, and then by content, so the result does
        not depend on their order of arrival. It drops and counts rows that are more than `lateness`
        behind the newest row.

        Example:
            >>> sw.stream(events).dedup("id", within="1 hour", time="ts")  # doctest: +SKIP
            >>> sw.stream(events).dedup("id", every="1 hour", time="ts")  # doctest: +SKIP
        """
        if not keys:
            raise PlanError(
                "dedup() needs at least one key", hint='name the columns: .dedup("event_id")'
            )
        _check_window(within, every, time)
        hint = f"name a column of {self.name}"
        found = tuple(find_column(self.frame, self.name, key, "key", hint) for key in keys)
        for key in found:
            check_key(self.name, key, self.frame.schema[key].dataType, "dedup")
        window, length = None, within if every is None else every
        if length is not None:
            column = find_time(self.frame, self.name, str(time), "dedup")
            window = window_of(self.name, column, length, lateness, tumbling=every is not None)
        order = by and self.order(by)
        frames = {self.name: self.frame}
        return Dedup(frames, found, window, order, before=self.before)

    def order(self, by: str) -> str:
        """The column that the user means as order."""
        hint = f"name a column of {self.name}"
        name = find_column(self.frame, self.name, by, "order", hint)
        check_order(f"{self.name}.{name}", self.frame.schema[name].dataType)
        return name

    def _key(self, key: str) -> tuple[str, str]:
        """The name of a key in the results, and its Spark expression."""
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
                hint="write a column of a joined stream as stream.column",
            )
        check_key(self.name, key, kind[inner].dataType, "group-by")
        return inner, f"{quoted(outer)}.{quoted(inner)}"


def _check_names(keys: Sequence[str], found: Sequence[tuple[str, str]]) -> None:
    """Rejects keys that would have the same name in the results; case does not matter."""
    names = [name.lower() for name, _ in found]
    same = [at for at, name in enumerate(names) if names.count(name) > 1]
    if not same:
        return
    name = found[same[0]][0]
    if len({found[at][1] for at in same if names[at] == name.lower()}) == 1:
        raise PlanError(f"group_by() names the key {name} twice", hint="name it once")
    some = [keys[at] for at in same if names[at] == name.lower()]
    renamed = [(key, key.replace(".", "_")) for key in some]
    selected = ", ".join(f'"{key} AS {new}"' for key, new in renamed)
    raise PlanError(
        f"the keys {' and '.join(some)} of group_by() would both be the column {name} of the results",
        hint=f"give them other names first: .select({selected}, ...)"
        f".group_by({', '.join(repr(new) for _, new in renamed)})",
    )


def _check_window(within: Duration | None, every: Duration | None, time: str | None) -> None:
    """Rejects a dedup with two windows, or with half of one."""
    if within is not None and every is not None:
        raise PlanError(
            f"dedup() takes within or every, not both: within={within!r}, every={every!r}",
            hint="within is the least distance in time between two results of a key; every is the "
            "length of the time intervals, each of which gives one result of a key",
        )
    name = "within" if every is None else "every"
    if (within is None and every is None) != (time is None):
        raise PlanError(
            f"dedup() takes {name} and time together",
            hint=f'for example .dedup("event_id", {name}="1 hour", time="ts")',
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
