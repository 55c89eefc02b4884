"""Which groups a slot serves in a batch that exceeds its capacity: FLUX's transient skew buffer.

In the paper (section 4) a producer buffers the rows of a slow consumer. Here a batch ends when its
slowest slot ends. So a slot has a budget of rows; rows of groups beyond it wait in the slot, on
disk, for a later batch.

The slot serves groups in the arrival order of their rows, each with all its rows. A group too large
for the rest of the budget lets smaller ones pass, and is the first of a later batch. So no group
waits forever, and its rows keep their order. When the buffer is full, the slot exceeds the budget:
that slows the input down, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import Floats, Ints
from spillway.metrics.record import SlotRecord
from spillway.slot.limits import Budget

#: Weight of the newest batch in the average: a change of speed shows after one or two batches.
_NEWEST = 0.5
#: Limit of a slot's time relative to the median slot, if no time is given.
_BEYOND_OTHERS = 1.5


@dataclass(frozen=True)
class SlotPace:
    """Averages of one slot over recent batches."""

    #: Rows that it processes per second, and rows per batch.
    rows_per_s: float
    brought_rows: float

    @property
    def seconds(self) -> float:
        """Its work time for the rows of a batch."""
        return self.brought_rows / self.rows_per_s

    def blended(self, newer: SlotPace) -> SlotPace:
        """Returns the average with a newer batch."""
        return SlotPace(
            self.rows_per_s * (1 - _NEWEST) + newer.rows_per_s * _NEWEST,
            self.brought_rows * (1 - _NEWEST) + newer.brought_rows * _NEWEST,
        )


@dataclass(frozen=True)
class Skew:
    """How much each slot may process in a batch, from earlier batches."""

    #: Bytes of rows that may wait in each slot.
    buffer_bytes: int
    #: Seconds that a slot may work in a batch; None: 1.5 × the median slot.
    target_s: float | None = None
    #: The slots that have processed rows, and the backlog of each slot.
    paces: Mapping[int, SlotPace] = field(default_factory=dict)
    waiting_rows: Mapping[int, int] = field(default_factory=dict)

    def observed(self, records: Mapping[int, SlotRecord], *, is_round: bool = False) -> Skew:
        """Returns the skew after a batch, or after a round, which does not change the pace."""
        waiting = {slot: record.spooled_rows for slot, record in records.items()}
        if is_round:
            return replace(self, waiting_rows=waiting)
        paces = {slot: known for slot, known in self.paces.items() if slot in records}
        for slot, record in records.items():
            if record.processed_rows and record.busy_s > 0:
                speed = record.processed_rows / record.busy_s
                seen = SlotPace(speed, record.brought_rows)
                paces[slot] = paces[slot].blended(seen) if slot in paces else seen
        return replace(self, paces=paces, waiting_rows=waiting)

    def budgets(self) -> dict[int, Budget]:
        """Returns the slots with more rows than they can process in time, and their budgets.

        Example:
            >>> slow, fast = SlotPace(100.0, 900.0), SlotPace(1000.0, 900.0)
            >>> Skew(1 << 20, paces={0: slow, 1: fast, 2: fast}).budgets()
            {0: Budget(rows=135, buffer_bytes=1048576)}
        """
        target_s = self._target_s()
        allowed = {slot: int(pace.rows_per_s * target_s) for slot, pace in self.paces.items()}
        return {
            slot: Budget(rows, self.buffer_bytes)
            for slot, rows in allowed.items()
            if self.paces[slot].brought_rows + self.waiting_rows.get(slot, 0) > rows
        }

    def _target_s(self) -> float:
        if self.target_s is not None or not self.paces:
            return self.target_s or 0.0
        # The lower median: of two slots, the slower one does not set the limit.
        seconds = sorted(pace.seconds for pace in self.paces.values())
        return _BEYOND_OTHERS * seconds[(len(seconds) - 1) // 2]


def open_groups(
    expected_rows: Floats,
    waiting_rows: Ints,
    since_s: Floats,
    budget_rows: int | None,
    buffer_rows: float,
) -> NDArray[np.bool_]:
    """Marks the groups whose rows, waiting and new, the slot processes in this batch.

    Args:
        expected_rows: Estimated rows of each group in the batch.
        waiting_rows: Rows of each group that wait.
        since_s: Since when they wait.
        budget_rows: Rows that the batch may process; None: no limit.
        buffer_rows: Rows that may wait afterwards.

    Example:
        >>> open_groups(np.array([5.0, 5.0, 1.0]), np.array([0, 9, 0]), np.zeros(3), 15, 100).tolist()
        [False, True, True]
    """
    if budget_rows is None:
        return np.ones(len(expected_rows), np.bool_)
    waits = waiting_rows > 0
    # Among groups without waiting rows, serve the smallest first, so that most groups are served.
    first_come = np.where(waits, since_s, np.inf)
    order = np.lexsort((np.where(waits, 0.0, expected_rows), first_come))
    rows = (waiting_rows + expected_rows)[order]
    served = np.cumsum(rows)
    within = int(np.searchsorted(served, budget_rows, side="right"))
    left_over = served[-1] - served if len(served) else served
    # The first position from which the rest fits into the buffer.
    fitting = int(np.searchsorted(-left_over, -buffer_rows, side="left")) + 1
    count = max(within, int(waits.any()), fitting if served[-1:].sum() > buffer_rows else 0)
    opened = np.zeros(len(rows), np.bool_)
    opened[order[:count]] = True
    # A group too large for the rest of the budget does not block smaller ones: it is among the
    # first of the next batch.
    room = budget_rows - float(rows[:count].sum())
    for place in (count + np.flatnonzero(rows[count:] <= room)).tolist():
        if rows[place] <= room:
            opened[order[place]] = True
            room -= rows[place]
    return opened
