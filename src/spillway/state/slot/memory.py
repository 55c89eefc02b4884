"""The memory of a slot during one batch: the layers that new rows probe, and their gaps.

Rows arrive as new layers. They leave by a cut, which changes and frees no file: a file stays until
no slice needs it. `trim` rewrites layers whose files have mostly lost their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import Ints
from spillway.routing.routing import group_ranges
from spillway.state.layout.gaps import Gaps, all_gaps, without
from spillway.state.layout.layers import SETTLED, Layer, side_by_side
from spillway.state.layout.shelf import Shelf
from spillway.state.runs.merging import Segment

#: Bytes of removed rows in a layer's files that do not justify a rewrite.
LEAST_WASTE_BYTES = 1 << 16


class Memory:
    """The layers of one slot in memory, and what a batch does to them."""

    def __init__(self, shelf: Shelf, streams: Sequence[Sequence[Layer]], gaps: Gaps) -> None:
        self._shelf = shelf
        #: For each stream, its layers.
        self.layers: list[tuple[Layer, ...]] = [tuple(layers) for layers in streams]
        #: For each made stream, where it is missing.
        self.gaps: Gaps = gaps or ((),) * (len(shelf.layouts) - shelf.inputs)

    def sizes(self) -> tuple[Ints, Ints]:
        """Returns the rows and bytes of each group, for each stream."""
        found = [self._shelf.sizes(stream, layers) for stream, layers in enumerate(self.layers)]
        rows, sizes = (np.stack(column) for column in zip(*found, strict=True))
        return rows, sizes

    def having(self, chosen: Collection[int]) -> list[int]:
        """Returns those of the chosen groups that have rows here, ascending."""
        rows = sum(
            self._shelf.sizes(stream, layers)[0] for stream, layers in enumerate(self.layers)
        )
        return [group for group in sorted(chosen) if int(np.asarray(rows)[group])]

    def add(self, stream: int, layer: Layer) -> list[Segment]:
        """Adds a layer that is newer than the others, and opens it."""
        self.layers[stream] = (*self.layers[stream], layer)
        return self._shelf.open(stream, [layer])

    def put_under(self, stream: int, layer: Layer) -> None:
        """Adds a layer that is older than the others."""
        fitting = replace(layer, level=self._level_for(stream, layer))
        self.layers[stream] = (fitting, *self.layers[stream])

    def add_groups(self, stream: int, layers: Sequence[Layer]) -> None:
        """Adds layers of groups that have no rows here."""
        more = [layer for layer in self._shelf.filled(stream, layers) if layer.slices]
        if len(more) == 1:
            # Sent groups arrive as one layer, which has no level yet.
            more = [replace(more[0], level=self._level_for(stream, more[0]))]
        self.layers[stream] = side_by_side(self.layers[stream], more)

    def cut_out(self, chosen: Collection[int]) -> list[tuple[Layer, ...]]:
        """Removes groups, and returns their layers for each stream."""
        ranges = group_ranges(chosen, self._shelf.groups)
        taken = []
        for stream, layers in enumerate(self.layers):
            inside, self.layers[stream] = self._shelf.parted(stream, layers, ranges)
            taken.append(inside)
        return taken

    def demote(self, chosen: Collection[int], waiting: NDArray[np.bool_]) -> None:
        """Rewrites the rows of groups on disk; new rows still probe them."""
        here = self.having(chosen)
        for stream, layers in enumerate(self.cut_out(here) if here else ()):
            self.add_groups(
                stream, self._shelf.rewrite(stream, layers, here, tier="disk", waiting=waiting)
            )

    def widen(self, gaps: Gaps) -> None:
        """Widens the gaps to include these, and drops the made rows in them."""
        self.gaps = all_gaps([self.gaps, gaps])
        for at, ranges in enumerate(gaps, self._shelf.inputs):
            if ranges:
                _, self.layers[at] = self._shelf.parted(at, self.layers[at], ranges)

    def fill(self, filled: Gaps) -> None:
        """Records that made streams now exist in these ranges."""
        pairs = zip(self.gaps, filled, strict=True)
        self.gaps = tuple(without(old, ranges) for old, ranges in pairs)

    def trim(self, bound_bytes: int, waiting: NDArray[np.bool_]) -> None:
        """Rewrites layers, those with the most removed rows first, until files fit a bound.

        It leaves layers alone that are being merged, since merging frees them. `waiting` marks the
        groups whose rows wait for their results.
        """
        everything = range(self._shelf.groups)
        while self.file_bytes() > bound_bytes:
            wasted = [
                (self._wasted_bytes(stream, layer), stream, at)
                for stream, layers in enumerate(self.layers)
                for at, layer in enumerate(layers)
                if layer.role == SETTLED
            ]
            most, stream, at = max(wasted, default=(0, 0, 0))
            if most <= LEAST_WASTE_BYTES:
                return
            layers = list(self.layers[stream])
            anew = self._shelf.rewrite(
                stream, [layers[at]], everything, tier="memory", waiting=waiting
            )
            layers[at : at + 1] = [replace(one, level=layers[at].level) for one in anew]
            self.layers[stream] = tuple(layers)

    def file_bytes(self) -> int:
        """Returns the bytes of all files in memory, including removed rows."""
        files: dict[str, int] = {}
        for stream, layers in enumerate(self.layers):
            files |= self._shelf.files(stream, layers)
        return sum(files.values())

    def _wasted_bytes(self, stream: int, layer: Layer) -> int:
        """Returns the bytes of removed rows in the layer's files."""
        segments = self._shelf.open(stream, [layer])
        left = sum(segment.rows for segment in segments)
        total = sum(data.rows for data in {segment.data for segment in segments})
        size = sum(self._shelf.files(stream, [layer]).values())
        return size * (total - left) // max(total, 1)

    def _level_for(self, stream: int, layer: Layer) -> int:
        """Returns the level of the smallest layer as large, so that merging keeps its proportions."""
        rows = _described_rows(layer)
        others = self.layers[stream]
        larger = [x.level for x in others if _described_rows(x) >= rows]
        return min(larger, default=max((x.level for x in others), default=0))


def _described_rows(layer: Layer) -> int:
    return sum(piece.run.rows for piece in layer.slices)
