"""Groups take turns in memory: rotation through disk (FLUX section 6.1).

Where groups leave memory in generations (slot/keeper.py) their next rows are processed at once,
and results are missing. Here a group that has left is closed (slot/admission.py): its rows wait, as its
state does, on disk, until it has its turn and all of them are processed. So results come late, but none
is missing, and no group is in two parts.

Turns are given at the start of a batch, from the manifest and the clock in the plan. If memory fills
later in the batch, the groups that came first leave; until the batch ends they are probed where they
went, as in the other mode, so that its results do not depend on when that was.

Groups in several parts come from a start with the other mode. Such a group is wholly on disk until its
turn, and then its missing results are made.

Known limitation: a group that alone has more than the limit is in memory for its turn nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from spillway.metrics.events import Reloaded, Spilled
from spillway.slot.controller import Turn, Waiting
from spillway.slot.keeper import MemoryKeeper
from spillway.slot.limits import ENDLESS
from spillway.slot.meter import Watch


class RotationKeeper(MemoryKeeper):
    """Keeps one slot's state within its limits by turns."""

    def _make_room(self, held: int, limit: int) -> None:
        # What came for groups that have left in this batch has no turn any more.
        self._state.parts.follow()
        held = self._state.memory.held_bytes()
        turn = self._next(limit)
        # A group that is alone in memory stays, and nobody comes in the middle of a batch.
        if held > limit and not turn.enter:
            self._move_out(turn)

    def _bring_back(self) -> Iterator[pa.RecordBatch]:
        self._unite_on_disk()
        limit = self._limits.memory_bytes or ENDLESS
        turn = self._next(limit)
        if turn.leave and not turn.enter:
            self._move_out(turn)
            self._state.parts.seal()
            turn = self._next(limit)
        self._move_out(turn)
        self._state.parts.seal()
        # Of a group whose results were just made, a cumulative operator would give results twice.
        enter = [group for group in turn.enter if group not in self._cleaned_up]
        yield from self._move_in(enter, turn.reason)

    def _next(self, limit: int) -> Turn:
        table = self._state.table()
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
        return self._controller.turn(waiting, limit, self._state.now_s, self._limits.t_gap_s or 0.0)

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
        """Moves what groups with a part on disk have in memory there, too."""
        rows, deferred = self._state.table().rows.sum(axis=0), self._state.parts.deferred
        self._state.parts.spill(np.flatnonzero((rows > 0) & deferred).tolist())
        self._state.parts.seal()
