"""Layers: how the slices of a stream are stacked.

A layer is a list of slices, ascending, of which no two have rows in the same hash range, so that a hash
is found in at most one run per layer. A layer is `settled`, or the `source` or the growing `target` of a
merge that is spread over batches: the sources lose hash ranges from the left while the target gains
them, so the two never hold the same row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spillway.routing.routing import HashRange
from spillway.state.runs.run import Slice

SETTLED, SOURCE, TARGET = "settled", "source", "target"


@dataclass(frozen=True)
class Layer:
    """Slices, ascending by hash range, whose rows are in disjoint ranges."""

    level: int
    slices: tuple[Slice, ...]
    role: str = SETTLED

    def cut(self, ranges: Sequence[HashRange]) -> Layer | None:
        """The part of the layer inside the ranges, or None if nothing is left.

        A merge under way is given up by a cut: sources and target hold different rows, so as settled
        layers they are the same state, and the next compaction begins the merge again.
        """
        parts = [part for piece in self.slices for within in ranges if (part := piece.cut(within))]
        return Layer(self.level, _ascending(parts)) if parts else None

    def beside(self, other: Layer) -> Layer:
        """Both as one layer; this one has no row in the ranges of the other."""
        return replace(self, slices=_ascending([*self.slices, *other.slices]))


def side_by_side(stack: Sequence[Layer], more: Sequence[Layer]) -> tuple[Layer, ...]:
    """Two stacks, oldest layer first, as one; the first has no row in the ranges of the second.

    Layers of one level are laid side by side, newest with newest, so that the number of lookups for a
    hash does not grow with the number of stacks. Each stack keeps its order.
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
            result[found], before = result[found].beside(layer), found
    return tuple(result)


def _ascending(slices: Iterable[Slice]) -> tuple[Slice, ...]:
    return tuple(sorted(slices, key=lambda piece: piece.range.lo))
