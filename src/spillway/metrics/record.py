"""The slot record: the light answer of one slot to one batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

from spillway.metrics.counts import Counts
from spillway.metrics.events import Event


@dataclass(frozen=True)
class Chosen:
    """Groups that a slot chose to send, because it was asked to (PartitionsToMove)."""

    move: int
    groups: tuple[int, ...]
    #: Their bytes in memory.
    bytes: int
    reason: str


@dataclass(frozen=True)
class SlotRecord:
    """One per slot and attempt; the coordinator takes the first that arrives for a slot."""

    batch: int
    slot: int
    #: Name of the manifest this attempt wrote; empty for an operator without state.
    manifest: str
    #: Rows that came in, per stream, late ones included.
    rows_in: tuple[int, ...]
    #: Rows that came too late and were dropped, per stream.
    rows_late: tuple[int, ...]
    rows_out: int
    #: Largest event time seen in the batch, per stream, microseconds.
    max_times: tuple[int | None, ...]
    #: In memory after the batch, per stream; those that the operator makes come last.
    state_rows: tuple[int, ...]
    state_bytes: tuple[int, ...]
    layers: tuple[int, ...]
    #: Which process of which host did it.
    worker: str
    #: Whether the task knew its slot from a row, and not from its place among the tasks alone.
    sure: bool = True
    #: The shape that the slot joined in; empty where the operator has only one.
    shape: str = ""
    #: The names of the streams that the operator makes, and of those that are not there everywhere yet.
    made: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    #: What was sampled of pairs of streams, and what was counted of predicates.
    sampled: Counts = field(default_factory=dict)
    #: On disk after the batch, per stream.
    disk_rows: tuple[int, ...] = ()
    disk_bytes: tuple[int, ...] = ()
    #: The groups that miss results because their rows are in several parts, and their bytes.
    pending: tuple[tuple[int, int], ...] = ()
    #: Bytes in memory by class of productivity (metrics/view.py): the groups in 256 bytes.
    profile: tuple[int, ...] = ()
    #: Bytes of rows that wait for groups on their way here.
    parked_bytes: int = 0
    #: Rows in the form in which they are kept: those that came, those that were processed, and those
    #: that wait for a later batch, which are counted nowhere else.
    brought_rows: int = 0
    processed_rows: int = 0
    spooled_rows: int = 0
    spooled_bytes: int = 0
    #: The groups to be moved that the slot was asked for.
    chosen: tuple[Chosen, ...] = ()
    #: The parallel tracks whose old rows are gone here.
    purged: tuple[int, ...] = ()
    #: The most bytes in memory that a check against the limit found; 0 without a limit.
    peak_bytes: int = 0
    #: Rows of `rows_out` that cleanup made up for.
    rows_cleaned: int = 0
    events: tuple[Event, ...] = ()
    expired_rows: int = 0
    merged_rows: int = 0
    #: Seconds in the operator on the wall, and on the processor; input and output waits excluded.
    busy_s: float = 0.0
    cpu_s: float = 0.0
    #: The processor seconds by phase: sort, operator, store, compact, commit.
    phases_s: dict[str, float] = field(default_factory=dict)
    #: Run files that are new to the slot, written or arrived, and those that it does not name after
    #: the batch: of what it named before, and of the new ones.
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    #: Runs that had to come from the durable tier.
    restored: tuple[str, ...] = ()

    @property
    def held_rows(self) -> tuple[int, ...]:
        """After the batch, per stream: in memory and on disk, where visitors find them, too."""
        return _added(self.state_rows, self.disk_rows)

    @property
    def held_bytes(self) -> tuple[int, ...]:
        """The bytes of `held_rows`."""
        return _added(self.state_bytes, self.disk_bytes)

    def place(self, names: int) -> str:
        """Who has the same memory tier: the first `names` of the worker's host, executor and self."""
        return "/".join(self.worker.split("/")[:names])


def _added(memory: tuple[int, ...], disk: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(here + there for here, there in zip_longest(memory, disk, fillvalue=0))
