"""The flow of rows in one tick: what the sources can give, and what the slots do with it.

Rows are a fluid. The sources act as one: they give as many rows as there is room for, spread over the
groups by share. A slot serves its waiting rows in proportion; it writes rows of groups on disk for
later, and rows of groups in transit wait.

Room follows FLUX sections 2.3 and 4. In an exchange every slot has its own queues, and the first full
one stops the sources: head-of-line blocking. With a skew buffer, excess rows of all slots share one
buffer, which stops the sources when it is full.

Giving and serving are simultaneous, so a tick may be longer than queues last. Giving more never
leaves more room, so bisection finds how much can be given.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel
from spillway.metrics.groups import Floats, Ints

Flags = NDArray[np.bool_]

#: Halvings of the amount given: a relative error of 1e-15.
_HALVINGS = 50

#: The columns of `waiting`, by slot: rows and seconds of work that wait to be served, and rows of
#: groups in transit; then the expected values of the same for one more row.
ROWS, WORK, STUCK, MORE_ROWS, MORE_WORK, MORE_STUCK = range(6)


class Groups(NamedTuple):
    """By group: its slot, its share, and its rows in each place; changed in place."""

    slot: Ints
    share: Floats
    #: Rows that wait before the slot, and whether the slot may not serve them now.
    held: Floats
    stalled: Flags
    #: Whether the slot writes its rows to disk for later, those rows, and the sum of their times.
    on_disk: Flags
    spooled: Floats
    spool_moment: Floats
    #: Rows processed since this was last set to 0, and rows of state.
    done: Floats
    state_rows: Floats


@kernel
def waiting(groups: Groups, row_cost: Floats, spool_cost: Floats) -> Any:
    """What waits for each slot, and what one more row would add; see the columns above."""
    slot, share, held = groups.slot, groups.share, groups.held
    stalled, on_disk = groups.stalled, groups.on_disk
    table = np.zeros((6, row_cost.shape[0]))
    for g in range(slot.shape[0]):
        s = slot[g]
        if stalled[g]:
            table[STUCK, s] += held[g]
            table[MORE_STUCK, s] += share[g]
        else:
            cost = spool_cost[s] if on_disk[g] else row_cost[s]
            table[ROWS, s] += held[g]
            table[WORK, s] += held[g] * cost
            table[MORE_ROWS, s] += share[g]
            table[MORE_WORK, s] += share[g] * cost
    return table


@kernel
def left_after(table: Floats, s: int, given: float, time_s: float) -> float:
    """Rows that a slot has not served at the end of a tick, if all slots get this many."""
    rows = table[ROWS, s] + given * table[MORE_ROWS, s]
    work = table[WORK, s] + given * table[MORE_WORK, s]
    return 0.0 if work <= time_s else rows * (1.0 - time_s / work)


@kernel
def fits(
    table: Floats, given: float, time_s: Floats, link: float, room: float, shared: bool
) -> bool:
    """Whether there is room for this many rows: in each slot, or in the buffer that all share."""
    excess = 0.0
    for s in range(time_s.shape[0]):
        left = left_after(table, s, given, time_s[s])
        stuck = table[STUCK, s] + given * table[MORE_STUCK, s]
        if shared:
            excess += stuck + max(0.0, left - link)
            if excess > room:
                return False
        elif left + stuck > link + room:
            return False
    return True


@kernel
def admitted(
    table: Floats, most: float, time_s: Floats, link: float, room: float, shared: bool
) -> float:
    """The most rows that the sources can give in a tick, up to `most`.

    Args:
        table: The result of `waiting`.
        most: What the sources have.
        time_s: Processor seconds of each slot.
        link: Room for rows in transit to a slot.
        room: Room for rows that wait for each slot, or for all slots if `shared`.
        shared: Whether there is a skew buffer.
    """
    if fits(table, most, time_s, link, room, shared):
        return most
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if fits(table, middle, time_s, link, room, shared):
            low = middle
        else:
            high = middle
    return low


@kernel
def serve(groups: Groups, part: Floats, given: float, now_s: float, history: float) -> Any:
    """Gives rows to the groups and lets each slot serve its part of what waits, in place.

    State grows with the rows processed, up to `history` rows of a group. Returns the rows that each
    slot processed and wrote.
    """
    processed, written = np.zeros(part.shape[0]), np.zeros(part.shape[0])
    held = groups.held
    for g in range(held.shape[0]):
        s = groups.slot[g]
        held[g] += given * groups.share[g]
        if groups.stalled[g]:
            continue
        rows = held[g] * part[s]
        held[g] -= rows
        if groups.on_disk[g]:
            groups.spooled[g] += rows
            groups.spool_moment[g] += rows * now_s
            written[s] += rows
        else:
            groups.done[g] += rows
            groups.state_rows[g] = min(history, groups.state_rows[g] + rows)
            processed[s] += rows
    return processed, written
