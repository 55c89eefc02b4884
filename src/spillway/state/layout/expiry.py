"""Expiry of one stream: rows that can no longer find a partner.

A slice expires when all its rows have expired. A part of it expires when the order of rows shows
that its rows have (routing/slices.py). Expiry changes no file; merging removes single expired rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway.routing.routing import HashRange, outside
from spillway.state.layout.compaction import finish_merges
from spillway.state.layout.gaps import Ranges, either
from spillway.state.layout.layers import Layer
from spillway.state.layout.shelf import Shelf, StreamLayout
from spillway.state.runs.run import Slice


@dataclass
class Expiry:
    """Drops the expired rows of one stream."""

    shelf: Shelf
    stream: int
    #: Rows up to this time have expired.
    bound: int
    #: Ranges in which all rows are kept.
    kept: Sequence[HashRange] = ()
    #: Rows dropped.
    rows: int = 0

    def expire_probed(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """Returns what is left of layers that compaction merges."""
        return finish_merges(self._without_over(layers))

    def expire_frozen(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """Returns what is left of layers that never change."""
        return tuple(layer for layer in self._without_over(layers) if layer.slices)

    def _without_over(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        result = []
        for layer in layers:
            left: list[Slice] = []
            for piece in layer.slices:
                live = self._live(piece)
                if live is None:
                    left.append(piece)
                    continue
                saved = [part for one in either(self.kept, live) if (part := piece.cut(one))]
                if saved == [piece]:
                    left.append(piece)
                    continue
                self.rows += self._rows([piece]) - self._rows(saved)
                left += saved
            result.append(replace(layer, slices=tuple(left)))
        return tuple(result)

    def _live(self, piece: Slice) -> Ranges | None:
        """Returns where a slice may have rows newer than the bound; None: anywhere."""
        if is_over(piece, self.bound):
            return ()
        over, newest = self.shelf.layouts[self.stream].over, piece.run.max_time
        oldest = piece.run.min_time
        if over is None or newest is None or oldest is None or oldest > self.bound:
            return None
        return outside(over(self.bound, newest))

    def _rows(self, pieces: Sequence[Slice]) -> int:
        return sum(self.shelf.segment(self.stream, piece).rows for piece in pieces)


def bound_of(layout: StreamLayout, watermark_us: int | None) -> int | None:
    """Returns the time up to which rows find no partner any more; None: all rows may."""
    window = layout.window_us
    return None if window is None or watermark_us is None else watermark_us - window


def due_bound(layout: StreamLayout, watermark_us: int | None) -> int | None:
    """Returns the time up to which rows expire or are decided, whichever is sooner; None: no row."""
    after = layout.decided_after_us
    if after is None or watermark_us is None:
        return bound_of(layout, watermark_us)
    return watermark_us - after


def is_over(piece: Slice, bound: int) -> bool:
    """Whether all rows of a slice have expired."""
    return piece.run.max_time is not None and piece.run.max_time <= bound
