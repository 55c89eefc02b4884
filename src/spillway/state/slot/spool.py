"""The spool: rows that wait in a slot for a later batch, unprocessed.

Rows of a group that is closed (slot/admission.py) are kept as they come, in the form in which state is
kept, in layers of the disk tier that no batch probes. When the group is opened, its waiting rows become
rows of that batch. What waits is input: what an operator makes of rows (state/layout/gaps.py) it makes
when they are processed. A `Spool` (state/layout/spool.py) is what a manifest names of this, a `Spooler`
changes it during one batch.

A group's waiting rows are taken out all together, before or with newer ones, so the order of its rows is
kept; and nothing of what they may meet in the state expires while they wait (`SlotState.expire`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import Floats, Ints
from spillway.routing.groups import group_bounds
from spillway.routing.routing import group_ranges
from spillway.state.layout.compactor import Compactor
from spillway.state.layout.layers import Layer
from spillway.state.layout.shelf import Shelf, slices
from spillway.state.layout.spool import Spool
from spillway.state.runs.run import RunData, Slice


class Spooler:
    """The spool of one slot during one batch."""

    def __init__(self, shelf: Shelf, spool: Spool, now_s: float) -> None:
        self._shelf = shelf
        self._now_s = now_s
        self._layers = list(spool.streams) or [()] * shelf.inputs
        self._since_s = dict(spool.since_s)
        self._new_rows = [0] * shelf.inputs

    @property
    def streams(self) -> tuple[tuple[Layer, ...], ...]:
        """For each input stream, the layers of what waits."""
        return tuple(self._layers)

    @property
    def groups(self) -> NDArray[np.bool_]:
        """For each group, whether rows of it wait."""
        found = np.zeros(self._shelf.groups, np.bool_)
        found[list(self._since_s)] = True
        return found

    @property
    def since_s(self) -> Floats:
        """For each group, since when rows of it wait; now, where none do."""
        found = np.full(self._shelf.groups, self._now_s)
        found[list(self._since_s)] = list(self._since_s.values())
        return found

    def sizes(self) -> tuple[Ints, Ints]:
        """Rows and bytes of each group that wait."""
        rows, sizes = (np.zeros(self._shelf.groups, np.int64) for _ in range(2))
        for stream, layers in enumerate(self._layers):
            more = self._shelf.sizes(stream, layers)
            rows += more[0]
            sizes += more[1]
        return rows, sizes

    def add(self, stream: int, data: RunData) -> None:
        """Takes sorted rows, in the form in which they are kept."""
        if data.rows == 0:
            return
        piece = self._shelf.write(stream, data.batch, tier="disk")
        self._layers[stream] = (*self._layers[stream], Layer(0, (piece,)))
        self._new_rows[stream] += data.rows
        rows = np.diff(data.group_starts(group_bounds(self._shelf.groups)))
        for group in np.flatnonzero(rows).tolist():
            self._since_s.setdefault(group, self._now_s)

    def take(self, chosen: Collection[int]) -> list[list[Slice]]:
        """Takes the waiting rows of groups out: for each stream, where they are."""
        mine = set(chosen) & set(self._since_s)
        found: list[list[Slice]] = [[] for _ in self._layers]
        if not mine:
            return found
        ranges = group_ranges(mine, self._shelf.groups)
        for stream, layers in enumerate(self._layers):
            inside, self._layers[stream] = self._shelf.parted(stream, layers, ranges)
            found[stream] = slices(inside)
        for group in mine:
            del self._since_s[group]
        return found

    def compact(self) -> int:
        """Does this batch's share of merging; returns the rows it rewrote."""
        done, waiting = 0, np.ones(self._shelf.groups, np.bool_)
        for stream, layers in enumerate(self._layers):
            merging = Compactor(self._shelf, stream, layers, None, waiting, tier="disk")
            merging.run(self._new_rows[stream])
            self._layers[stream] = merging.layers
            done += merging.merged_rows
        return done

    def spool(self) -> Spool:
        """What the next manifest names."""
        if not self._since_s:
            return Spool()
        rows, sizes = self._shelf.totals([self._layers])
        return Spool(tuple(self._layers), self._since_s, sum(rows), sum(sizes))
