"""Faults that tests place in a slot task, so that failure is exercised where it hurts.

A fault names a point of the task, a batch and a slot, and happens once: the first process to create
its marker file has it. A query without faults carries an empty tuple and pays one comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

#: The points of a slot task where a fault can be placed.
POINTS = ("before-runs", "after-runs", "after-manifest")


@dataclass(frozen=True)
class Fault:
    """One failure at one place."""

    point: str
    batch: int
    slot: int
    marker: str
    #: Kill the process instead of raising.
    kill: bool = False


@dataclass(frozen=True)
class Faults:
    """The faults of a query; none unless a test says so."""

    faults: tuple[Fault, ...] = ()

    def bound(self, batch: int, slot: int) -> Callable[[str], None]:
        """The function the slot task calls at each point."""
        mine = [f for f in self.faults if f.batch == batch and f.slot == slot]

        def reach(point: str) -> None:
            for fault in mine:
                if fault.point == point:
                    _happen(fault)

        return reach


def _happen(fault: Fault) -> None:
    try:
        os.close(os.open(fault.marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if fault.kill:
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError(f"fault placed {fault.point} in batch {fault.batch}, slot {fault.slot}")
