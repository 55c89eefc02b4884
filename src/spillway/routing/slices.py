"""Slices: places in time that are groups.

A time-sliced join (PSP) has no key, so `_h` of its rows is not a hash but a *place in time*. Buckets of
one width divide the time of a stream and go round the groups; the lower bits of `_h` are the offset of
a time in its bucket:

    bucket = floor(t / width)      group = bucket mod groups      _h = start of the group + offset

So a slice is a group: contiguous in every sorted run, and routed, spilled, moved and expired like one.
Places ascend with time and start again after a *period* of width times groups, so a range of times is a
range of places that may wrap around. Times a period apart share a place; places only tell where to look.

Each stream has its own width, with which its live rows cover about half of the groups (PSP section 3:
boundaries per stream). If rows are stored several times (CTR), each copy has a *plane* of groups of
equal size, and copy k of a slice is a group of plane k.

Known limitation: an offset has 32 bits less those of the group. With 256 groups and a window of more
than about half an hour a place is wider than a microsecond, and ranges are slightly too wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spillway.errors import SettingsError
from spillway.ids import HASH_END
from spillway.routing.groups import group_bounds, group_of
from spillway.routing.routing import HashRange

Times = NDArray[np.int64]
Places = NDArray[np.uint32]


class PlaceRanges(NamedTuple):
    """For each range of times, the places [first, last] in one plane; they wrap if first > last."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    #: Ranges that are so long that they cover the whole plane.
    everywhere: NDArray[np.bool_]


@dataclass(frozen=True)
class Slicing:
    """How the times of each stream become places.

    Example:
        >>> slicing = Slicing((10,), groups=4)
        >>> group_of(slicing.places(0, np.array([0, 9, 10, 39, 40, -1])), 4).tolist()
        [0, 0, 1, 3, 0, 3]
    """

    #: For each stream, microseconds of a slice.
    widths_us: tuple[int, ...]
    groups: int
    #: How many times each row is stored.
    copies: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.copies <= self.groups or self.groups % self.copies:
            raise SettingsError(
                f"{self.groups} groups cannot hold {self.copies} copies of every slice",
                hint="use a number of groups that is a multiple of the copies",
            )

    @property
    def slices(self) -> int:
        """Groups of one plane."""
        return self.groups // self.copies

    def period_us(self, stream: int) -> int:
        """The distance of times that share a place."""
        return self.widths_us[stream] * self.slices

    def shift(self, stream: int) -> int:
        """Bits of an offset for which a place has no room."""
        return max(0, (self.widths_us[stream] - 1).bit_length() - _span(self.groups))

    def places(self, stream: int, times: Times, copy: int = 0) -> Places:
        """The places of a stream's times in one of the planes."""
        bucket, offset = np.divmod(np.asarray(times, np.int64), self.widths_us[stream])
        group = bucket % self.slices + copy * self.slices
        starts = group_bounds(self.groups)
        places: Places = (starts[group] + (offset >> self.shift(stream))).astype(np.uint32)
        return places

    def copied(self, places: Places, copy: int) -> Places:
        """The same places in another plane."""
        starts, group = group_bounds(self.groups), group_of(places, self.groups)
        there = starts[group + copy * self.slices] - starts[group]
        return (places.astype(np.int64) + there).astype(np.uint32)

    @property
    def beyond_first(self) -> tuple[HashRange, ...]:
        """The places of all planes but the first.

        Example:
            >>> [(one.lo >> 30, one.hi >> 30) for one in Slicing((10,), 4, copies=2).beyond_first]
            [(2, 4)]
        """
        begin = int(group_bounds(self.groups)[self.slices])
        return (HashRange(begin, HASH_END),) if begin < HASH_END else ()

    def ranges(self, stream: int, first: Times, last: Times, copy: int = 0) -> PlaceRanges:
        """The places of the times from `first` to `last`, both included."""
        # A range that ends in the bucket where it began, a period later, covers everything.
        everywhere = last - first >= self.period_us(stream) - self.widths_us[stream]
        low, high = (self.places(stream, edge, copy).astype(np.int64) for edge in (first, last))
        return PlaceRanges(low, high, everywhere)

    def unaliased(self, stream: int, span_us: int) -> bool:
        """Whether times at most this far apart have places of their own, and so have their ranges."""
        return self.shift(stream) == 0 and span_us < self.period_us(stream) - self.widths_us[stream]

    def over(self, stream: int, bound_us: int, newest_us: int) -> tuple[HashRange, ...]:
        """Places at which all rows of a stream up to `newest_us` are at most as new as `bound_us`.

        Times a period apart share a place. So these are the places of the times before the bound, back
        to where rows newer than the bound have wrapped around.

        Example:
            >>> slicing = Slicing((1 << 30,), groups=4)
            >>> [(one.lo >> 30, one.hi >> 30) for one in slicing.over(0, (5 << 30), (6 << 30))]
            [(0, 1), (3, 4)]
        """
        period = self.period_us(stream)
        back = max(newest_us, bound_us) - period + self.widths_us[stream]
        edges = np.array([back, bound_us], np.int64)
        if back >= bound_us:
            return ()
        bounds = group_bounds(self.groups)
        found: list[HashRange] = []
        for copy in range(self.copies):
            low, high = self.places(stream, edges, copy).astype(np.int64).tolist()
            plane = (int(bounds[copy * self.slices]), int(bounds[(copy + 1) * self.slices]))
            # The place of the bound itself may hold newer rows, that of the other edge older ones.
            pairs = [(low, high)] if low <= high else [(plane[0], high), (low, plane[1])]
            found += [HashRange(lo, hi) for lo, hi in pairs if lo < hi]
        return tuple(found)

    def sql(self, stream: int, micros: str) -> str:
        """The slice of a time, its group in the first plane, as a Spark SQL expression.

        `micros` is an expression for the microseconds since 1970; both are of type bigint.
        """
        width = self.widths_us[stream]
        return f"pmod(({micros} - pmod({micros}, {width}L)) div {width}L, {self.slices}L)"


def slicing_for(
    windows_us: Sequence[int], lateness_us: Sequence[int], groups: int, copies: int = 1
) -> Slicing:
    """A slicing under which the live rows of each stream cover half of the groups.

    Example:
        >>> slicing_for([10_000_000], [2_000_000], groups=64).widths_us
        (375000,)
    """
    live = [window + late for window, late in zip(windows_us, lateness_us, strict=True)]
    slices = max(1, groups // copies)
    return Slicing(tuple(max(1, -(-2 * one // slices)) for one in live), groups, copies)


def interleaved(groups: int, slots: int, copies: int = 1) -> tuple[int, ...]:
    """A table from group to slot: slices go round the slots, and each copy is in another slot.

    Example:
        >>> interleaved(8, 2, copies=2)
        (0, 1, 0, 1, 1, 0, 1, 0)
    """
    slices = groups // copies
    return tuple((one + k) % slots for k in range(copies) for one in range(slices))


def _span(groups: int) -> int:
    """Bits of an offset in the smallest group."""
    return (HASH_END // groups).bit_length() - 1
