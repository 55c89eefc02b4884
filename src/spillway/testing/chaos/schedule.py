"""A schedule: one query, its input, and its disasters. A value that JSON can hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spillway.codec import decode, encode
from spillway.testing.simulated.rows import Row

#: Disasters at a call to the store: `at` counts the calls of an event.
#: "die"     the calling process dies: a task, or the driver
#: "kill"    the driver and all tasks die; files stay as they are
#: "power"   all machines lose power: unsynced files disappear or lose their end, memory is empty
#: "error"   the call fails; with arg=1 after its effect
#: "full"    the store is full
#: "pause"   the driver stops here, like a suspended process; another one takes over
#: "wake"    a paused driver makes its next `arg` calls before this one
AT_CALLS = ("die", "kill", "power", "error", "full", "pause", "wake")
#: Disasters of Spark: `at` counts the tasks of an event.
#: "speculate"   another attempt runs first, to its end if arg=0, else for `arg` batches
#: "resubmit"    the task runs again after its end, and both attempts report
#: "unreported"  the driver never gets the report of the task
#: "retry"       the task fails after `arg` batches, and Spark repeats it
#: "refetch"     the exchange before the task loses its content: all tasks before it run again
AT_TASKS = ("speculate", "resubmit", "unreported", "retry", "refetch")
#: Disasters at a write to a memory or disk tier: `at` counts these writes of an event.
#: "scratch_full"    the tier is full, and stays full for `arg` more writes
#: "scratch_error"   the write fails
#: "scratch_die"     the writing process dies, and leaves a part of the file
AT_LOCAL = ("scratch_full", "scratch_error", "scratch_die")
#: What a sink does with one step: `at` counts the writes of an event.
#: "coalesce"    reads `arg` slots in one task, the last first
#: "twice"       reads everything twice
#: "partly"      reads all slots but one, or nothing if arg=1
#: "fails"       fails before it writes, or after it if arg=1
AT_SINKS = ("coalesce", "twice", "partly", "fails")
#: What follows a failed step: `at` counts the failures of an event.
#: "stay"        the driver continues and repeats the step. Before that, by `arg`: nothing happens (0),
#:               the memory limit changes (1), the slot count changes (2), or what was sent arrives
#:               (3). With 4 more, a failed round stays open, and the next batch repeats it.
AT_FAILURES = ("stay",)
KINDS = (*AT_CALLS, *AT_TASKS, *AT_LOCAL, *AT_SINKS, *AT_FAILURES)


@dataclass(frozen=True)
class Strike:
    """One disaster of an event."""

    kind: str
    at: int
    arg: int = 0


@dataclass(frozen=True)
class ScheduledEvent:
    """One thing that happens: a batch of rows, or something between two batches.

    "batch"    rows come
    "round"    a cleanup round of stage args[0], of at most args[1] bytes
    "restart"  the query stops and starts with the next settings
    "lose"     host args[0] loses its memory and disk
    "damage"   a file in the tiers of host args[0] changes; args[1] chooses it, args[2] tears it
    "place"    slots run on other hosts
    "memory"   the limit of slots becomes args[0] bytes; 0: none
    "scale"    the user asks for args[0] slots
    "move"     scripted: slots args[0] and args[1], bytes args[2], groups args[3], everything args[4],
               by parallel track args[5], in stage args[6] (0 if it is missing)
    "force"    scripted: slot args[0] spills args[1] bytes, in stage args[2] (0 if it is missing)
    "reshape"  scripted: slot args[0] gets the query's shape number args[1]
    "give_up"  scripted: parallel tracks end
    "send"     what was sent arrives, or fails if args[0]
    "wake"     all paused drivers work to their ends
    """

    kind: str
    rows: tuple[Row, ...] = ()
    args: tuple[int, ...] = ()
    strikes: tuple[Strike, ...] = ()


@dataclass(frozen=True)
class Settings:
    """The settings of one start."""

    slots: int
    #: Whether the script decides what moves and spills, in place of the product's strategies.
    told: bool
    adapt: dict[str, Any] = field(default_factory=dict)
    #: The memory of all slots together, if `adapt` sets no limit; None: no limit.
    spare: int | None = None


@dataclass(frozen=True)
class ScheduledQuery:
    """The operators: the first by its kind, windows and options, the others by their kinds."""

    kind: str
    windows: tuple[int | None, ...] = ()
    lateness: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    then: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """Everything that determines a run."""

    seed: int
    query: ScheduledQuery
    #: "disk", "claims" or "objects" (chaos/store.py).
    store: str
    hosts: int
    #: "ids": the sink skips numbers that it has. "replace": it writes them again.
    sink: str
    #: The settings of the first start, the second, and so on; after the last, the first again.
    starts: tuple[Settings, ...]
    events: tuple[ScheduledEvent, ...]

    def encode(self) -> bytes:
        """The schedule as JSON."""
        return encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Schedule:
        """The inverse of `encode`."""
        return decode(cls, data)

    @property
    def rows(self) -> int:
        """The number of input rows."""
        return sum(len(event.rows) for event in self.events)

    @property
    def strikes(self) -> int:
        """The number of disasters."""
        return sum(len(event.strikes) for event in self.events)
