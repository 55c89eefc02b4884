"""Generations: parts of groups that left memory together.

When a slot is short of memory, it freezes whole groups on the disk tier as a new *generation*.
Later rows of these groups start an empty part in memory (DCAPE section 3). A batch joins its rows
only with rows in memory. So this law holds, and cleanup relies on it:

    the slot has produced a combination of rows if and only if all its rows are in one part,

where a part is one generation of the group, or its rows in memory. Generations have ascending
numbers; memory comes after all of them. Two parts become one only when the results between them are
there (slot/cleanup.py, slot/uniting.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from spillway.routing.routing import HashRange, group_ranges, outside
from spillway.state.layout.gaps import Gaps, all_gaps, gaps_inside
from spillway.state.layout.layers import Layer


@dataclass(frozen=True)
class Generation:
    """The frozen part of some groups."""

    number: int
    #: The groups that have rows here, ascending.
    groups: tuple[int, ...]
    #: For each stream, its layers; all their runs are on the disk tier.
    streams: tuple[tuple[Layer, ...], ...]
    #: Where made streams are missing.
    gaps: Gaps = ()

    def split(
        self, chosen: Collection[int], total: int
    ) -> tuple[Generation | None, Generation | None]:
        """Splits off the chosen groups: returns their part and the rest; None for an empty one."""
        mine = tuple(group for group in self.groups if group in chosen)
        if not mine or len(mine) == len(self.groups):
            return (self, None) if mine else (None, self)
        rest = tuple(group for group in self.groups if group not in chosen)
        ranges = group_ranges(mine, total)
        return self._cut(mine, ranges), self._cut(rest, outside(ranges))

    def _cut(self, groups: tuple[int, ...], ranges: Sequence[HashRange]) -> Generation:
        streams = tuple(cut_layers(layers, ranges) for layers in self.streams)
        return Generation(self.number, groups, streams, gaps_inside(self.gaps, ranges))


def cut_layers(layers: Iterable[Layer], ranges: Sequence[HashRange]) -> tuple[Layer, ...]:
    """Returns the layers inside the ranges, without empty ones."""
    return tuple(cut for layer in layers if (cut := layer.cut(ranges)))


def united(number: int, parts: Sequence[Generation]) -> Generation:
    """Merges several parts into one: correct only if no result between them is missing."""
    stacks = zip(*(part.streams for part in parts), strict=True)
    streams = tuple(tuple(layer for layers in stack for layer in layers) for stack in stacks)
    gaps = all_gaps([part.gaps for part in parts])
    groups = tuple(sorted({group for part in parts for group in part.groups}))
    return Generation(number, groups, outside_gaps(streams, gaps), gaps)


def outside_gaps(
    streams: tuple[tuple[Layer, ...], ...], gaps: Gaps
) -> tuple[tuple[Layer, ...], ...]:
    """Returns the streams without the made rows inside gaps."""
    inputs = len(streams) - len(gaps)
    made = (
        cut_layers(layers, outside(ranges)) if ranges else layers
        for layers, ranges in zip(streams[inputs:], gaps, strict=True)
    )
    return (*streams[:inputs], *made)


def taken_out(
    generations: Iterable[Generation], chosen: Collection[int], total: int
) -> tuple[list[Generation], list[Generation]]:
    """Returns the parts of the chosen groups, oldest first, and the generations without them."""
    parts, rest = [], []
    for generation in generations:
        mine, others = generation.split(chosen, total)
        parts += [mine] if mine else []
        rest += [others] if others else []
    return parts, rest


def by_number(parts: Iterable[Generation]) -> list[Generation]:
    """Merges parts of different groups that have the same number; oldest first."""
    found: dict[int, list[Generation]] = {}
    for part in parts:
        found.setdefault(part.number, []).append(part)
    return [united(number, same) for number, same in sorted(found.items())]


def next_number(generations: Sequence[Generation]) -> int:
    """Returns the number of a new generation: one above the newest."""
    return 1 + max((generation.number for generation in generations), default=-1)
