"""State of simulated joins in transit from one slot to another.

The sender first processes its rows of the groups; then the link carries their state, and the receiver
makes the states that its shape needs and the sender's lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.protocols.messages import Received, ReceivePartitions, SendPartitions
from spillway.protocols.move import GroupMove
from spillway_lab.simulator.host import MANIFEST, Carrier, Transfer
from spillway_lab.simulator.join.joining import Joining


@dataclass
class _Transfer(Transfer):
    #: Bytes on the link; None before the sender has processed its rows of the groups.
    bytes_left: float | None = None
    arrived: bool = False


class Shipping(Carrier):
    """The moves that are being sent: processed at the sender, carried, and made at the receiver."""

    def __init__(self, joining: Joining) -> None:
        super().__init__()
        self._joining = joining
        self._under_way: dict[int, _Transfer] = {}

    def begin(self, move: GroupMove) -> None:
        """Starts a move whose groups have left their sender."""
        groups = np.array(move.groups, np.int64)
        self._under_way[move.move] = _Transfer(move, groups, self._now_s)

    def tick(self, now_s: float) -> None:
        """One tick of virtual time, which ends now."""
        super().tick(now_s)
        joining, scenario = self._joining, self._joining.scenario
        for one in list(self._under_way.values()):
            if one.bytes_left is None:
                if (joining.at[one.groups] >= joining.until[one.groups] - 1e-6).all():
                    one.bytes_left = float(joining.bytes(one.groups).sum())
                    self._pay(one, one.move.sender)
                    self._say(SendPartitions(one.move.move), one)
                    self._say(ReceivePartitions(one.move.move), one)
            elif not one.arrived:
                one.bytes_left -= scenario.link_bytes_per_s * scenario.tick_s
                if one.bytes_left <= 0:
                    one.arrived = True
                    self._pay(one, one.move.receiver)
                    joining.owed[one.move.receiver] += joining.lacking(
                        one.groups, one.move.receiver
                    )
            elif joining.owed[one.move.receiver] <= 0:
                size = int(joining.bytes(one.groups).sum())
                self._say(Received(one.move.move, MANIFEST, size), one)
                del self._under_way[one.move.move]

    def _pay(self, one: _Transfer, slot: int) -> None:
        rows = float(self._joining.stored(one.groups).sum())
        self._joining.owed[slot] += rows * self._joining.scenario.ship_work
