"""State on its way from one slot to another.

A move is sent when its rows on the way have been processed (FLUX 5.2: acknowledgements follow them) and
its sender's disk is idle. It then gets its share of the links and of the whole network. The sender pays
for taking the state out of the operator. The protocol's own messages report it to the coordinator,
between commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from spillway.metrics.groups import Ints
from spillway.protocols.messages import Message, Received, ReceivePartitions, SendPartitions
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.relocation import Relocation
from spillway_lab.simulator.cluster.cluster import Cluster

#: The manifest name of a received part, since the simulator has no manifests.
PART = "simulated"


@dataclass
class Transfer:
    """A move that is being sent."""

    move: GroupMove
    groups: Ints
    #: When the last message about it was sent.
    since_s: float


class Carrier:
    """The messages about moves on their way."""

    def __init__(self) -> None:
        self._said: list[tuple[Message, float]] = []

    def said(self) -> list[tuple[Message, float]]:
        """The messages since the last call, and how long each move took."""
        found, self._said = self._said, []
        return found

    def _say(self, message: Message, one: Transfer, now_s: float) -> None:
        self._said.append((message, now_s - one.since_s))
        one.since_s = now_s


@dataclass
class _Transfer(Transfer):
    #: When the rows on their way will have been processed.
    quiet_s: float
    bytes_left: float = 0.0
    begun: bool = False


class Network(Carrier):
    """The moves that are being sent."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._under_way: dict[int, _Transfer] = {}

    def begin(self, moves: Iterable[GroupMove], now_s: float) -> None:
        """Starts moves that are ready to be sent, each once."""
        for move in moves:
            sent = isinstance(move, Relocation) and move.phase is Phase.SENDING
            if sent and move.move not in self._under_way:
                quiet = now_s + self._drain_s(move.sender)
                groups = np.array(move.groups, np.int64)
                self._under_way[move.move] = _Transfer(move, groups, now_s, quiet)

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
        for one in self._under_way.values():
            if not one.begun and self._ready(one, now_s):
                self._extract(one, now_s)
        active = [one for one in self._under_way.values() if one.begun]
        scenario = self._cluster.scenario
        for one in active:
            rate = min(
                scenario.machine.link_bytes_per_s, scenario.section_bytes_per_s / len(active)
            )
            one.bytes_left -= rate * scenario.tick_s
            if one.bytes_left <= 0:
                self._arrived(one, now_s)

    def _ready(self, one: _Transfer, now_s: float) -> bool:
        cluster, sender = self._cluster, one.move.sender
        idle = cluster.disk_left_s[sender] <= 0
        on_disk = cluster.on_disk[one.groups] | (cluster.spooled[one.groups] > 0)
        return bool(now_s >= one.quiet_s and idle and not on_disk.any())

    def _extract(self, one: _Transfer, now_s: float) -> None:
        one.begun = True
        cluster = self._cluster
        one.bytes_left = float(cluster.sizes()[one.groups].sum())
        cluster.away[one.groups] = True
        cluster.changed()
        rows = float(cluster.state_rows[one.groups].sum())
        cluster.owed_s[one.move.sender] += rows * cluster.scenario.machine.install_s
        self._say(SendPartitions(one.move.move), one, now_s)
        self._say(ReceivePartitions(one.move.move), one, now_s)

    def _arrived(self, one: _Transfer, now_s: float) -> None:
        size = int(self._cluster.sizes()[one.groups].sum())
        self._say(Received(one.move.move, PART, size), one, now_s)
        del self._under_way[one.move.move]

    def sending(self) -> set[int]:
        """The groups whose state is between two slots."""
        return {int(g) for one in self._under_way.values() if one.begun for g in one.groups}
