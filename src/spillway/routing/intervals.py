"""Intervals of time: how a join on any predicate becomes an equi-join (ATR, aligned tuple routing).

One stream is the *master*, whose time has intervals of length T. A row of another stream is copied to
every interval in which a row of the master can be its partner. So all rows of a combination meet in
the interval of its master row, and only there: the join on equal interval numbers, with the
predicates as residual conditions, produces every combination once (PSP section 7). The paper, and the
option `segment=`, call an interval a segment.

A combination is a result when T_max - t_i < W_i for all its rows. So a row at t with window W has its
partners in the master, with window M, at times between t - M and t + W, both excluded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.errors import SettingsError

Ints = NDArray[np.int64]
#: The most intervals to which a row may be copied: input and state grow by this factor.
MOST_COPIES = 64


@dataclass(frozen=True)
class Intervals:
    """Intervals of the master stream, and the rows that are copied to each.

    Example:
        >>> intervals = Intervals(length_us=10, master=0, windows_us=(5, 5))
        >>> [one.tolist() for one in intervals.copies(1, np.array([3, 13, 17]))]
        [[0, 0, 1, 1, 2, 2], [-1, 0, 0, 1, 1, 2]]
        >>> [one.tolist() for one in intervals.copies(0, np.array([3, 13]))]
        [[0, 1], [0, 1]]
    """

    length_us: int
    master: int
    windows_us: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.length_us < 1:
            raise SettingsError(
                "an interval must be positive", hint='for example segment="30 seconds"'
            )

    def copies(self, stream: int, times: Ints) -> tuple[Ints, Ints]:
        """The copies of rows with these times: the row, and the interval of each copy."""
        first, last = self._span(stream, np.asarray(times, np.int64))
        count = last - first + 1
        which = np.repeat(np.arange(len(first)), count)
        within = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        return which, first[which] + within

    def copies_of_each(self, stream: int) -> int:
        """The most intervals that hold a row of a stream."""
        if stream == self.master:
            return 1
        reach = self.windows_us[stream] + self.windows_us[self.master] - 2
        return reach // self.length_us + 2

    def most_copied(self) -> int:
        """The stream whose rows have the most copies."""
        return max(range(len(self.windows_us)), key=self.copies_of_each)

    def shortest_us(self, copies: int = MOST_COPIES) -> int:
        """The shortest interval for which a row has at most `copies` copies (three or more).

        Example:
            >>> intervals = Intervals(length_us=1, master=0, windows_us=(50, 100))
            >>> intervals.copies_of_each(1), intervals.shortest_us(copies=10)
            (150, 17)
            >>> Intervals(17, 0, (50, 100)).copies_of_each(1)
            10
        """
        windows, most = self.windows_us, self.most_copied()
        reach = 0 if most == self.master else windows[most] + windows[self.master] - 2
        return max(1, reach // (copies - 1) + 1)

    def sql(self, stream: int, micros: str) -> str:
        """The intervals of a row as a Spark SQL expression of type array<bigint>, to be exploded."""

        def number(time: str) -> str:
            return f"(({time} - pmod({time}, {self.length_us}L)) div {self.length_us}L)"

        before, after = self._reach(stream)
        first, last = f"({micros} - {before}L)", f"({micros} + {after}L)"
        return f"sequence({number(first)}, {number(last)})"

    def _span(self, stream: int, times: Ints) -> tuple[Ints, Ints]:
        before, after = self._reach(stream)
        return (times - before) // self.length_us, (times + after) // self.length_us

    def _reach(self, stream: int) -> tuple[int, int]:
        if stream == self.master:
            return 0, 0
        return self.windows_us[self.master] - 1, self.windows_us[stream] - 1
