"""The port of a slot's local controller: what it is asked, and what it answers.

The coordinator says how much memory a slot has. The controller, inside the slot task, sees the
statistics of the slot's groups and chooses among them. `policies/local/controller.py` implements it;
`slot/keeper.py` and `slot/rotation.py` carry out what it chooses.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import Floats, GroupTable, Ints
from spillway.slot.orders import Pick


@dataclass(frozen=True)
class Choice:
    """Groups, in the order they were chosen, and why."""

    groups: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Waiting:
    """The groups of one slot, one entry each in every column."""

    groups: Ints
    state_bytes: Ints
    in_memory: NDArray[np.bool_]
    #: When a group came into memory last; the group that came first leaves first.
    since_s: Floats
    #: Input that waits for a group on disk, and since when.
    spooled_bytes: Ints
    waiting_s: Floats


@dataclass(frozen=True)
class Turn:
    """What is to be done now: groups leave memory, in this order, and then others come in."""

    leave: tuple[int, ...]
    enter: tuple[int, ...]
    reason: str


class Controller(Protocol):
    """Chooses groups from their statistics; pure."""

    def victims(
        self, table: GroupTable, wanted_bytes: int, batch: int, below: int | None = None
    ) -> Choice:
        """Groups to move out of memory, with `wanted_bytes` together or all there are.

        `below` leaves out those of a higher class of productivity (metrics/view.py).
        """
        ...

    def returning(self, table: GroupTable, room_bytes: int, batch: int) -> Choice:
        """Groups with a part on disk to bring back, with at most `room_bytes` on disk."""
        ...

    def opened(
        self,
        expected_rows: Floats,
        waiting_rows: Ints,
        since_s: Floats,
        budget_rows: int | None,
        buffer_rows: float,
    ) -> NDArray[np.bool_]:
        """For each group, whether its rows are processed in this batch; the others wait."""
        ...

    def turn(self, waiting: Waiting, limit_bytes: int, now_s: float, t_gap_s: float) -> Turn:
        """Who leaves memory and who comes, where groups take turns."""
        ...

    def movers(
        self,
        table: GroupTable,
        owned: Collection[int],
        wanted_bytes: int,
        *,
        least_groups: int,
        everything: bool,
        pick: Pick | None = None,
    ) -> Choice:
        """Groups to send to another slot, with about `wanted_bytes`; or all of them; or one."""
        ...
