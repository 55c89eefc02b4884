"""Does the merging work of one batch for one stream.

`state/layout/compaction.py` decides which layers to merge and how much a batch may do. This module
does it with the rows of a shelf. Sources lose hash ranges from the left while the target gains
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.ids import HASH_END
from spillway.routing.routing import HashRange
from spillway.rows import bounds
from spillway.rows.joining import conserve
from spillway.state.layout.compaction import (
    Merge,
    begin_merges,
    due_rows,
    finish_merges,
    fuel_rows,
    merges,
)
from spillway.state.layout.layers import Layer
from spillway.state.layout.shelf import Shelf
from spillway.state.runs.merging import alive, below, cut_for
from spillway.state.runs.run import Slice


@dataclass
class Compactor:
    """Merges the layers of one stream, with a bounded number of rows."""

    shelf: Shelf
    stream: int
    layers: tuple[Layer, ...]
    #: The merge drops rows up to this time; None: it keeps all.
    bound: int | None
    #: For each group, whether its rows still wait for results; None: no rows wait.
    waiting: NDArray[np.bool_] | None = None
    #: The tier of the layers.
    tier: str = "memory"
    #: Rows rewritten, and rows dropped.
    merged_rows: int = 0
    expired_rows: int = 0

    def run(self, delta_rows: int) -> None:
        """Does the merging work of a batch with `delta_rows` new rows."""
        layout = self.shelf.layouts[self.stream]
        combining = layout.combine is not None
        window = None if layout.made else layout.narrow_us or layout.window_us
        self.layers = begin_merges(self.layers, window, combining=combining)
        fuel = fuel_rows(delta_rows, combining=combining)
        batches = self.shelf.batches + self.stream
        for merge in merges(self.layers):
            rows = due_rows(merge, self.layers, fuel, batches)
            self.merged_rows += self._advance(merge, rows, delta_rows)
        self.layers = finish_merges(self.layers)

    def _advance(self, merge: Merge, fuel: int, delta_rows: int) -> int:
        """Continues one merge; returns the rows it took."""
        taken = size = 0
        # A step takes most of the remaining fuel; the last quarter would make a tiny file. More
        # rows than the batch brought are for tiny files too, so one step of wide rows is enough.
        while fuel - taken > fuel // 4 and (taken < delta_rows or size < bounds.STEP_BYTES):
            step = self._merge_lowest(merge.sources, merge.target, fuel - taken)
            if step == (0, 0):
                break
            taken, size = taken + step[0], size + step[1]
        return taken

    def _merge_lowest(self, sources: Sequence[int], target: int, fuel: int) -> tuple[int, int]:
        """Moves the lowest hashes of the sources, about `fuel` rows, into the target.

        Returns their rows and bytes.
        """
        layers = list(self.layers)
        pieces = [self.shelf.segment(self.stream, p) for at in sources for p in layers[at].slices]
        pieces = [p for p in pieces if p.begin < p.end]
        if not pieces:
            for at in sources:
                layers[at] = replace(layers[at], slices=())
            self.layers = tuple(layers)
            return 0, 0
        cut = cut_for(pieces, fuel)
        low = HashRange(layers[target].slices[-1].range.hi if layers[target].slices else 0, cut)
        taken = [
            s.data.batch.slice(begin, end - begin)
            for s in pieces
            for begin, end in [below(s, cut)]
            if begin < end
        ]
        written = self._merge(taken, low)
        layers[target] = replace(layers[target], slices=(*layers[target].slices, *written))
        rest = HashRange(cut, HASH_END)
        for at in sources:
            left = tuple(part for p in layers[at].slices if (part := p.cut(rest)))
            layers[at] = replace(layers[at], slices=left if cut < HASH_END else ())
        self.layers = tuple(layers)
        rows = sum(batch.num_rows for batch in taken)
        still = (p for at in sources for p in layers[at].slices)
        left_rows = sum(self.shelf.segment(self.stream, p).rows for p in still)
        conserve("merging layers", sum(p.rows for p in pieces), rows + left_rows)
        return rows, sum(batch.nbytes for batch in taken)

    def _merge(self, taken: Sequence[pa.RecordBatch], low: HashRange) -> tuple[Slice, ...]:
        """Writes the merged rows that still count."""
        merged = self.shelf.merged(self.stream, taken, self.waiting)
        return self.shelf.write_each(self.stream, map(self._still_alive, merged), low, self.tier)

    def _still_alive(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        column = self.shelf.layouts[self.stream].time_column
        if self.bound is None or column is None:
            return rows
        left = alive(rows, column, self.bound)
        self.expired_rows += rows.num_rows - left.num_rows
        return left
