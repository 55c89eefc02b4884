"""Faults that tests place in a slot task or in a move, so that failure is exercised where it hurts.

A fault names a point of the task, a batch and a slot, and happens once: the first process to create
its marker file has it. For a task that sends or receives groups the batch is the number of the move.
A query without faults carries an empty tuple and pays one comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """One failure at one place."""

    #: "before-runs", "after-runs", "after-manifest" in a slot task; "sending", "receiving" in a move.
    point: str
    batch: int
    slot: int
    marker: str
    #: Kill the process instead of raising; or the one that it works for.
    kill: bool = False
    kill_parent: bool = False


@dataclass(frozen=True)
class StepFault:
    """The death of a process at a step of a move; of any move, if none is named.

    The steps are those of the protocol; 9 is when the move is taken back.
    """

    move: int | None
    step: int
    #: "driver", or the executor of the "sender" or the "receiver".
    who: str
    marker: str


@dataclass(frozen=True)
class Faults:
    """The faults of a query; none unless a test says so."""

    faults: tuple[Fault, ...] = ()
    steps: tuple[StepFault, ...] = ()

    def reach_step(self, move: int, step: int, pids: Mapping[str, int]) -> None:
        """Called by the driver at each step, with the processes that could die."""
        for fault in self.steps:
            here = fault.step == step and fault.move in (move, None)
            if here and _first(fault.marker):
                os.kill(pids[fault.who], signal.SIGKILL)

    def bound(self, batch: int, slot: int) -> Callable[[str], None]:
        """The function the slot task calls at each point."""
        mine = [f for f in self.faults if f.batch == batch and f.slot == slot]

        def reach(point: str) -> None:
            for fault in mine:
                if fault.point == point:
                    _happen(fault)

        return reach


def _happen(fault: Fault) -> None:
    if not _first(fault.marker):
        return
    if fault.kill_parent:
        os.kill(executor_pid(), signal.SIGKILL)
    if fault.kill or fault.kill_parent:
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError(f"fault placed {fault.point} in batch {fault.batch}, slot {fault.slot}")


def _first(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def executor_pid() -> int:
    """The process id of the JVM this worker serves: the parent of the daemon that forked it."""
    daemon = os.getppid()
    try:
        return int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError, ValueError):
        return daemon
