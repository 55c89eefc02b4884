"""State in transit from one slot to another.

A move starts once its rows in transit are processed (FLUX 5.2: acknowledgements follow them) and its
sender's disk is idle. It shares its links and the network with others. The sender pays for taking state
out of the operator. The coordinator gets the protocol's own messages between its commits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.protocols.messages import Received, ReceivePartitions, SendPartitions
from spillway.protocols.move import GroupMove
from spillway_lab.simulator.cluster.cluster import Cluster
from spillway_lab.simulator.host import MANIFEST, Carrier, Transfer


@dataclass
class _Transfer(Transfer):
    #: When the rows in transit will be processed.
    quiet_s: float
    bytes_left: float = 0.0
    begun: bool = False


class Network(Carrier):
    """The moves in transit."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._under_way: dict[int, _Transfer] = {}

    def begin(self, move: GroupMove) -> None:
        """Starts a move whose groups have left their sender."""
        quiet = self._now_s + self._drain_s(move.sender)
        groups = np.array(move.groups, np.int64)
        self._under_way[move.move] = _Transfer(move, groups, self._now_s, quiet)

    def _drain_s(self, sender: int) -> float:
        """How long a slot needs for the rows on its links."""
        scenario = self._cluster.scenario
        at = (self._cluster.slot == sender) & ~self._cluster.stalled
        rows = min(
            float(self._cluster.held[at].sum()), scenario.exchange.link_rows * scenario.slots
        )
        return rows * float(self._cluster.row_wall_s[sender]) + 2 * scenario.machine.latency_s

    def tick(self, now_s: float) -> None:
        """One tick of virtual time, which ends now."""
        super().tick(now_s)
        for one in self._under_way.values():
            if not one.begun and self._ready(one):
                self._extract(one)
        active = [one for one in self._under_way.values() if one.begun]
        scenario = self._cluster.scenario
        for one in active:
            rate = min(
                scenario.machine.link_bytes_per_s, scenario.section_bytes_per_s / len(active)
            )
            one.bytes_left -= rate * scenario.tick_s
            if one.bytes_left <= 0:
                self._finish(one)

    def _ready(self, one: _Transfer) -> bool:
        cluster, sender = self._cluster, one.move.sender
        idle = cluster.disk_left_s[sender] <= 0
        on_disk = cluster.on_disk[one.groups] | (cluster.spooled[one.groups] > 0)
        return bool(self._now_s >= one.quiet_s and idle and not on_disk.any())

    def _extract(self, one: _Transfer) -> None:
        one.begun = True
        cluster = self._cluster
        one.bytes_left = float(cluster.sizes()[one.groups].sum())
        cluster.away[one.groups] = True
        cluster.forget_sums()
        rows = float(cluster.state_rows[one.groups].sum())
        cluster.owed_s[one.move.sender] += rows * cluster.scenario.machine.install_s
        self._say(SendPartitions(one.move.move), one)
        self._say(ReceivePartitions(one.move.move), one)

    def _finish(self, one: _Transfer) -> None:
        size = int(self._cluster.sizes()[one.groups].sum())
        self._say(Received(one.move.move, MANIFEST, size), one)
        del self._under_way[one.move.move]

    def sending(self) -> set[int]:
        """The groups whose state is in transit."""
        return {int(g) for one in self._under_way.values() if one.begun for g in one.groups}
