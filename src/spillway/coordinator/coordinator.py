"""The coordinator's decisions, as pure functions over frozen values.

Between two batches the coordinator turns the records of the slots into the next committed state:
which manifest each slot stands on, the watermark, the routing, and which run files nobody needs any
more. `plan_batch` and `commit_batch` are its whole interface; neither reads a clock, a file or Spark.

What a batch gives is a function of the committed state and of its plan. Of the plan, `Note` is what
neither the log nor the settings of another start would give again: it is written before the batch
begins, and a batch that is repeated after a crash has the plan that it had.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spillway.coordinator.moves import announced, answers, copied, orders_of, routed, told_of
from spillway.errors import QueryError
from spillway.metrics.events import Event, ForceSpilled
from spillway.metrics.record import SlotRecord
from spillway.plan.shape import Shape
from spillway.policies.cluster.rounds import Progress
from spillway.policies.shape.shaping import SlotShape
from spillway.protocols.engine import begun, busy, delivered, following
from spillway.protocols.messages import ComputePartitionsToMove
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.routing.routing import Routing
from spillway.slot.limits import Budget
from spillway.slot.orders import Force, Order


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


@dataclass(frozen=True)
class Note:
    """What of a plan must be known again if the batch is repeated."""

    #: Before the moves; a start may have changed it since the last commit.
    routing: Routing
    memory_bytes: tuple[int | None, ...]
    cleanup: tuple[int, ...] = ()
    moves: tuple[GroupMove, ...] = ()
    #: What each slot may process; None, or no entry: everything.
    budgets: tuple[Budget | None, ...] = ()
    #: Seconds from one turn to the next in each slot, where groups take turns in memory; None, or no
    #: entry: they leave it in generations.
    t_gaps_s: tuple[float | None, ...] = ()
    #: The shape that each slot joins in; no entry: the n-way join.
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class BatchPlan:
    """What every slot of one batch is told."""

    batch: int
    routing: Routing
    manifests: tuple[str | None, ...]
    watermark_us: int | None
    note: Note
    #: What the moves under way and the coordinator's strategy tell each slot.
    orders: Mapping[int, tuple[Order, ...]] = field(default_factory=dict)
    #: Run files that no committed manifest names; slots remove their local copies.
    garbage: tuple[str, ...] = ()
    #: Whether slots also look for local files that no manifest names: in the first batch of a start.
    sweep: bool = False
    #: The query's clock as the batch begins.
    clock_s: float = 0.0

    @property
    def memory_bytes(self) -> tuple[int | None, ...]:
        """Bytes of state that each slot may have in memory; None: no limit."""
        return self.note.memory_bytes

    @property
    def cleanup(self) -> tuple[int, ...]:
        """Groups whose missing results are to be made."""
        return self.note.cleanup

    def budget_of(self, slot: int) -> Budget | None:
        """What a slot may process; None: everything."""
        return self.note.budgets[slot] if slot < len(self.note.budgets) else None

    def t_gap_of(self, slot: int) -> float | None:
        """Seconds from one turn to the next in a slot; None: groups take no turns."""
        return self.note.t_gaps_s[slot] if slot < len(self.note.t_gaps_s) else None

    def shape_of(self, slot: int) -> Shape | None:
        """The shape that a slot joins in; None: that of the operator itself."""
        return self.note.shapes[slot] if slot < len(self.note.shapes) else None

    @property
    def moves(self) -> tuple[GroupMove, ...]:
        """The moves under way."""
        return self.note.moves

    @property
    def copies(self) -> Mapping[int, int]:
        """The groups whose rows go to another slot as well, and to which."""
        return copied(self.moves)

    @property
    def relocating(self) -> set[int]:
        """The slots in relocation mode."""
        return busy(self.moves)


@dataclass(frozen=True)
class References:
    """How many slots' manifests name each run file."""

    counts: Mapping[str, int] = field(default_factory=dict)

    def updated(self, records: Sequence[SlotRecord]) -> tuple[References, tuple[str, ...]]:
        """The counts after a batch, and the files that nobody names any more."""
        counts = dict(self.counts)
        for record in records:
            for name in record.added:
                counts[name] = counts.get(name, 0) + 1
            for name in record.dropped:
                counts[name] = counts.get(name, 1) - 1
        gone = tuple(sorted(name for name, count in counts.items() if count <= 0))
        for name in gone:
            del counts[name]
        return References(counts), gone


