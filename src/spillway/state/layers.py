"""Layers: how the slices of a stream are stacked.

A layer is a list of slices whose hash ranges are disjoint and ascending, so a hash is looked up in at
most one run per layer. A layer is `settled`, or the `source` or the growing `target` of a merge that
is spread over batches: the sources lose hash ranges from the left while the target gains them, so the
two never hold the same row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spillway.routing.routing import HashRange
from spillway.state.run import Slice

SETTLED, SOURCE, TARGET = "settled", "source", "target"


@dataclass(frozen=True)
class Layer:
    """Slices with disjoint, ascending hash ranges."""

    level: int
    slices: tuple[Slice, ...]
    role: str = SETTLED

    def cut(self, ranges: Sequence[HashRange]) -> Layer | None:
        """The part of the layer inside the ranges, or None if nothing is left.

        A merge under way is given up by a cut: sources and target hold different rows, so as settled
        layers they are the same state, and the next compaction begins the merge again.
        """
        parts = [part for piece in self.slices for within in ranges if (part := piece.cut(within))]
        parts.sort(key=lambda part: part.range.lo)
        return Layer(self.level, tuple(parts)) if parts else None
