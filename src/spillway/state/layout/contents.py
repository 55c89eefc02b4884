"""What one layer holds, counted once: layers do not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spillway.state.layout.layers import Layer
from spillway.state.runs.merging import Segment


class Contents:
    """The rows and bytes of one layer. It keeps the layer, so that its identity stays unique."""

    def __init__(
        self, layer: Layer, segments: Sequence[Segment], bounds: NDArray[np.int64]
    ) -> None:
        self.layer = layer
        self._segments = segments
        self._bounds = bounds

    @cached_property
    def rows(self) -> int:
        """All rows."""
        return sum(segment.rows for segment in self._segments)

    @cached_property
    def _bytes(self) -> Counter[str]:
        sizes: Counter[str] = Counter()
        for piece, segment in zip(self.layer.slices, self._segments, strict=True):
            sizes[piece.run.tier] += segment.bytes
        return sizes

    def bytes_in(self, tier: str) -> int:
        """The bytes in a tier; of all tiers for an empty name."""
        return self._bytes[tier] if tier else self._bytes.total()

    @cached_property
    def files(self) -> dict[str, int]:
        """The bytes of each file, with rows outside the layer; an excerpt is a part of its run."""
        pieces = zip(self.layer.slices, self._segments, strict=True)
        return {p.run.name: p.run.size_bytes * s.data.rows // max(p.run.rows, 1) for p, s in pieces}

    @cached_property
    def by_group(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows and bytes of each group."""
        groups = len(self._bounds) - 1
        rows, sizes = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        for s in self._segments:
            more = s.data.group_sizes(self._bounds, s.begin, s.end)
            rows += more[0]
            sizes += more[1]
        return rows, sizes
