"""The port of a slot's local controller: its questions and its answers.

The coordinator decides how much memory a slot has. The controller runs inside the slot task, reads
the statistics of the slot's groups and chooses among them. `policies/local/controller.py`
implements it; `slot/keeper.py` and `slot/rotation.py` carry out its choices.
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
class ChosenGroups:
    """Groups, in the order chosen, and the reason."""

    groups: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Waiting:
    """The groups of one slot, with one entry per group in every column."""

    groups: Ints
    state_bytes: Ints
    in_memory: NDArray[np.bool_]
    #: When a group last entered memory; the first to enter leaves first.
    since_s: Floats
    #: Input that waits for a group on disk, and since when.
    spooled_bytes: Ints
    waiting_s: Floats


@dataclass(frozen=True)
class Turn:
    """What to do now: groups that leave memory, in this order, then groups that enter."""

    leave: tuple[int, ...]
    enter: tuple[int, ...]
    reason: str


class Controller(Protocol):
    """Chooses groups from their statistics; a pure function."""

    def victims(
        self, table: GroupTable, wanted_bytes: int, batch: int, below: int | None = None
    ) -> ChosenGroups:
        """Chooses groups to spill, with `wanted_bytes` together, or all groups.

        `below` excludes groups of a higher productivity class (metrics/view.py).
        """
        ...

    def returning(self, table: GroupTable, room_bytes: int, batch: int) -> ChosenGroups:
        """Chooses groups with a part on disk to load, with at most `room_bytes` on disk."""
        ...

    def opened(
        self,
        expected_rows: Floats,
        waiting_rows: Ints,
        since_s: Floats,
        budget_rows: int | None,
        buffer_rows: float,
    ) -> NDArray[np.bool_]:
        """Marks the groups that the slot processes in this batch; the others wait."""
        ...

    def turn(self, waiting: Waiting, limit_bytes: int, now_s: float, t_gap_s: float) -> Turn:
        """Chooses which groups leave and enter memory, when groups rotate."""
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
    ) -> ChosenGroups:
        """Chooses groups to move: about `wanted_bytes`, or all, or one."""
        ...
