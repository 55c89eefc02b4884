"""The slot record: the small report of one slot about one batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

from spillway.metrics.counts import Counts
from spillway.metrics.events import Event


@dataclass(frozen=True)
class Chosen:
    """Groups that a slot chose to send, on request (PartitionsToMove)."""

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
    #: Name of the manifest that this attempt wrote; empty for an operator without state.
    manifest: str
    #: Rows in, per stream, including late ones.
    rows_in: tuple[int, ...]
    #: Late rows that were dropped, per stream.
    rows_late: tuple[int, ...]
    #: Rows with a NULL key or time, per stream; they match nothing, and no other field counts them.
    rows_null: tuple[int, ...] = field(default=(), kw_only=True)
    rows_out: int
    #: Largest event time seen in the batch, per stream, microseconds.
    max_times: tuple[int | None, ...]
    #: In memory after the batch, per stream; made streams come last.
    state_rows: tuple[int, ...]
    state_bytes: tuple[int, ...]
    layers: tuple[int, ...]
    #: The process and host that did the work.
    worker: str
    #: The join shape of the slot; empty if the operator has only one.
    shape: str = ""
    #: The names of the made streams, and of those that are still missing somewhere.
    made: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    #: Samples of stream pairs, and predicate counts.
    sampled: Counts = field(default_factory=dict)
    #: On disk after the batch, per stream.
    disk_rows: tuple[int, ...] = ()
    disk_bytes: tuple[int, ...] = ()
    #: The groups that miss results because they have several parts, and their bytes.
    pending: tuple[tuple[int, int], ...] = ()
    #: The watermark up to which the slot has decided which rows stay without partners; None: there
    #: is nothing to decide. Groups that miss results or have waiting rows do not count.
    decided_us: int | None = None
    #: Bytes in memory by productivity class (metrics/view.py): all groups in 256 bytes.
    profile: tuple[int, ...] = ()
    #: Bytes of rows that wait for groups in transit to this slot.
    parked_bytes: int = 0
    #: Bytes in memory of groups that are leaving, and bytes of moving groups that left memory because
    #: they cannot spill.
    leaving_bytes: int = 0
    demoted_bytes: int = 0
    #: Rows in their stored form: received, processed, and waiting for a later batch. No other field
    #: counts the last ones.
    brought_rows: int = 0
    processed_rows: int = 0
    spooled_rows: int = 0
    spooled_bytes: int = 0
    #: The groups that the slot chose to move, on request.
    chosen: tuple[Chosen, ...] = ()
    #: The parallel tracks whose old rows are gone here.
    purged: tuple[int, ...] = ()
    #: The most bytes in memory that a check found; 0 without a limit.
    peak_bytes: int = 0
    #: Rows of `rows_out` that cleanup produced.
    rows_cleaned: int = 0
    events: tuple[Event, ...] = ()
    expired_rows: int = 0
    #: Groups whose expired rows wait for their results, because other rows of the group wait.
    withheld: int = 0
    merged_rows: int = 0
    #: Seconds in the operator: wall time, and CPU time; without waits for input and output.
    busy_s: float = 0.0
    cpu_s: float = 0.0
    #: CPU seconds by phase: sort, operator, store, compact, commit.
    phases_s: dict[str, float] = field(default_factory=dict)
    #: Run files new to the slot, written or arrived; and those that it no longer names after the
    #: batch, old or new.
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    #: Runs that came from the durable tier.
    restored: tuple[str, ...] = ()
    #: Runs that the process copied into its heap, because it had no memory map left for them.
    copied: int = 0
    #: Bytes of a row in the widest Arrow batch of the input; 0 without rows.
    input_row_bytes: int = 0

    @property
    def held_rows(self) -> tuple[int, ...]:
        """Rows after the batch, per stream: in memory and on disk, where visitors look too."""
        return _added(self.state_rows, self.disk_rows)

    @property
    def held_bytes(self) -> tuple[int, ...]:
        """The bytes of `held_rows`."""
        return _added(self.state_bytes, self.disk_bytes)

    def place(self, names: int) -> str:
        """Returns the owner of the memory tier: the first `names` of host, executor and worker."""
        return "/".join(self.worker.split("/")[:names])


def _added(memory: tuple[int, ...], disk: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(here + there for here, there in zip_longest(memory, disk, fillvalue=0))
