"""A parallel track, at the slot that has the old rows (PLANS 3.1).

From the batch on in which a track begins, two slots get the new rows of its groups. *Old* is what the
sender's state had before that batch, *new* what came since: a batch boundary tells them apart, so no row
carries a flag. The old rows stay where they are, in the layers that are probed; the new rows of an
additive operator are kept apart, in layers of the track, because the sender makes only what needs
an old row (slot/intake.py). A cumulative operator goes on to answer for the groups, and keeps old
and new together; its track is only a time.

An old row counts until the watermark has passed its time and its window. A combination stands as long
as all its rows do (operators/equi/term.py), so none outlives its oldest row, and one window is enough
for a join of any shape, where the windows of PLANS, between two sides each, need two for a tree.

What an operator makes of rows, the intermediate states of a join say (state/layout/gaps.py), is old if
one of its rows is, so that nothing of it carries a flag either:

    a made stream has in memory what is made with an old row, and in the track what is made of new ones,

and the two are all that it should have. The sender keeps its plan, changes it, and fills its gaps as
ever; a gap is one of both. If the track is given up, both are one again, and nothing is made anew.

A `Track` (state/layout/track.py) is what a manifest names of this, a `Tracker` changes it during one
batch.
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

#: A batch's share of merging: of a stream, its layers, and how many rows are new of it.
Merge = Callable[[int, tuple[Layer, ...], int], tuple[Layer, ...]]


class Tracker:
    """The track of one slot during one batch, if it has one: it takes part in one move at a time."""

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
        """Begins a track; `old` has for each input stream the stacks of layers that there are."""
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
        """The new rows of a stream."""
        return self._shelf.opened(stream, self.track.streams[stream]) if self.track else []

    def add(self, stream: int, data: RunData) -> Segment:
        """Takes sorted new rows, or such that are made of new rows alone, and opens them."""
        assert self.track is not None
        piece = self._shelf.write(stream, data.batch)
        self._put(stream, (*self.track.streams[stream], Layer(0, (piece,))))
        self._new_rows[stream] += data.rows
        return self._shelf.segment(stream, piece)

    def end_track(self) -> tuple[tuple[Layer, ...], ...]:
        """Ends the track: for each stream, the layers of its new rows."""
        streams = self.track.streams if self.track else ()
        self.track = None
        return streams

    def expire(self, stream: int, left: Callable[[Sequence[Layer]], tuple[Layer, ...]]) -> None:
        """Keeps what is left of the new rows of a stream."""
        if self.track is not None:
            self._put(stream, left(self.track.streams[stream]))

    def compact(self, merged: Merge) -> None:
        """Does this batch's share of merging."""
        for stream, layers in enumerate(self.track.streams if self.track else ()):
            self._put(stream, merged(stream, layers, self._new_rows[stream]))

    def _put(self, stream: int, layers: tuple[Layer, ...]) -> None:
        assert self.track is not None
        streams = list(self.track.streams)
        streams[stream] = layers
        self.track = replace(self.track, streams=tuple(streams))
