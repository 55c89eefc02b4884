"""Queries on one stream: group-by and dedup. Each verb checks its arguments at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spillway.duration import Duration
from spillway.errors import PlanError
from spillway.spark.api.checks import (
    check_key,
    check_order,
    check_stream,
    find_column,
    find_time,
    window_of,
)
from spillway.spark.api.dedup import Dedup
from spillway.spark.api.expressions.rowwise import check_timeless
from spillway.spark.api.grouped import Grouped as Grouped
from spillway.spark.api.result import Result
from spillway.spark.runtime.exchange.lanes import quoted


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
