"""What the coordinator decides between batches: moves, forced spills, and the number of slots.

    adapt        compares the slots every so often and begins what the strategy says (DCAPE 4, 5)
    rescale      takes a wish for another number of slots
    resume       lets moves take what was said beside the batches

All are functions of committed states. What they begin is part of the next log record, so a crash
repeats none of it and loses none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.coordinator.coordinator import Committed, Sample, Scaling
from spillway.coordinator.moves import told_of
from spillway.errors import SettingsError
from spillway.metrics.events import Event, Scaled
from spillway.metrics.record import SlotRecord
from spillway.metrics.view import NORMAL, RELOCATING, ClusterView, SlotView
from spillway.operators.orders import Force
from spillway.policies.decision import ForceSpill, Move
from spillway.policies.scaling import drained, filled, scaling_moves
from spillway.policies.strategy import Strategy
from spillway.protocols.engine import begun, busy, delivered
from spillway.protocols.messages import ComputePartitionsToMove, Message
from spillway.protocols.relocation import Relocation
from spillway.settings import Adapt


@dataclass(frozen=True)
class Rules:
    """The strategy, and how often slots are compared."""

    strategy: Strategy
    #: Seconds of the query's clock from one evaluation to the next; or batches, where they are given.
    interval_s: float = 45.0
    interval_batches: int | None = None

    @classmethod
    def of(cls, adapt: Adapt) -> Rules:
        """What the settings say."""
        strategy = Strategy(
            adapt.strategy_name,
            adapt.relocation_threshold,
            adapt.productivity_ratio,
            adapt.spill_fraction,
            adapt.max_forced_bytes,
        )
        return cls(strategy, adapt.interval_s, adapt.relocation_batches)

    def due(self, state: Committed) -> bool:
        """Whether the slots are to be compared now."""
        if self.interval_batches is not None:
            return state.batch - state.sample.batch >= self.interval_batches
        return state.clock_s - state.sample.clock_s >= self.interval_s


def adapt(
    state: Committed,
    records: Mapping[int, SlotRecord],
    limits: Mapping[int, int | None],
    rules: Rules,
) -> Committed:
    """The state after a commit, with what is begun now."""
    if state.scaling is None and not rules.strategy.relocates:
        return state
    state = _sampled(state, records)
    # A round brings no rows, and its moves are what it is for.
    if state.round and state.scaling is None:
        return state
    view = _view(state, records, limits)
    if state.scaling is not None:
        return _scaled(state, view, state.scaling)
    if not rules.due(state):
        return state
    state = begin(state, rules.strategy.decide(view))
    none = (0,) * state.routing.slots
    return replace(state, sample=Sample(state.clock_s, state.batch, view.state_bytes, none))


def rescale(state: Committed, slots: int) -> Committed:
    """The state with a wish for another number of slots; new ones are there at once, empty."""
    if slots < 1 or slots > state.routing.groups:
        raise SettingsError(
            f"{slots} slots cannot share {state.routing.groups} groups",
            hint="use at least one slot, and at most as many as there are groups",
        )
    before = state.routing.slots
    grown = max(slots, before)
    more: tuple[None, ...] = (None,) * (grown - before)
    # A slot that was being filled goes on being filled, unless it is to go; one that was to go and
    # is wanted again may have been drained already, so it is filled too.
    kept = state.scaling.slots if state.scaling else before
    filling = dict(state.scaling.tries) if state.scaling else {}
    tries = {slot: count for slot, count in filling.items() if slot < slots}
    tries |= dict.fromkeys(range(kept, slots), 0)
    return replace(
        state,
        routing=state.routing.with_slots(grown),
        manifests=(*state.manifests, *more),
        scaling=Scaling(slots, tuple(sorted(tries.items()))),
        sample=replace(state.sample, rows_out=(*state.sample.rows_out, *(0 for _ in more))),
    )


def resume(
    state: Committed, said: Iterable[tuple[Message, float]]
) -> tuple[Committed, tuple[Event, ...]]:
    """The state after what was said beside the batches, and the events that this was.

    Each message comes with the seconds that it took.
    """
    messages = list(said)
    moves, heard = delivered(state.moves, [message for message, _ in messages], state.clock_s)
    events = tuple(
        told_of(message, move, state.clock_s, batch=state.batch, seconds=took)
        for (message, move), (_, took) in zip(heard, messages, strict=True)
    )
    return replace(state, moves=moves), events


def _sampled(state: Committed, records: Mapping[int, SlotRecord]) -> Committed:
    known = (*state.sample.rows_out, *(0,) * state.routing.slots)[: state.routing.slots]
    made = tuple(
        rows + records[slot].rows_out - records[slot].rows_cleaned
        for slot, rows in enumerate(known)
    )
    return replace(state, sample=replace(state.sample, rows_out=made))


def _view(
    state: Committed, records: Mapping[int, SlotRecord], limits: Mapping[int, int | None]
) -> ClusterView:
    counts, taken = state.routing.counts(), busy(state.moves)
    slots = tuple(
        SlotView(
            slot,
            sum(records[slot].state_bytes),
            sum(records[slot].disk_bytes),
            limits.get(slot),
            counts[slot],
            state.sample.rows_out[slot],
            # A slot spills within a batch and is done at its end, so none is found in that mode.
            RELOCATING if slot in taken else NORMAL,
            records[slot].profile,
        )
        for slot in range(state.routing.slots)
    )
    # What was forced out and is not on disk any more, expired or back in memory, counts no longer.
    forced = min(state.forced_bytes, sum(slot.disk_bytes for slot in slots))
    growth = sum(slot.memory_bytes + slot.disk_bytes for slot in slots) - state.sample.state_bytes
    return ClusterView(slots, max(0, growth), forced)


def begin(state: Committed, decisions: Sequence[Move | ForceSpill]) -> Committed:
    """The state with decisions of a policy under way."""
    forces = tuple(
        (one.slot, Force(one.bytes, one.reason, one.below))
        for one in decisions
        if isinstance(one, ForceSpill)
    )
    wanted = [one for one in decisions if isinstance(one, Move)]
    new = [_relocation(state, number, move) for number, move in enumerate(wanted)]
    told = (
        told_of(ComputePartitionsToMove(move.move), move, state.clock_s, batch=state.batch)
        for move in new
    )
    return replace(
        state,
        moves=begun(state.moves, new),
        moves_begun=state.moves_begun + len(new),
        forces=(*state.forces, *forces),
        events=(*state.events, *told),
    )


def _relocation(state: Committed, number: int, move: Move) -> Relocation:
    return Relocation(
        state.moves_begun + number,
        move.sender,
        move.receiver,
        move.bytes,
        move.groups,
        move.everything,
        move.reason,
        since_s=state.clock_s,
        pick=move.pick,
    )


def _scaled(state: Committed, view: ClusterView, scaling: Scaling) -> Committed:
    """The next moves of a change of slots, or its end."""
    tries = dict(scaling.tries)
    full = len(filled(view, scaling.slots, tries)) == len(tries)
    if full and not state.moves and drained(view, scaling.slots):
        return _with_slots(state, scaling.slots)
    moves = scaling_moves(view, scaling.slots, tries)
    state = begin(state, moves)
    for move in moves:
        if move.receiver in tries:
            tries[move.receiver] += 1
    return replace(state, scaling=replace(scaling, tries=tuple(sorted(tries.items()))))


def _with_slots(state: Committed, slots: int) -> Committed:
    scaled = Scaled(state.batch, slots, (), 0, 0.0, f"the groups are shared by {slots}")
    return replace(
        state,
        routing=state.routing.with_slots(slots),
        manifests=state.manifests[:slots],
        scaling=None,
        events=(*state.events, scaled),
        sample=replace(state.sample, rows_out=state.sample.rows_out[:slots]),
    )