def initial(routing: Routing, streams: int) -> Committed:
    """The state before the first batch."""
    none: tuple[int | None, ...] = (None,) * streams
    return Committed(
        -1, routing, (None,) * routing.slots, None, none, (0,) * streams, (0,) * streams
    )


def plan_batch(
    state: Committed,
    batch: int,
    garbage: Sequence[str] = (),
    *,
    sweep: bool = False,
    memory_bytes: Mapping[int, int | None] | None = None,
    budgets: Mapping[int, Budget] | None = None,
    t_gaps_s: Mapping[int, float] | None = None,
    shapes: Sequence[Shape] = (),
    note: Note | None = None,
) -> BatchPlan:
    """The plan of the next batch; with a note, the plan that it had before a crash."""
    if batch != state.batch + 1:
        raise QueryError(
            f"Spark asks for batch {batch}, but the state is at batch {state.batch}",
            detail="the offsets that Spark keeps and the state of Spillway are in the same "
            "checkpoint directory and go together",
            hint="restore the whole checkpoint directory from one copy, or start with a new one",
        )
    note = note or new_note(
        state, memory_bytes or {}, budgets=budgets, t_gaps_s=t_gaps_s, shapes=shapes
    )
    return _plan(state, batch, garbage, note, sweep=sweep)


def new_note(
    state: Committed,
    memory_bytes: Mapping[int, int | None],
    cleanup: Sequence[int] = (),
    budgets: Mapping[int, Budget] | None = None,
    t_gaps_s: Mapping[int, float] | None = None,
    shapes: Sequence[Shape] = (),
) -> Note:
    """The note of a plan that is made for the first time; without budgets, nothing has to wait."""
    slots = range(state.routing.slots)
    limits = tuple(memory_bytes.get(slot) for slot in slots)
    allowed = tuple(budgets.get(slot) for slot in slots) if budgets else ()
    gaps = tuple(t_gaps_s.get(slot) for slot in slots) if t_gaps_s else ()
    told = (state.routing, limits, tuple(cleanup), state.moves, allowed, gaps)
    return Note(*told, shapes=tuple(shapes))


def noteworthy(state: Committed, plan: BatchPlan) -> bool:
    """Whether another start could make another plan than this, with other results in the batch."""
    limited = any(limit is not None for limit in plan.memory_bytes)
    waits = any(plan.note.budgets) or state.spooled_rows
    return bool(limited or plan.cleanup or plan.moves or state.pending or waits)


def next_round(
    state: Committed, wanted_bytes: int, among: Collection[int] | None = None
) -> tuple[int, ...]:
    """The groups to clean up next: the first that miss results, with so many bytes together."""
    chosen: list[int] = []
    total = 0
    for group, size in state.pending:
        if among is not None and group not in among:
            continue
        if chosen and total + size > wanted_bytes:
            break
        chosen.append(group)
        total += size
    return tuple(chosen)


def plan_round(state: Committed, note: Note, garbage: Sequence[str] = ()) -> BatchPlan:
    """The plan of a round: no rows, so the batch stays what it is.

    A round makes missing results, and lets moves go on where no batch comes.
    """
    return _plan(state, state.batch, garbage, note, sweep=False)


def _plan(
    state: Committed, batch: int, garbage: Sequence[str], note: Note, *, sweep: bool
) -> BatchPlan:
    return BatchPlan(
        batch,
        routed(note.routing, note.moves),
        state.manifests,
        state.watermark_us,
        note,
        orders_of(note.moves, state.forces, state.manifests),
        garbage=tuple(garbage),
        sweep=sweep,
        clock_s=state.clock_s,
    )


