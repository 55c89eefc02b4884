"""The committed state: the values that the log records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from spillway.metrics.events import Event
from spillway.metrics.record import SlotRecord
from spillway.policies.cluster.cycle import Progress
from spillway.policies.shape.shaping import SlotShape
from spillway.protocols.move import GroupMove
from spillway.routing.routing import Routing
from spillway.slot.orders import Force


class Mark(NamedTuple):
    """The name of a commit: a batch, and the number of the round after it; 0 is the batch itself."""

    batch: int
    round: int = 0


@dataclass(frozen=True)
class Sample:
    """Measurements between two evaluations."""

    #: Clock, batch and bytes of state at the last evaluation.
    clock_s: float = 0.0
    batch: int = -1
    state_bytes: int = 0
    #: Since then, per slot: results, seconds of work, and rows taken.
    rows_out: tuple[int, ...] = ()
    busy_s: tuple[float, ...] = ()
    rows_in: tuple[int, ...] = ()
    #: The progress of the cycle of a FLUX strategy.
    progress: Progress = Progress()
    #: Seconds that the busiest slot of each batch worked, since then.
    peak_s: float = 0.0
    #: Seconds between batches since then, if known.
    elapsed_s: float = 0.0


@dataclass(frozen=True)
class GivenUpTrack:
    """A parallel track that the coordinator gave up."""

    #: The watermark at that time.
    watermark_us: int | None


@dataclass(frozen=True)
class Scaling:
    """A change of the slot count in progress."""

    slots: int
    #: For each slot that fills, the number of moves into it so far.
    tries: tuple[tuple[int, int], ...] = ()
    #: Whether nothing moves: slots only get future slices, or no more of them (PSP 6).
    passive: bool = False
    #: Why it began; empty if the user asked for it.
    reason: str = ""


@dataclass(frozen=True)
class Committed:
    """The state after a committed batch, as the log records it."""

    batch: int
    routing: Routing
    #: The manifest file of each slot; None for a slot without state.
    manifests: tuple[str | None, ...]
    watermark_us: int | None
    #: Largest event time ever seen, per stream.
    max_times: tuple[int | None, ...]
    #: Rows since the first start: in and late per stream, and out.
    rows_in: tuple[int, ...]
    rows_late: tuple[int, ...]
    rows_out: int = 0
    #: Cleanup rounds since the first start, and those after this batch.
    rounds: int = 0
    round: int = 0
    #: Rows of these that cleanup produced.
    rows_cleaned: int = 0
    #: The groups that miss results, and their bytes.
    pending: tuple[tuple[int, int], ...] = ()
    #: Rows and bytes that wait in the slots for a later batch.
    spooled_rows: int = 0
    spooled_bytes: int = 0
    #: What this batch or round did to the state.
    events: tuple[Event, ...] = ()
    #: The moves in progress, and their number since the first start.
    moves: tuple[GroupMove, ...] = ()
    moves_begun: int = 0
    #: Slots that the coordinator forces to spill in the next batch.
    forces: tuple[tuple[int, Force], ...] = ()
    #: Bytes of forced spills since the first start.
    forced_bytes: int = 0
    #: The change of the slot count in progress, if any.
    scaling: Scaling | None = None
    #: Seconds that batches took since the first start: the query's own clock, which stops between
    #: them.
    clock_s: float = 0.0
    #: Measurements since the coordinator last compared the slots.
    sample: Sample = field(default_factory=Sample)
    #: The join shape of each slot from now on; empty if all use the n-way join.
    shapes: tuple[SlotShape, ...] = ()
    #: The last parallel track that the coordinator gave up.
    given_up: GivenUpTrack | None = None
    #: Rows with a NULL key or time since the first start, per stream; not part of `rows_in`.
    rows_null: tuple[int, ...] = ()
    #: The watermark up to which all slots have decided which rows stay without partners; None: there
    #: is nothing to decide.
    decided_us: int | None = None
    #: The watermark of the last batch or round, at which slots gave final results; and the groups
    #: that kept theirs back then.
    final_us: int | None = None
    withheld: int = 0
    #: Tells the rows of the last batch from any others; None: the host does not know.
    input_digest: str | None = None

    @property
    def undecided(self) -> bool:
        """Whether the watermark has come further than the slots have decided, so that a round helps."""
        if self.decided_us is None or self.watermark_us is None:
            return False
        return self.decided_us < self.watermark_us

    @property
    def due(self) -> bool:
        """Whether the watermark has advanced since the last step, or results were kept back."""
        if self.watermark_us is None:
            return False
        return self.watermark_us != self.final_us or self.withheld > 0


def initial(routing: Routing, streams: int) -> Committed:
    """Returns the state before the first batch."""
    none: tuple[int | None, ...] = (None,) * streams
    return Committed(
        -1, routing, (None,) * routing.slots, None, none, (0,) * streams, (0,) * streams
    )


def steps_of(state: Committed | None) -> int:
    """Returns the batches and rounds since the first start: the batches of the next stage."""
    return 0 if state is None else state.batch + 1 + state.rounds


def next_round_of(state: Committed) -> Mark:
    """Returns the name of the next round."""
    return Mark(state.batch, state.round + 1)


def wants_shape(state: Committed, slot: int, record: SlotRecord) -> bool:
    """Whether a slot wants another shape, so that its moves give way.

    They do not give way if memory is short, or while the slot count changes.
    """
    if state.scaling is not None or any(record.disk_bytes):
        return False
    return slot < len(state.shapes) and state.shapes[slot].proposal.shape is not None
