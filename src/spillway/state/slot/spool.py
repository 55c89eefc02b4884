"""The spool: rows that wait in a slot for a later batch, unprocessed.

The slot keeps rows of a closed group (slot/admission.py) in stored form, in layers of the disk tier
that no batch probes. When the group opens, they become rows of that batch. Only input waits: the
operator makes its rows (state/layout/gaps.py) later. A `Spool` (state/layout/spool.py) is what a
manifest names; a `Spooler` changes it during one batch.

All waiting rows of a group leave together, before or with newer ones, so its rows keep their order.
No row that they may meet expires meanwhile (`SlotState.expire`).
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
        """The layers of waiting rows for each input stream."""
        return tuple(self._layers)

    @property
    def groups(self) -> NDArray[np.bool_]:
        """Marks the groups with waiting rows."""
        found = np.zeros(self._shelf.groups, np.bool_)
        found[list(self._since_s)] = True
        return found

    @property
    def since_s(self) -> Floats:
        """Since when rows of each group wait; now, for groups without waiting rows."""
        found = np.full(self._shelf.groups, self._now_s)
        found[list(self._since_s)] = list(self._since_s.values())
        return found

    def sizes(self) -> tuple[Ints, Ints]:
        """Returns the waiting rows and bytes of each group."""
        rows, sizes = (np.zeros(self._shelf.groups, np.int64) for _ in range(2))
        for stream, layers in enumerate(self._layers):
            more = self._shelf.sizes(stream, layers)
            rows += more[0]
            sizes += more[1]
        return rows, sizes

    def add(self, stream: int, data: RunData) -> None:
        """Takes sorted rows in their stored form."""
        if data.rows == 0:
            return
        written = self._shelf.write_all(stream, data.batch, tier="disk")
        self._layers[stream] = (*self._layers[stream], Layer(0, written))
        self._new_rows[stream] += data.rows
        rows = np.diff(data.group_starts(group_bounds(self._shelf.groups)))
        for group in np.flatnonzero(rows).tolist():
            self._since_s.setdefault(group, self._now_s)

    def take(self, chosen: Collection[int]) -> list[list[Slice]]:
        """Removes the waiting rows of groups; returns their slices for each stream."""
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
        """Does the merging work of this batch; returns the rows it rewrote."""
        done, waiting = 0, np.ones(self._shelf.groups, np.bool_)
        for stream, layers in enumerate(self._layers):
            merging = Compactor(self._shelf, stream, layers, None, waiting, tier="disk")
            merging.run(self._new_rows[stream])
            self._layers[stream] = merging.layers
            done += merging.merged_rows
        return done

    def spool(self) -> Spool:
        """Returns what the next manifest names."""
        if not self._since_s:
            return Spool()
        rows, sizes = self._shelf.totals([self._layers])
        return Spool(tuple(self._layers), self._since_s, sum(rows), sum(sizes))
