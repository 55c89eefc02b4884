"""Marks: the times that a stored group of rows has, and which groups are one.

    Unmarked   a key is one group, for ever
    Spans      a group has the start of its window: tumbling, or hopping, where a row is in several
    Sessions   a group has when it was last touched, its first and its last time

Windows have the boundaries of Spark's `window`: a window starts at `start` plus a multiple of the
slide, counted from 1970, and has the times from its start up to, not including, its end. Sessions are
those of Spark's `session_window`: two rows of a key are in one session if they are at most the gap
apart, or a chain of such rows connects them.

Combining is associative. A window is the same for all its rows. A session is an interval
[first, last + gap] that its rows cover, so joining intervals that touch gives the connected sets of
rows, in any order.

*Touched* is the time by which a session expires. It is its last time, unless the operator found at
its expiry that another part of it lives longer (operators/grouping/closing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels import reduce
from spillway.kernels.grouping import Grouping, grouped, grouped_by_time
from spillway.kernels.sessions import cut_sessions
from spillway.state.runs.run import as_numpy

Columns = Sequence[pa.Array]
_Order = NDArray[np.int32]
_ALL_VALID = np.zeros(0, np.bool_)


class Marks(Protocol):
    """The marks of one kind of group."""

    @property
    def width(self) -> int:
        """The number of columns."""
        ...

    @property
    def time(self) -> int | None:
        """Which of them decides expiry; None: groups never expire."""
        ...

    @property
    def life_us(self) -> int | None:
        """How far the watermark is behind that time when a group expires."""
        ...

    def of_rows(self, times: pa.Array | None) -> list[pa.Array]:
        """Returns the marks of rows."""
        ...

    def grouped(
        self, h: NDArray[np.uint32], keys: Columns, marks: Columns, order: _Order | None
    ) -> Grouping:
        """Returns which rows are one group; `order` sorts them by hash, None: they are sorted."""
        ...

    def combined(self, marks: Columns, groups: Grouping) -> list[pa.Array]:
        """Returns the marks of each group."""
        ...

    def spread(self, marks: Columns) -> tuple[NDArray[np.int64], list[pa.Array]] | None:
        """Returns which group each window belongs to, and the marks of windows; None: as they are."""
        ...

    def shown(self, marks: Columns) -> dict[str, pa.Array]:
        """Returns the columns of results that marks give, by name."""
        ...


@dataclass(frozen=True)
class Unmarked:
    """A key is one group."""

    width = 0
    time = None
    life_us = None

    def of_rows(self, _: pa.Array | None) -> list[pa.Array]:
        """Returns no marks."""
        return []

    def grouped(
        self, h: NDArray[np.uint32], keys: Columns, _: Columns, order: _Order | None
    ) -> Grouping:
        """Groups by key."""
        return grouped(h, keys, order)

    def combined(self, _: Columns, __: Grouping) -> list[pa.Array]:
        """Returns no marks."""
        return []

    def spread(self, _: Columns) -> None:
        """A key is in no window."""

    def shown(self, _: Columns) -> dict[str, pa.Array]:
        """Shows nothing."""
        return {}


@dataclass(frozen=True)
class Spans:
    """Windows of one length: a group has the start of its window."""

    length_us: int
    slide_us: int
    #: Where a window starts, from 1970 on.
    start_us: int = 0
    name: str = "window"
    width = 1
    time = 0

    @property
    def life_us(self) -> int:
        """A window expires when the watermark reaches its end."""
        return self.length_us

    def of_rows(self, times: pa.Array | None) -> list[pa.Array]:
        """Returns the *pane* of each row: rows of one pane are in the same windows.

        A pane starts where a window starts or ends.
        """
        assert times is not None
        micros = as_numpy(times, np.int64)
        # The remainder is never negative, so times before 1970 use the same grid.
        since = (micros - self.start_us) % self.slide_us
        last_starts = micros - since
        rest = self.length_us % self.slide_us
        if rest:
            last_starts = last_starts + np.where(since >= rest, rest, 0)
        return [_like(last_starts, times)]

    def grouped(
        self, h: NDArray[np.uint32], keys: Columns, marks: Columns, order: _Order | None
    ) -> Grouping:
        """Groups by key and window."""
        return grouped_by_time(h, keys, as_numpy(marks[0], np.int64), order)

    def combined(self, marks: Columns, groups: Grouping) -> list[pa.Array]:
        """All rows of a group have the same start."""
        return [marks[0].take(pa.array(groups.first))]

    def spread(self, marks: Columns) -> tuple[NDArray[np.int64], list[pa.Array]] | None:
        """Returns a row for each window of a pane."""
        if self.slide_us == self.length_us:
            return None
        panes = as_numpy(marks[0], np.int64)
        since = (panes - self.start_us) % self.slide_us
        whole, rest = divmod(self.length_us, self.slide_us)
        counts = np.where(since < rest, whole + 1, whole) if rest else np.full(len(panes), whole)
        rows = np.repeat(np.arange(len(panes)), counts)
        back = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = (panes - since)[rows] - back * self.slide_us
        return rows, [_like(starts, marks[0])]

    def shown(self, marks: Columns) -> dict[str, pa.Array]:
        """Shows start and end as a struct."""
        ends = as_numpy(marks[0], np.int64) + self.length_us
        return {self.name: _window(marks[0], _like(ends, marks[0]))}


@dataclass(frozen=True)
class Sessions:
    """Sessions: a group has when it was touched, and its first and last time."""

    gap_us: int
    #: The column of results; None: results do not show the session.
    name: str | None = "session_window"
    width = 3
    time = 0

    @property
    def life_us(self) -> int:
        """A session expires when no row at or after the watermark can touch it.

        A row at its very end still does, as in Spark.
        """
        return self.gap_us + 1

    def of_rows(self, times: pa.Array | None) -> list[pa.Array]:
        """A row is a session of its own."""
        assert times is not None
        return [times, times, times]

    def grouped(
        self, h: NDArray[np.uint32], keys: Columns, marks: Columns, order: _Order | None
    ) -> Grouping:
        """Groups by key, and within a key where sessions touch."""
        first, last = (as_numpy(mark, np.int64) for mark in marks[1:])
        groups = grouped(h, keys, order)
        if groups.alone:
            return groups
        sorted_ = groups.order.copy()
        starts = cut_sessions(sorted_, groups.starts, first, last, self.gap_us)
        return Grouping(sorted_, starts)

    def combined(self, marks: Columns, groups: Grouping) -> list[pa.Array]:
        """Returns the latest touch, the first and the last time."""
        touched, first, last = (as_numpy(mark, np.int64) for mark in marks)
        most = [_most(values, groups) for values in (touched, ~first, last)]
        return [_like(values, marks[0]) for values in (most[0], ~most[1], most[2])]

    def spread(self, _: Columns) -> None:
        """A session is in no other window."""

    def shown(self, marks: Columns) -> dict[str, pa.Array]:
        """Shows start and end as a struct."""
        if self.name is None:
            return {}
        ends = as_numpy(marks[2], np.int64) + self.gap_us
        return {self.name: _window(marks[1], _like(ends, marks[2]))}


def _most(values: NDArray[np.int64], groups: Grouping) -> NDArray[np.int64]:
    at = reduce.least(~values, _ALL_VALID, groups.order, groups.starts)
    found: NDArray[np.int64] = values[at]
    return found


def _window(start: pa.Array, end: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays([start, end], names=["start", "end"])


def _like(micros: NDArray[np.int64], times: pa.Array) -> pa.Array:
    """Returns times of the type of a column."""
    return pa.array(np.ascontiguousarray(micros, np.int64)).view(times.type)
