"""Which groups take part in a batch, and what becomes of the rows of the others.

A group is *open* or *closed* for a whole batch. New rows of a closed group are spooled as they come
(state/slot/spool.py). An open group with waiting rows has them processed in this batch, before its new
rows or with them. Who is closed is for the policies to say, at the start of the batch, from the
manifest and the job alone: every attempt at the batch, and every replay, has the same groups closed,
however the exchange has cut and ordered the rows.

Rows are late or not when they come, whenever they are processed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import Ints
from spillway.operators.intake import Deltas, Intake, rows_inside
from spillway.routing.groups import group_bounds
from spillway.routing.routing import group_ranges, outside
from spillway.slot.control import Controller
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState


@dataclass(frozen=True)
class Budget:
    """What a slot that is slower than the others is told for one batch."""

    #: Rows to process, in the form in which they are kept.
    rows: int
    #: Bytes that may wait. It is compared with what is expected to wait when the batch ends: more rows
    #: than usual in one batch may exceed it by as much.
    buffer_bytes: int


class Gate:
    """Keeps the rows of closed groups out of one batch of one slot."""

    def __init__(self, state: SlotState, closed: NDArray[np.bool_]) -> None:
        self._state = state
        self._closed = closed
        self._ranges = group_ranges(np.flatnonzero(closed).tolist(), state.groups)

    def drained(self, intake: Intake) -> Iterator[Deltas]:
        """The rows that waited for groups that are open now."""
        waiting = self._state.spooler.groups & ~self._closed
        yield from intake.waited(np.flatnonzero(waiting).tolist())

    def admitted(self, deltas: Sequence[RunData]) -> tuple[RunData, ...]:
        """New rows without those of closed groups, which are kept for later."""
        for delta in deltas:
            self._state.news.brought += _by_group(delta, self._state.groups)
        if not self._ranges:
            return tuple(deltas)
        for stream, delta in enumerate(deltas):
            self._state.spooler.add(stream, rows_inside(delta, self._ranges))
        kept = outside(self._ranges)
        return tuple(rows_inside(delta, kept) for delta in deltas)


def closed_groups(
    state: SlotState, controller: Controller, budget: Budget | None
) -> NDArray[np.bool_]:
    """The groups that do not fit into a budget."""
    if budget is None:
        return np.zeros(state.groups, np.bool_)
    known = state.manifest.groups
    incoming = known.incoming if len(known) else np.zeros(state.groups)
    rows, sizes = state.spooler.sizes()
    # As wide as those that wait, or else as those of the input that are kept.
    held_rows = int(rows.sum()) or int(known.rows[: state.inputs].sum())
    held_bytes = int(sizes.sum()) if rows.any() else int(known.bytes[: state.inputs].sum())
    buffer_rows = budget.buffer_bytes * held_rows / max(held_bytes, 1)
    since_s = state.spooler.since_s
    return ~controller.opened(incoming, rows, since_s, budget.rows, buffer_rows)


def _by_group(rows: RunData, groups: int) -> Ints:
    return np.diff(rows.group_starts(group_bounds(groups)))
