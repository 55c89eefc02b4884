"""Faults that tests place in a query, to exercise recovery where it is hardest.

    Fault         a point of a slot task: it raises, or its worker or executor dies
    StepFault     a step of a move: the driver or an executor dies
    CommitFault   the commit of a batch: the driver raises or dies
    Faults        all of these for one query, and behaviour that is always on

A fault happens once: the process that creates its marker file triggers it, so a restarted query
passes the same point unharmed. Faults that share a marker happen once together. They are plain data,
which slot tasks carry to other processes; a query without faults pays one comparison. Users get them
from `spillway.testing` and place them with `writer.faults(...)`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from spillway.errors import SettingsError

#: The points of a slot task where a fault can be placed.
POINTS = ("before-runs", "after-runs", "after-manifest", "receiving")
#: The points of a commit: before and after the log record is written.
COMMIT_POINTS = ("before-commit", "after-commit")
#: The processes that can die at a step of a move.
PROCESSES = ("driver", "sender", "receiver")
#: The steps of a move that a query reaches (DCAPE-TR 5.1); 9: the move is rolled back.
STEPS = range(1, 10)


@dataclass(frozen=True)
class Fault:
    """One failure at a point of a slot task.

    Example:
        >>> Fault("after-runs", batch=3, slot=1, marker="happened").kill
        False
    """

    #: One of `POINTS`.
    point: str
    #: The batch; for the point "receiving", the number of the move.
    batch: int
    slot: int
    #: The file that says that the fault has happened; all processes of the query must see it.
    marker: str
    #: Kill the worker process instead of raising; or also the executor that it works for.
    kill: bool = False
    kill_parent: bool = False

    def __post_init__(self) -> None:
        _one_of("point of a slot task", self.point, POINTS)


@dataclass(frozen=True)
class StepFault:
    """The death of a process at a step of a move."""

    #: The number of the move; None: any.
    move: int | None
    #: One of `STEPS`.
    step: int
    #: "driver", or the executor of the "sender" or the "receiver".
    who: str
    marker: str

    def __post_init__(self) -> None:
        _one_of("step of a move", self.step, STEPS)
        _one_of("process of a move", self.who, PROCESSES)


@dataclass(frozen=True)
class CommitFault:
    """The failure of the driver at the commit of a batch."""

    #: One of `COMMIT_POINTS`.
    point: str
    batch: int
    marker: str
    #: Kill the driver instead of raising.
    kill: bool = False

    def __post_init__(self) -> None:
        _one_of("point of a commit", self.point, COMMIT_POINTS)


@dataclass(frozen=True)
class Faults:
    """The faults of a query; none unless a test places some.

    Example:
        >>> faults = Faults(tasks=(Fault("after-runs", batch=3, slot=1, marker="happened"),))
        >>> faults.always_send, len(faults.tasks)
        (False, 1)
    """

    tasks: tuple[Fault, ...] = ()
    steps: tuple[StepFault, ...] = ()
    commits: tuple[CommitFault, ...] = ()
    #: The receiver of a move fetches state even if it shares a memory tier with the sender.
    always_send: bool = False
    #: State moves all the time: whenever no slot takes part in a move, the fullest slot sends a third
    #: of its state to the emptiest one. It needs a strategy that moves state, such as "relocate-only".
    always_move: bool = False

    def reach_step(self, move: int, step: int, pids: Mapping[str, int]) -> None:
        """The driver calls this at each step of a move, with the processes that could die."""
        for fault in self.steps:
            here = fault.step == step and fault.move in (move, None)
            if here and _first(fault.marker):
                os.kill(pids[fault.who], signal.SIGKILL)

    def reach_commit(self, point: str, batch: int) -> None:
        """The driver calls this before and after it writes the log record of a batch."""
        for fault in self.commits:
            if (fault.point, fault.batch) == (point, batch) and _first(fault.marker):
                if fault.kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError(f"fault placed {point} in batch {batch}")

    def bound(self, batch: int, slot: int) -> Callable[[str], None]:
        """The function that a slot task calls at each point."""
        mine = [f for f in self.tasks if f.batch == batch and f.slot == slot]

        def reach(point: str) -> None:
            for fault in mine:
                if fault.point == point:
                    _happen(fault)

        return reach


def _one_of(what: str, value: object, choices: tuple[str, ...] | range) -> None:
    if value not in choices:
        raise SettingsError(
            f"{value!r} is not a {what}", hint=f"use one of {', '.join(map(repr, choices))}"
        )


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
