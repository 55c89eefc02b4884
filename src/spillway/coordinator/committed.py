"""What is true after a committed batch: the values that the log records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from spillway.metrics.events import Event
from spillway.metrics.record import SlotRecord
from spillway.policies.cluster.rounds import Progress
from spillway.policies.shape.shaping import SlotShape
from spillway.protocols.move import GroupMove
from spillway.routing.routing import Routing
from spillway.slot.orders import Force


class Mark(NamedTuple):
    """The name of a commit: a batch, and which round after it; 0 is the batch itself."""

    batch: int
    round: int = 0


@dataclass(frozen=True)
class Sample:
    """What is measured from one evaluation to the next."""

    #: Clock, batch and bytes of state at the last evaluation.
    clock_s: float = 0.0
    batch: int = -1
    state_bytes: int = 0
    #: Results of each slot since then, seconds that it worked, and rows that it took.
    rows_out: tuple[int, ...] = ()
    busy_s: tuple[float, ...] = ()
    rows_in: tuple[int, ...] = ()
    #: Where the rounds of a FLUX strategy stand.
    progress: Progress = Progress()
    #: Seconds that the busiest slot of each batch worked, since then.
    peak_s: float = 0.0
    #: Seconds from batch to batch since then, where they are known.
    elapsed_s: float = 0.0


@dataclass(frozen=True)
class GivenUpTrack:
    """That a parallel track was not waited for."""

    #: The watermark then.
    watermark_us: int | None


@dataclass(frozen=True)
class Scaling:
    """A change of the number of slots under way."""

    slots: int
    #: For each slot that is being filled, how many moves into it there were.
    tries: tuple[tuple[int, int], ...] = ()
    #: Whether nothing moves: slots only get slices to come, or no more of them (PSP 6).
    passive: bool = False
    #: Why it was begun; empty where the user wished for it.
    reason: str = ""


@dataclass(frozen=True)
class Committed:
    """What is true after a committed batch; what the log records."""

    batch: int
    routing: Routing
    #: The manifest file of each slot; None for a slot that has no state yet.
    manifests: tuple[str | None, ...]
    watermark_us: int | None
    #: Largest event time ever seen, per stream.
    max_times: tuple[int | None, ...]
    #: Rows since the first start: in and late per stream, and out.
    rows_in: tuple[int, ...]
    rows_late: tuple[int, ...]
    rows_out: int = 0
    #: Rounds of cleanup since the first start, and how many of them came after this batch.
    rounds: int = 0
    round: int = 0
    #: Rows of these that cleanup made up for.
    rows_cleaned: int = 0
    #: The groups that miss results, and their bytes.
    pending: tuple[tuple[int, int], ...] = ()
    #: Rows and bytes that wait in the slots for a later batch.
    spooled_rows: int = 0
    spooled_bytes: int = 0
    #: What this batch or round did to the state.
    events: tuple[Event, ...] = ()
    #: The moves under way, and how many there were since the first start.
    moves: tuple[GroupMove, ...] = ()
    moves_begun: int = 0
    #: Slots that the coordinator tells to move groups out of memory, in the next batch.
    forces: tuple[tuple[int, Force], ...] = ()
    #: Bytes that it has made slots move out since the first start.
    forced_bytes: int = 0
    #: The number of slots that is being reached, if another one is.
    scaling: Scaling | None = None
    #: Seconds that batches took since the first start: the query's own clock, which stands between them.
    clock_s: float = 0.0
    #: What has happened since the coordinator last compared the slots.
    sample: Sample = field(default_factory=Sample)
    #: The shape that each slot joins in from now on; none where all do the n-way join.
    shapes: tuple[SlotShape, ...] = ()
    #: The last parallel track that was given up.
    given_up: GivenUpTrack | None = None


def initial(routing: Routing, streams: int) -> Committed:
    """The state before the first batch."""
    none: tuple[int | None, ...] = (None,) * streams
    return Committed(
        -1, routing, (None,) * routing.slots, None, none, (0,) * streams, (0,) * streams
    )


def next_round_of(state: Committed) -> Mark:
    """The name of the round that comes next."""
    return Mark(state.batch, state.round + 1)


def wishes(state: Committed, slot: int, record: SlotRecord) -> bool:
    """Whether a slot would have another shape, and moves give way to that.

    Where memory is short, or slots come and go, they do not.
    """
    if state.scaling is not None or any(record.disk_bytes):
        return False
    return slot < len(state.shapes) and state.shapes[slot].wish.shape is not None
