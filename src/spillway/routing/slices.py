"""Slices: places in time that are groups.

A time-sliced join (PSP) has no key, so `_h` of its rows is no hash but a *place in time*: the times of
a stream are cut into buckets of one width, the buckets go round the groups, and the lower part of `_h`
says where in its bucket a time lies:

    bucket = floor(t / width)      group = bucket mod groups      _h = start of the group + offset

So a slice is a group: contiguous in every sorted run, and routed, spilled, moved and expired as groups
are. Places ascend with time and begin again after a *period* of width times groups, so a range of
times is a range of places that may go round the end. Times a period apart share a place; a place is
where to look, and the times decide.

The width is each stream's own: what is live of it covers about half of the groups (PSP section 3:
boundaries per stream). Where rows are stored several times (CTR), the groups are as many *planes* of
equal size, and copy k of a slice is a group of plane k.

Known limitation: offsets have at most 32 bits less those of the group. With 256 groups and a window of
more than half an hour or so a place is wider than a microsecond; ranges are then a little too wide.
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
    """For each range of times, the places [first, last] in one plane; round the end if first > last."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    #: Ranges so long that they are anywhere in the plane.
    everywhere: NDArray[np.bool_]


@dataclass(frozen=True)
class Slicing:
    """How the times of each stream are places.

    Example:
        >>> slicing = Slicing((10,), groups=4)
        >>> group_of(slicing.places(0, np.array([0, 9, 10, 39, 40, -1])), 4).tolist()
        [0, 0, 1, 3, 0, 3]
    """

    #: For each stream, microseconds of a slice.
    widths_us: tuple[int, ...]
    groups: int
    #: How often each row is stored.
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
        """How far apart times of one place are."""
        return self.widths_us[stream] * self.slices

    def shift(self, stream: int) -> int:
        """Bits of an offset that do not fit into a place."""
        return max(0, (self.widths_us[stream] - 1).bit_length() - _span(self.groups))

    def places(self, stream: int, times: Times, copy: int = 0) -> Places:
        """Where times of a stream are, in one of the planes."""
        bucket, offset = np.divmod(np.asarray(times, np.int64), self.widths_us[stream])
        group = bucket % self.slices + copy * self.slices
        starts = group_bounds(self.groups)
        places: Places = (starts[group] + (offset >> self.shift(stream))).astype(np.uint32)
        return places

    def copied(self, places: Places, copy: int) -> Places:
        """The same places in another plane than the first."""
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
        """Where the times from `first` to `last`, both included, are."""
        # A range that ends in the bucket it began in, a period later, is taken as all of it.
        everywhere = last - first >= self.period_us(stream) - self.widths_us[stream]
        low, high = (self.places(stream, edge, copy).astype(np.int64) for edge in (first, last))
        return PlaceRanges(low, high, everywhere)

    def unaliased(self, stream: int, span_us: int) -> bool:
        """Whether times so far apart at most have places of their own, and ranges of them too."""
        return self.shift(stream) == 0 and span_us < self.period_us(stream) - self.widths_us[stream]

    def over(self, stream: int, bound_us: int, newest_us: int) -> tuple[HashRange, ...]:
        """Places at which all rows of a stream up to `newest_us` are no newer than `bound_us`.

        Times a period apart share a place. So these are the places of the times behind the bound, as
        far back as no row that is newer than the bound has come round to.

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
            # The place of the bound itself may have newer rows, that of the other edge older ones.
            pairs = [(low, high)] if low <= high else [(plane[0], high), (low, plane[1])]
            found += [HashRange(lo, hi) for lo, hi in pairs if lo < hi]
        return tuple(found)

    def sql(self, stream: int, micros: str) -> str:
        """The slice of a time, which is its group in the first plane, as a Spark SQL expression.

        `micros` is an expression for the microseconds since 1970, of type bigint, as this is.
        """
        width = self.widths_us[stream]
        return f"pmod(({micros} - pmod({micros}, {width}L)) div {width}L, {self.slices}L)"


def slicing_for(
    windows_us: Sequence[int], lateness_us: Sequence[int], groups: int, copies: int = 1
) -> Slicing:
    """A slicing under which what is live of each stream covers half of the groups.

    Example:
        >>> slicing_for([10_000_000], [2_000_000], groups=64).widths_us
        (375000,)
    """
    live = [window + late for window, late in zip(windows_us, lateness_us, strict=True)]
    slices = max(1, groups // copies)
    return Slicing(tuple(max(1, -(-2 * one // slices)) for one in live), groups, copies)


def interleaved(groups: int, slots: int, copies: int = 1) -> tuple[int, ...]:
    """A table from group to slot in which the slices go round the slots, each copy in another slot.

    Example:
        >>> interleaved(8, 2, copies=2)
        (0, 1, 0, 1, 1, 0, 1, 0)
    """
    slices = groups // copies
    return tuple((one + k) % slots for k in range(copies) for one in range(slices))


def _span(groups: int) -> int:
    """Bits of an offset in the smallest group."""
    return (HASH_END // groups).bit_length() - 1
