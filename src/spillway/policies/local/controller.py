"""The local controller of a slot, and its victim policies: which groups spill first.

    least-productive   fewest outputs per byte first (DCAPE section 3)
    most-productive    the opposite, for comparison
    largest            most bytes first, like XJoin
    random             a seeded draw
    inactive           longest without a row first, if that is long enough; then the least productive
                       (DCAPE-TR 4.3)

A policy only orders the groups; it does not decide how many go. All are pure: the same statistics
give the same order, also in a replayed batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import Floats, GroupTable, Ints
from spillway.metrics.view import classes_of
from spillway.policies.local.picking import picked
from spillway.policies.local.relocation import movers
from spillway.policies.local.rotation import Rotation
from spillway.policies.local.skew import open_groups
from spillway.slot.controller import ChosenGroups, Turn, Waiting
from spillway.slot.orders import Pick


@dataclass(frozen=True)
class LocalController:
    """The controller of a slot (slot/controller.py): a victim policy and its settings."""

    #: One of `spillway.settings.VICTIMS`.
    name: str = "least-productive"
    #: Whether recent batches weigh more in a group's productivity.
    amortised: bool = False
    #: Batches without a row after which a group is inactive.
    inactive_batches: int = 60
    seed: int = 0

    def victims(
        self, table: GroupTable, wanted_bytes: int, batch: int, below: int | None = None
    ) -> ChosenGroups:
        """Chooses groups in memory in the policy's order, until they have the bytes."""
        order = self._order(table, batch)
        order = order[table.size[order] > 0]
        if below is not None:
            order = order[classes_of(table, amortised=self.amortised)[order] <= below]
        return ChosenGroups(_until(order, table.size, wanted_bytes), self.name)

    def returning(self, table: GroupTable, room_bytes: int, batch: int) -> ChosenGroups:
        """Chooses groups on disk, the last to spill first, as long as they fit."""
        order = self._order(table, batch)[::-1]
        order = order[table.disk_bytes[order] > 0]
        fits = np.cumsum(table.disk_bytes[order]) <= room_bytes
        return ChosenGroups(tuple(order[fits].tolist()), f"last of {self.name}")

    def opened(
        self,
        expected_rows: Floats,
        waiting_rows: Ints,
        since_s: Floats,
        budget_rows: int | None,
        buffer_rows: float,
    ) -> NDArray[np.bool_]:
        """Chooses groups whose rows fit into a budget: see `policies.local.skew`."""
        return open_groups(expected_rows, waiting_rows, since_s, budget_rows, buffer_rows)

    def turn(self, waiting: Waiting, limit_bytes: int, now_s: float, t_gap_s: float) -> Turn:
        """Chooses the next turn in memory: see `policies.local.rotation`."""
        return Rotation(t_gap_s).turn(waiting, limit_bytes, now_s)

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
        """Chooses groups to send: see `policies.local.relocation` and `policies.local.picking`."""
        if pick is not None:
            return picked(table, owned, wanted_bytes, pick)
        return movers(
            table,
            owned,
            wanted_bytes,
            least_groups=least_groups,
            everything=everything,
            amortised=self.amortised,
        )

    def _order(self, table: GroupTable, batch: int) -> Ints:
        """Orders all groups, the first to spill first."""
        return np.lexsort(_KEYS[self.name](self, table, batch)[::-1]).astype(np.int64)


def _least_productive(
    policy: LocalController, table: GroupTable, _: int
) -> tuple[Floats | Ints, ...]:
    # Of groups with equal productivity, the larger ones free memory sooner.
    return table.productivity(amortised=policy.amortised), -table.size


def _most_productive(
    policy: LocalController, table: GroupTable, _: int
) -> tuple[Floats | Ints, ...]:
    return -table.productivity(amortised=policy.amortised), -table.size


def _largest(_: LocalController, table: GroupTable, __: int) -> tuple[Floats | Ints, ...]:
    return (-table.size,)


def _random(policy: LocalController, table: GroupTable, batch: int) -> tuple[Floats | Ints, ...]:
    return (np.random.default_rng([policy.seed, batch]).random(len(table)),)


def _inactive(policy: LocalController, table: GroupTable, batch: int) -> tuple[Floats | Ints, ...]:
    idle = batch - table.last_insert
    waiting = np.where(idle > policy.inactive_batches, idle, 0)
    return (-waiting, *_least_productive(policy, table, batch))


_KEYS: dict[str, Callable[[LocalController, GroupTable, int], tuple[Floats | Ints, ...]]] = {
    "least-productive": _least_productive,
    "most-productive": _most_productive,
    "largest": _largest,
    "random": _random,
    "inactive": _inactive,
}


def _until(order: Ints, sizes: Ints, wanted_bytes: int) -> tuple[int, ...]:
    """Returns the first groups in the order that together have the bytes, at least one."""
    total = np.cumsum(sizes[order])
    count = int(np.searchsorted(total, wanted_bytes)) + 1
    return tuple(order[:count].tolist())
