"""What slots do at their disks: groups leave memory when it is short.

One piece of work at a time, and the slot does nothing else meanwhile (FLUX 6.3). Which groups leave is
for the policies; here is how long it takes and what it does to the arrays.

*generations* (DCAPE): a part of what is in memory leaves it at once, as `spillway.operators.control`
has it, and the groups go on with an empty part. Not while groups of the slot are on their way.

Known limitation: in this mode nothing comes back, and missing results are not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from spillway.metrics.events import Event, ForceSpilled, Spilled
from spillway.operators.orders import Force
from spillway.simulator.cluster import Cluster
from spillway.simulator.control import Control


@dataclass
class _Work:
    """What a disk does, and what is to be done when it is done."""

    until_done: Callable[[], None]


class Disks:
    """The disks of all slots."""

    def __init__(self, cluster: Cluster, control: Control) -> None:
        self._cluster = cluster
        self._control = control
        self._at_work: dict[int, _Work] = {}
        self._spills = control.rules.strategy.spills

    def busy(self) -> set[int]:
        """The slots that are at their disks."""
        return set(self._at_work)

    def force(self, forces: Iterable[tuple[int, Force]]) -> None:
        """Spills that the coordinator wants."""
        for slot, order in forces:
            self._spill(slot, ForceSpilled, order.bytes, order.reason, order.below)

    def end(self) -> None:
        """Ends what is done."""
        done = [s for s in self._at_work if self._cluster.disk_left_s[s] <= 0]
        for slot in done:
            self._at_work.pop(slot).until_done()

    def begin(self, now_s: float) -> None:
        """Begins what is due."""
        cluster = self._cluster
        if not self._spills:
            return
        limits = cluster.limits(now_s)
        relocating = self._control.relocating
        for slot in np.flatnonzero(cluster.memory_bytes > limits).tolist():
            if slot not in self._at_work and slot not in relocating:
                self._over(slot, int(cluster.memory_bytes[slot]), int(limits[slot]))

    def _over(self, slot: int, held: int, limit: int) -> None:
        fraction = self._control.rules.strategy.spill_fraction
        wanted = max(int(held * fraction), held - limit)
        self._spill(slot, Spilled, wanted, f"{held} bytes in memory, limit {limit}", None)

    def _spill(
        self, slot: int, kind: type[Event], wanted: int, why: str, below: int | None
    ) -> None:
        cluster, control = self._cluster, self._control
        table = control.statistics(slot)
        choice = control.controller.victims(table, wanted, control.batch, below)
        groups = list(choice.groups)
        if not groups:
            return
        size = int(table.size[groups].sum())
        seconds = self._seconds(size, 1)
        cluster.disk_left_s[slot] += seconds
        event = kind(
            control.batch, slot, tuple(sorted(groups)), size, round(seconds, 6),
            f"{why}: {choice.reason}",
        )  # fmt: skip

        def done() -> None:
            cluster.disk_rows[groups] += cluster.state_rows[groups]
            cluster.state_rows[groups] = 0.0
            cluster.changed()
            control.happened(event, moved_out=groups)

        self._at_work[slot] = _Work(done)

    def _seconds(self, size: int, seeks: int) -> float:
        machine = self._cluster.scenario.machine
        return size / machine.disk_bytes_per_s + seeks * machine.seek_s
