"""A parallel track, at the slot that has the old rows (PLANS 3.1).

When a track begins, two slots get the new rows of its groups. Rows in the sender's state before
that batch are *old*, later rows are *new*, so no row carries a flag. Old rows stay in the probed
layers. An additive operator keeps new rows in layers of the track, because the sender produces only
results that need an old row (slot/intake.py). A cumulative operator keeps both together and still
produces the results; its track is only a time.

An old row counts until the watermark has passed its time plus its window. A combination never
outlives its oldest row (operators/equi/term.py), so one window is enough for a join of any shape.
The windows of PLANS, each between two sides, need two for a tree.

A made row, such as an intermediate state of a join (state/layout/gaps.py), is old if one of its
rows is:

    a made stream has rows made with an old row in memory, and rows made only from new ones in the
    track,

and the two together are complete. The sender keeps its plan, changes it and fills gaps as usual; a
gap applies to both. If the track is given up, both merge, and nothing is recomputed.

A `Track` (state/layout/track.py) is what a manifest names; a `Tracker` changes it during one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from spillway.routing.routing import HashRange, group_ranges
from spillway.state.layout.generations import cut_layers
from spillway.state.layout.layers import Layer
from spillway.state.layout.shelf import Shelf, slices
from spillway.state.layout.track import Track
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData

#: Does the merging work of a batch: takes a stream, its layers, and the number of its new rows.
MergeLayers = Callable[[int, tuple[Layer, ...], int], tuple[Layer, ...]]


class Tracker:
    """The track of one slot during one batch, if any: a slot takes part in one move at a time."""

    def __init__(self, shelf: Shelf, track: Track | None) -> None:
        self._shelf = shelf
        self.track = track
        self._new_rows = [0] * len(shelf.layouts)

    @property
    def ranges(self) -> tuple[HashRange, ...]:
        """The hashes of its groups."""
        return group_ranges(self.track.groups, self._shelf.groups) if self.track else ()

    def begin(
        self, move: int, groups: Collection[int], old: Sequence[Sequence[Sequence[Layer]]]
    ) -> None:
        """Begins a track; `old` has the existing stacks of layers for each input stream."""
        ranges = group_ranges(groups, self._shelf.groups)
        ends = [
            piece.run.max_time + window
            for stream, stacks in enumerate(old)
            if (window := self._shelf.layouts[stream].window_us) is not None
            for layers in stacks
            for piece in slices(self._shelf.filled(stream, cut_layers(layers, ranges)))
            if piece.run.max_time is not None
        ]
        none: tuple[tuple[Layer, ...], ...] = ((),) * len(self._shelf.layouts)
        self.track = Track(move, tuple(sorted(groups)), max(ends, default=None), none)

    def segments(self, stream: int) -> list[Segment]:
        """Returns the new rows of a stream."""
        return self._shelf.open(stream, self.track.streams[stream]) if self.track else []

    def add(self, stream: int, data: RunData) -> list[Segment]:
        """Takes sorted new rows, or rows made only from new rows, and opens them."""
        assert self.track is not None
        layer = Layer(0, self._shelf.write_all(stream, data.batch))
        self._put(stream, (*self.track.streams[stream], layer))
        self._new_rows[stream] += data.rows
        return self._shelf.open(stream, [layer])

    def demote(self) -> None:
        """Rewrites the new rows on disk."""
        if self.track is not None:
            groups = self.track.groups
            for stream, layers in enumerate(self.track.streams):
                if layers:
                    self._put(stream, self._shelf.rewrite(stream, layers, groups, tier="disk"))

    def end_track(self) -> tuple[tuple[Layer, ...], ...]:
        """Ends the track; returns the layers of its new rows for each stream."""
        streams = self.track.streams if self.track else ()
        self.track = None
        return streams

    def expire(self, stream: int, left: Callable[[Sequence[Layer]], tuple[Layer, ...]]) -> None:
        """Keeps what is left of the new rows of a stream."""
        if self.track is not None:
            self._put(stream, left(self.track.streams[stream]))

    def compact(self, merge: MergeLayers) -> None:
        """Does the merging work of this batch."""
        for stream, layers in enumerate(self.track.streams if self.track else ()):
            self._put(stream, merge(stream, layers, self._new_rows[stream]))

    def _put(self, stream: int, layers: tuple[Layer, ...]) -> None:
        assert self.track is not None
        streams = list(self.track.streams)
        streams[stream] = layers
        self.track = replace(self.track, streams=tuple(streams))