def commit_batch(
    state: Committed,
    plan: BatchPlan,
    records: Mapping[int, SlotRecord],
    lateness_us: Sequence[int | None],
    seconds: float = 0.0,
    beside: Sequence[Event] = (),
) -> Committed:
    """The state after a batch that took so long, from one record per slot.

    `beside` is what happened beside the batch; it is told with it.
    """
    missing = [slot for slot in range(plan.routing.slots) if slot not in records]
    if missing:
        raise QueryError(f"batch {plan.batch}: no record from slots {missing}")
    ordered = [records[slot] for slot in range(plan.routing.slots)]
    max_times = tuple(
        _latest([seen, *(r.max_times[stream] for r in ordered)])
        for stream, seen in enumerate(state.max_times)
    )
    is_round = plan.batch == state.batch
    clock_s = state.clock_s + seconds
    messages = answers(plan.moves, records)
    moves, heard = delivered(plan.moves, messages, clock_s)
    may_follow = [(one, move) for one, move in heard if not _gives_way(state, move, records)]
    followers = following(may_follow, state.moves_begun, clock_s)
    moves = begun(moves, followers)
    told = [told_of(one, move, clock_s, batch=plan.batch) for one, move in heard]
    told += [told_of(one, move, clock_s, batch=plan.batch) for one, move in announced(moves, heard)]
    told += [
        told_of(ComputePartitionsToMove(move.move), move, clock_s, batch=plan.batch)
        for move in followers
    ]
    forced = sum(e.bytes for r in ordered for e in r.events if isinstance(e, ForceSpilled))
    back = any(isinstance(m, ParallelTrack) and m.phase is Phase.ROLLING_BACK for m in plan.moves)
    return replace(
        state,
        batch=plan.batch,
        rounds=state.rounds + is_round,
        round=state.round + 1 if is_round else 0,
        routing=plan.routing,
        manifests=tuple(record.manifest or None for record in ordered),
        max_times=max_times,
        watermark_us=next_watermark(state.watermark_us, max_times, lateness_us),
        rows_in=_added(state.rows_in, [r.rows_in for r in ordered]),
        rows_late=_added(state.rows_late, [r.rows_late for r in ordered]),
        rows_out=state.rows_out + sum(r.rows_out for r in ordered),
        rows_cleaned=state.rows_cleaned + sum(r.rows_cleaned for r in ordered),
        pending=tuple(sorted(one for r in ordered for one in r.pending)),
        spooled_rows=sum(r.spooled_rows for r in ordered),
        spooled_bytes=sum(r.spooled_bytes for r in ordered),
        events=(*beside, *(event for r in ordered for event in r.events), *told),
        moves=moves,
        moves_begun=state.moves_begun + len(followers),
        forces=(),
        forced_bytes=state.forced_bytes + forced,
        clock_s=clock_s,
        given_up=GivenUpTrack(state.watermark_us) if back else state.given_up,
    )


def wishes(state: Committed, slot: int, record: SlotRecord) -> bool:
    """Whether a slot would have another shape, and moves give way to that.

    Where memory is short, or slots come and go, they do not.
    """
    if state.scaling is not None or any(record.disk_bytes):
        return False
    return slot < len(state.shapes) and state.shapes[slot].wish.shape is not None


def _gives_way(state: Committed, move: GroupMove, records: Mapping[int, SlotRecord]) -> bool:
    """Whether the rest of a move waits, since one of its slots would have another shape first."""
    return any(wishes(state, slot, records[slot]) for slot in move.slots)


def next_watermark(
    current: int | None, max_times: Sequence[int | None], lateness_us: Sequence[int | None]
) -> int | None:
    """The least over the streams of (largest time - lateness); never goes back.

    A stream that was never seen, or one without a window, holds the watermark where it is.

    Example:
        >>> next_watermark(None, (100, 90), (10, 5))
        85
        >>> next_watermark(87, (100, 90), (10, 5))
        87
    """
    bounds = [
        None if newest is None or allowed is None else newest - allowed
        for newest, allowed in zip(max_times, lateness_us, strict=True)
    ]
    if not bounds or any(bound is None for bound in bounds):
        return current
    least = min(bound for bound in bounds if bound is not None)
    return least if current is None else max(current, least)


def _latest(times: Sequence[int | None]) -> int | None:
    return max((t for t in times if t is not None), default=None)


def _added(before: Sequence[int], more: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(before, *more, strict=True))
