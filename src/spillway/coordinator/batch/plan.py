"""The plan of a batch or round: the job of every slot, and what a repetition must know.

The results of a batch are a function of the committed state, its plan and its rows. `Note` is the
part of the plan that neither the log nor the settings of another start would give again. The
coordinator writes the note before the batch begins, so a batch repeated after a crash has the same
plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.moves import copied, orders_of, routed
from spillway.errors import QueryError
from spillway.plan.shape import Shape
from spillway.protocols.move import GroupMove
from spillway.routing.routing import Routing
from spillway.settings import Adapt
from spillway.slot.limits import Budget
from spillway.slot.orders import Order

#: Batches between two sweeps for files of attempts that died.
SWEEP_BATCHES = 64


@dataclass(frozen=True)
class LocalRules:
    """The settings by which all slots decide what spills and returns (`spillway.settings.Adapt`).

    Groups that return before a batch give results in it, so a repetition needs the same settings.
    """

    victims: str = "least-productive"
    amortised: bool = False
    inactive_batches: int = 60
    seed: int = 0
    spill_fraction: float = 0.3
    low_water: float = 0.5
    calm_batches: int = 3

    @classmethod
    def of(cls, adapt: Adapt) -> LocalRules:
        """Returns the rules that a user's settings ask for."""
        return cls(**{one.name: getattr(adapt, one.name) for one in fields(cls)})


@dataclass(frozen=True)
class Note:
    """The part of a plan that a repetition of the batch needs."""

    #: Before the moves; a start may have changed it since the last commit.
    routing: Routing
    memory_bytes: tuple[int | None, ...]
    cleanup: tuple[int, ...] = ()
    moves: tuple[GroupMove, ...] = ()
    #: What each slot may process; None, or no entry: everything.
    budgets: tuple[Budget | None, ...] = ()
    #: Seconds between turns in each slot, if groups rotate in memory; None, or no entry: they spill
    #: in generations.
    t_gaps_s: tuple[float | None, ...] = ()
    #: The join shape of each slot; no entry: the n-way join.
    shapes: tuple[Shape, ...] = ()
    local: LocalRules = LocalRules()
    #: Tells the rows of the batch from any others, if the host knows; None: unknown, or a round.
    input_digest: str | None = None


@dataclass(frozen=True)
class BatchPlan:
    """The jobs of all slots in one batch."""

    batch: int
    routing: Routing
    manifests: tuple[str | None, ...]
    watermark_us: int | None
    note: Note
    #: Orders of moves and of the coordinator's strategy, by slot.
    orders: Mapping[int, tuple[Order, ...]] = field(default_factory=dict)
    #: Run files that no committed manifest names; slots remove their local copies.
    garbage: tuple[str, ...] = ()
    #: Whether slots also delete local files that no manifest names: in the first batch of a start.
    sweep: bool = False
    #: The query's clock as the batch begins.
    clock_s: float = 0.0
    #: Whether it is a round, which has no rows.
    is_round: bool = False

    def sweeps(self, slot: int) -> bool:
        """Whether a slot deletes local files that no manifest names.

        All do in the first batch of a start. Later one slot does at a time, so that the work of a batch
        is bounded.
        """
        sweep, between = divmod(self.batch, SWEEP_BATCHES)
        periodic = between == 0 and slot == sweep % self.routing.slots
        return self.sweep or periodic

    @property
    def memory_bytes(self) -> tuple[int | None, ...]:
        """The bytes of state that each slot may have in memory; None: no limit."""
        return self.note.memory_bytes

    @property
    def cleanup(self) -> tuple[int, ...]:
        """The groups whose missing results are due."""
        return self.note.cleanup

    def budget_of(self, slot: int) -> Budget | None:
        """Returns what a slot may process; None: everything."""
        return self.note.budgets[slot] if slot < len(self.note.budgets) else None

    def t_gap_of(self, slot: int) -> float | None:
        """Returns the seconds between turns in a slot; None: groups do not rotate."""
        return self.note.t_gaps_s[slot] if slot < len(self.note.t_gaps_s) else None

    def shape_of(self, slot: int) -> Shape | None:
        """Returns the join shape of a slot; None: that of the operator itself."""
        return self.note.shapes[slot] if slot < len(self.note.shapes) else None

    @property
    def moves(self) -> tuple[GroupMove, ...]:
        """The moves in progress."""
        return self.note.moves

    @property
    def copies(self) -> Mapping[int, int]:
        """The groups whose rows also go to another slot, and which slot."""
        return copied(self.moves)


def plan_batch(
    state: Committed,
    batch: int,
    garbage: Sequence[str] = (),
    *,
    sweep: bool = False,
    note: Note | None = None,
) -> BatchPlan:
    """Returns the plan of the next batch from its note; without one, nothing is limited."""
    if batch != state.batch + 1:
        raise QueryError(
            f"Spark asks for batch {batch}, but the state is at batch {state.batch}",
            detail=(
                "Spark's offsets and Spillway's state are in the same checkpoint "
                "directory and belong together"
            ),
            hint="restore the whole checkpoint directory from one backup, or start with a new one",
        )
    return _plan(state, batch, garbage, note or new_note(state, {}), sweep=sweep)


def refuse_other_input(batch: int, known: str | None, given: str | None) -> None:
    """Rejects a batch that had other rows when it began or was committed."""
    if known is None or given is None or known == given:
        return
    raise QueryError(
        f"Spark gives batch {batch} other rows than it had before",
        detail=f"the source offsets of the batch have the checksum {given}, the log has {known}; "
        "with other rows, some would be lost or come twice",
        hint="restore the whole checkpoint directory from one backup, or start with a new one",
    )


def new_note(
    state: Committed,
    memory_bytes: Mapping[int, int | None],
    cleanup: Sequence[int] = (),
    budgets: Mapping[int, Budget] | None = None,
    t_gaps_s: Mapping[int, float] | None = None,
    shapes: Sequence[Shape] = (),
    local: LocalRules | None = None,
) -> Note:
    """Returns the note of a new plan; without budgets, nothing has to wait."""
    slots = range(state.routing.slots)
    limits = tuple(memory_bytes.get(slot) for slot in slots)
    allowed = tuple(budgets.get(slot) for slot in slots) if budgets else ()
    gaps = tuple(t_gaps_s.get(slot) for slot in slots) if t_gaps_s else ()
    told = (state.routing, limits, tuple(cleanup), state.moves, allowed, gaps)
    return Note(*told, shapes=tuple(shapes), local=local or LocalRules())


def next_round(
    state: Committed, wanted_bytes: int, among: Collection[int] | None = None
) -> tuple[int, ...]:
    """Returns the groups to clean up next: the first that miss results, up to `wanted_bytes`."""
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
    """Returns the plan of a round: it has no rows, so the batch number stays.

    A round produces missing results, and lets moves continue when no batch comes.
    """
    return replace(_plan(state, state.batch, garbage, note, sweep=False), is_round=True)


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
