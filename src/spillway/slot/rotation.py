"""Rotation: groups take turns in memory (FLUX section 6.1).

With generations (slot/keeper.py), a slot processes new rows of a spilled group at once, and results
are missing. With rotation, a spilled group is closed (slot/admission.py): its rows wait on disk with
its state until its turn. Results come late, but none is missing, and no group has two parts.

Turns start at batch start, from the manifest and the clock in the plan. If memory fills during the
batch, the groups that entered first leave. The slot probes them on disk until the batch ends, so
results do not depend on when they left.

A group has several parts only after a run with generations. At its turn, the slot produces its
missing results.

Known limitation: a group larger than the limit is still in memory during its turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.metrics.events import Reloaded, Spilled
from spillway.slot.controller import Turn, Waiting
from spillway.slot.keeper import MemoryKeeper
from spillway.slot.limits import ENDLESS
from spillway.slot.meter import Watch


class RotationKeeper(MemoryKeeper):
    """Keeps one slot's state within its limits by rotation."""

    def _make_room(self, held: int, limit: int) -> None:
        # Rows for groups that left in this batch have no turn now.
        self._state.parts.follow()
        if self._state.held_bytes() > limit:
            self._unite(self._movable(()).rows)
        held = self._state.held_bytes()
        turn = self._next(limit)
        # A group that is alone in memory stays, and no group enters in the middle of a batch.
        if held > limit and not turn.enter:
            self._move_out(turn)

    def _bring_back(self) -> Iterator[pa.RecordBatch]:
        self._unite_on_disk()
        limit = self._limits.memory_bytes or ENDLESS
        # A group that came with rows stays for them: they are rows of this batch.
        staged = set(np.flatnonzero(self._state.staging.groups).tolist())
        turn = self._next(limit, staged)
        if turn.leave and not turn.enter:
            self._move_out(turn)
            self._state.parts.seal()
            turn = self._next(limit, staged)
        self._move_out(turn)
        self._state.parts.seal()
        # A cumulative operator would give the results of a group that was just cleaned up twice.
        enter = [group for group in turn.enter if group not in self._cleaned_up]
        yield from self._move_in(enter, turn.reason)

    def _next(self, limit: int, staying: Collection[int] = ()) -> Turn:
        table = self._movable(staying)
        fixed = self._state.held_bytes() - int(table.size.sum())
        on_disk = table.disk_rows > 0
        groups = np.flatnonzero(on_disk | (table.rows.sum(axis=0) > 0))
        spooler = self._state.spooler
        waiting = Waiting(
            groups,
            (table.size + table.disk_bytes)[groups],
            ~on_disk[groups],
            table.since_s[groups],
            spooler.sizes()[1][groups],
            spooler.since_s[groups],
        )
        room = max(1, limit - max(0, fixed))
        return self._controller.turn(waiting, room, self._state.now_s, self._limits.t_gap_s or 0.0)

    def _move_out(self, turn: Turn) -> None:
        if not turn.leave:
            return
        watch = Watch()
        size = int(self._state.table().size[list(turn.leave)].sum())
        with watch:
            self._state.parts.spill(turn.leave)
        self._note(Spilled, turn.leave, size, watch, turn.reason)

    def _move_in(self, groups: Sequence[int], reason: str) -> Iterator[pa.RecordBatch]:
        missing = sorted(set(groups) & self._state.parts.pending)
        yield from self._clean(missing, float("inf"), reason, to_memory=True)
        whole = sorted(set(groups) - set(missing))
        if whole:
            watch = Watch()
            size = int(self._table.disk_bytes[whole].sum())
            with watch:
                self._state.parts.settle(whole, in_memory=True)
            self._note(Reloaded, whole, size, watch, reason)

    def _unite_on_disk(self) -> None:
        """Spills the rows in memory of groups that have a part on disk, at the start of a batch."""
        self._unite(self._state.table().rows)
        self._state.parts.seal()

    def _unite(self, rows: NDArray[np.int64]) -> None:
        """Spills groups that have rows in memory (`rows` by stream and group) and a part on disk."""
        groups = np.flatnonzero((rows.sum(axis=0) > 0) & self._state.parts.deferred).tolist()
        if groups:
            self._state.parts.spill(groups)
