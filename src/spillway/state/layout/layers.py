"""Layers: how the slices of a stream are stacked.

A layer is an ascending list of slices with rows in disjoint hash ranges, so a hash is in at most
one run per layer; only the rows of a hash that are too many for one run (rows/bounds.py) are in
several. A layer is `settled`, or the `source` or the growing `target` of a merge that
runs over several batches. The sources lose hash ranges from the left while the target gains them,
so the two never hold the same row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spillway.routing.routing import HashRange
from spillway.state.runs.run import Slice

SETTLED, SOURCE, TARGET = "settled", "source", "target"


@dataclass(frozen=True)
class Layer:
    """Slices, ascending by hash range, with rows in disjoint ranges."""

    level: int
    slices: tuple[Slice, ...]
    role: str = SETTLED

    def cut(self, ranges: Sequence[HashRange]) -> Layer | None:
        """Returns the part of the layer inside the ranges, or None if it is empty.

        A cut cancels a merge in progress. Sources and target hold different rows, so as settled
        layers they are the same state; the next compaction begins the merge again.
        """
        parts = [part for piece in self.slices for within in ranges if (part := piece.cut(within))]
        return Layer(self.level, _ascending(parts)) if parts else None

    def next_to(self, other: Layer) -> Layer:
        """Joins both into one layer; this one has no row in the ranges of the other."""
        return replace(self, slices=_ascending([*self.slices, *other.slices]))


def side_by_side(stack: Sequence[Layer], more: Sequence[Layer]) -> tuple[Layer, ...]:
    """Joins two stacks, oldest layer first; the first has no row in the ranges of the second.

    Layers of one level go side by side, newest with newest. So the number of lookups per hash does
    not grow with the number of stacks. Each stack keeps its order.
    """
    result, before = list(stack), len(stack)
    for layer in reversed(more):
        alike = (
            at
            for at in reversed(range(before))
            if result[at].level == layer.level and result[at].role == SETTLED
        )
        if (found := next(alike, None)) is None:
            result.insert(before, layer)
        else:
            result[found], before = result[found].next_to(layer), found
    return tuple(result)


def _ascending(slices: Iterable[Slice]) -> tuple[Slice, ...]:
    return tuple(sorted(slices, key=lambda piece: piece.range.lo))
