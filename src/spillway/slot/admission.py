"""Admission: decides at batch start what happens to the new rows of each group (its fate).

    PARK      the group is in transit to this slot: its rows wait for it, by move
    SHADOW    another slot produces the results: a cumulative operator only keeps what it needs
    SPOOL     the group is closed in this batch: its rows wait for a later one (state/slot/spool.py)
    TRACK     two slots serve the group: an additive operator produces results that need an old row
    DEFER     the group has a part on disk: its rows form a younger part, and their results wait
    PROCESS   none of these

The first fate that applies wins. All fates follow from the manifest and the job, before the slot
sees a row. So every attempt and replay of a batch has the same fates, however the exchange cut and
ordered the rows. A row is late or on time when it arrives, not when it is processed.

There are two tables. `arriving` applies to the new rows of the batch. `admitted` applies to rows
already inside: spooled rows, rows that came with a group, and rows that cleanup returned; the slot
processes these even if their group is closed. Only `admitted` has DEFER: a cumulative operator
stages all admitted rows until the batch is complete, and the slot cuts them when they leave
staging. A spill during the batch changes no fate: the slot probes spilled groups until the batch
ends, and `Parts.deferred` counts only generations of earlier batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import Ints
from spillway.operators.cumulative import Cumulative
from spillway.operators.input import rows_inside
from spillway.operators.operator import Operator, Shadowing, Tracking
from spillway.routing.groups import group_bounds
from spillway.routing.routing import HashRange, group_ranges
from spillway.rows.joining import conserve
from spillway.slot.controller import Controller
from spillway.slot.limits import Budget
from spillway.slot.orders import Order, Park, Shadow
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

#: The sorted rows of each stream.
Deltas = Sequence[RunData]
Mask = NDArray[np.bool_]


class Fate(IntEnum):
    """What happens to the rows of a group."""

    PROCESS = 0
    PARK = 1
    SHADOW = 2
    SPOOL = 3
    TRACK = 4
    DEFER = 5


#: Rows by fate; a fate that no group has is missing.
Cut = Mapping[Fate, Deltas]


@dataclass(frozen=True, eq=False)
class Fates:
    """The fate of every group.

    Example:
        >>> fates = Fates.of(4, {Fate.PARK: [0], Fate.SPOOL: [0, 1]})
        >>> [Fate(one).name for one in fates.of_group]
        ['PARK', 'SPOOL', 'PROCESS', 'PROCESS']
    """

    of_group: NDArray[np.int8]

    @classmethod
    def of(cls, groups: int, chosen: dict[Fate, Collection[int]]) -> Fates:
        """Builds fates: the first entry that names a group wins, all other groups are processed."""
        of_group = np.full(groups, Fate.PROCESS, np.int8)
        for fate, some in reversed(chosen.items()):
            of_group[list(some)] = fate
        return cls(of_group)

    @cached_property
    def ranges(self) -> dict[Fate, tuple[HashRange, ...]]:
        """The hash ranges of each fate that at least one group has."""
        return {
            Fate(fate): group_ranges(
                np.flatnonzero(self.of_group == fate).tolist(), len(self.of_group)
            )
            for fate in np.unique(self.of_group).tolist()
        }

    def cut(self, deltas: Deltas) -> Cut:
        """Splits rows by the fate of their groups."""
        if len(self.ranges) == 1:
            return dict.fromkeys(self.ranges, deltas)
        cut = {
            fate: [rows_inside(rows, ranges) for rows in deltas]
            for fate, ranges in self.ranges.items()
        }
        conserve("cutting rows by fate", _rows(deltas), sum(map(_rows, cut.values())))
        return cut

    def any_of(self, *fates: Fate) -> Mask:
        """Marks the groups that have one of the given fates."""
        return np.isin(self.of_group, fates)


def _rows(deltas: Deltas) -> int:
    return sum(rows.rows for rows in deltas)


@dataclass(frozen=True, eq=False)
class Admission:
    """The fates of all groups in one batch of one slot."""

    #: Fates for the new rows of the batch.
    arriving: Fates
    #: Fates for rows that are already inside.
    admitted: Fates
    #: Groups that do not take part in this batch.
    closed: Mask
    #: For each move with parked groups, the hashes of these groups.
    parks: tuple[tuple[int, tuple[HashRange, ...]], ...] = ()

    def brought(self, deltas: Deltas) -> Ints:
        """Counts per group the new rows that this slot must process, now or later."""
        bounds = group_bounds(len(self.closed))
        rows = np.zeros(len(self.closed), np.int64)
        for delta in deltas:
            rows += np.diff(delta.group_starts(bounds))
        rows[self.arriving.any_of(Fate.PARK, Fate.SHADOW)] = 0
        return rows


def admitted_fates(state: SlotState, operator: Operator) -> Fates:
    """Returns the fates of rows that are already inside, from the current state."""
    if isinstance(operator, Cumulative):
        return Fates.of(state.groups, {Fate.DEFER: np.flatnonzero(state.parts.deferred).tolist()})
    tracked = state.tracked if isinstance(operator, Tracking) else ()
    return Fates.of(state.groups, {Fate.TRACK: tracked})


def admission_of(
    state: SlotState, operator: Operator, orders: Iterable[Order], closed: Mask
) -> Admission:
    """Returns the fates of a batch, after the slot has carried out its orders."""
    orders = tuple(orders)
    parks = [order for order in orders if isinstance(order, Park)]
    shadows = [order for order in orders if isinstance(order, Shadow)]
    admitted = admitted_fates(state, operator)
    arriving = Fates.of(
        state.groups,
        {
            Fate.PARK: [group for order in parks for group in order.groups],
            Fate.SHADOW: [group for order in shadows for group in order.groups]
            if isinstance(operator, Shadowing)
            else [],
            Fate.SPOOL: np.flatnonzero(closed).tolist(),
            Fate.TRACK: np.flatnonzero(admitted.any_of(Fate.TRACK)).tolist(),
        },
    )
    ranges = tuple((order.move, group_ranges(order.groups, state.groups)) for order in parks)
    return Admission(arriving, admitted, closed, ranges)


def closed_groups(state: SlotState, controller: Controller, budget: Budget | None) -> Mask:
    """Marks the groups that do not fit into a budget."""
    if budget is None:
        return np.zeros(state.groups, np.bool_)
    known = state.manifest.groups
    incoming = known.incoming if len(known) else np.zeros(state.groups)
    rows, sizes = state.spooler.sizes()
    # Use the row width of waiting rows; if there are none, that of stored input rows.
    held_rows = int(rows.sum()) or int(known.rows[: state.inputs].sum())
    held_bytes = int(sizes.sum()) if rows.any() else int(known.bytes[: state.inputs].sum())
    buffer_rows = budget.buffer_bytes * held_rows / max(held_bytes, 1)
    since_s = state.spooler.since_s
    return ~controller.opened(incoming, rows, since_s, budget.rows, buffer_rows)
