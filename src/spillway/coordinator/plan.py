"""The plan of a batch or round: what every slot is told, and what of it must be known again.

What a batch gives is a function of the committed state, of its plan and of its rows. Of the plan,
`Note` is what neither the log nor the settings of another start would give again. The note is written
before the batch begins, so a batch that is repeated after a crash has the plan that it had.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spillway.coordinator.committed import Committed
from spillway.coordinator.moves import copied, orders_of, routed
from spillway.errors import QueryError
from spillway.plan.shape import Shape
from spillway.protocols.engine import busy
from spillway.protocols.move import GroupMove
from spillway.routing.routing import Routing
from spillway.slot.limits import Budget
from spillway.slot.orders import Order


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


def plan_batch(
    state: Committed,
    batch: int,
    garbage: Sequence[str] = (),
    *,
    sweep: bool = False,
    note: Note | None = None,
) -> BatchPlan:
    """The plan of the next batch, as its note says; without one, nothing is limited."""
    if batch != state.batch + 1:
        raise QueryError(
            f"Spark asks for batch {batch}, but the state is at batch {state.batch}",
            detail="the offsets that Spark keeps and the state of Spillway are in the same "
            "checkpoint directory and go together",
            hint="restore the whole checkpoint directory from one copy, or start with a new one",
        )
    return _plan(state, batch, garbage, note or new_note(state, {}), sweep=sweep)


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


def needs_every_slot(state: Committed, plan: BatchPlan) -> bool:
    """Whether slots have something to do that does not depend on rows."""
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
