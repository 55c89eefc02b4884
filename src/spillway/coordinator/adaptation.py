"""What the coordinator decides between batches: moves, forced spills, and the number of slots.

    adapt        compares the slots every so often and begins what the strategy says (DCAPE 4, 5)
    rescale      takes a wish for another number of slots
    resume       lets moves take what was said beside the batches
    give_up      ends parallel tracks that cannot be waited for

All are functions of committed states. What they begin is part of the next log record, so a crash
repeats none of it and loses none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from spillway.coordinator.coordinator import Committed, Sample, Scaling
from spillway.coordinator.moves import told_of
from spillway.errors import SettingsError
from spillway.metrics.events import Event, Scaled
from spillway.metrics.record import SlotRecord
from spillway.metrics.view import NORMAL, RELOCATING, ClusterView, SlotView
from spillway.operators.orders import Force
from spillway.policies.decision import Decision, ForceSpill, Move
from spillway.policies.flux import Thresholds
from spillway.policies.protocols import Protocols
from spillway.policies.rounds import Progress, Rounds
from spillway.policies.scaling import drained, filled, scaling_moves
from spillway.policies.strategy import Strategy
from spillway.protocols.engine import PROTOCOLS, begun, busy, delivered
from spillway.protocols.messages import ComputePartitionsToMove, GivenUp, Message
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.settings import Adapt, parse_bytes


@dataclass(frozen=True)
class Rules:
    """The strategy, and how often slots are compared."""

    strategy: Strategy
    #: Seconds of the query's clock from one evaluation to the next; or batches, where they are given.
    interval_s: float = 45.0
    interval_batches: int | None = None
    #: Bytes that move at a time; a larger amount goes in parts, one after the other. None: at once.
    part_bytes: int | None = None
    #: The same for the strategies of FLUX, which go in rounds.
    rounds: Rounds | None = None
    #: By which protocol groups move.
    protocols: Protocols = Protocols()
    #: How much of the name of a worker says who has the same memory tier: of a host, or an executor.
    place_names: int = 1

    @classmethod
    def of(cls, adapt: Adapt, life_us: int | None = None) -> Rules:
        """What the settings say; `life_us` is how long an old row counts, None: for ever."""
        protocols = Protocols(adapt.moves_name, None if life_us is None else life_us / 1e6)
        names = 1 if adapt.share == "host" else 2
        return replace(cls._of(adapt), protocols=protocols, place_names=names)

    @classmethod
    def _of(cls, adapt: Adapt) -> Rules:
        strategy = Strategy(
            adapt.strategy_name,
            adapt.relocation_threshold,
            adapt.productivity_ratio,
            adapt.spill_fraction,
            adapt.max_forced_bytes,
        )
        part_bytes = parse_bytes("relocation_bytes", adapt.relocation_bytes)
        every = adapt.interval_s, adapt.relocation_batches, part_bytes
        if not strategy.collects:
            return cls(strategy, *every)
        imbalance, least_s = adapt.imbalance_threshold, adapt.delta_min_s
        # Tuning begins with the paper's threshold.
        ratio = Thresholds.imbalance if isinstance(imbalance, str) else imbalance
        strategy = replace(strategy, flux=Thresholds(ratio, adapt.utilisation_threshold))
        rounds = Rounds(strategy, least_s, isinstance(imbalance, str))
        return cls(strategy, *every, rounds)

    def due(self, state: Committed) -> bool:
        """Whether the slots are to be compared now."""
        sample = state.sample
        if self.rounds is not None and sample.progress.collection.moving:
            return False
        if self.interval_batches is not None:
            return state.batch - sample.batch >= self.interval_batches
        elapsed_s = state.clock_s - sample.clock_s
        if self.rounds is not None:
            return self.rounds.due(sample.progress, elapsed_s)
        return elapsed_s >= self.interval_s

    def decided(self, state: Committed, view: ClusterView) -> tuple[Progress, tuple[Decision, ...]]:
        """What is to be done now, and where the rounds stand after it."""
        if self.rounds is None:
            return state.sample.progress, self.strategy.decide(view)
        return self.rounds.decided(state.sample.progress, view, state.clock_s)


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
    if rules.rounds is not None and state.sample.progress.collection.moving:
        return _watched(state, records, rules.rounds)
    # A round brings no rows, and its moves are what it is for.
    if state.round and state.scaling is None:
        return state
    view = _view(state, records, limits, rules.place_names)
    if state.scaling is not None:
        return _scaled(state, view, state.scaling, rules)
    if not rules.due(state):
        return state
    progress, decisions = rules.decided(state, view)
    begun_now = begin(state, _by_protocol(decisions, view, rules), rules.part_bytes)
    return _measured_anew(begun_now, view.state_bytes, progress)


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
        sample=_rescaled(state.sample, grown),
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


def give_up(state: Committed, reason: str) -> tuple[Committed, tuple[Event, ...]]:
    """The state with the parallel tracks given up, and the events that this was.

    Their senders serve the groups again; nothing was lost meanwhile.
    """
    tracks = [m for m in state.moves if m.phase is Phase.DUPLICATING]
    return resume(state, [(GivenUp(move.move, reason), 0.0) for move in tracks])


def _by_protocol(decisions: Sequence[Decision], view: ClusterView, rules: Rules) -> list[Decision]:
    return [rules.protocols.of(one, view) if isinstance(one, Move) else one for one in decisions]


def _sampled(state: Committed, records: Mapping[int, SlotRecord]) -> Committed:
    sample, slots = state.sample, range(state.routing.slots)
    made = _added(sample.rows_out, [records[s].rows_out - records[s].rows_cleaned for s in slots])
    took = _added(sample.rows_in, [sum(records[s].rows_in) for s in slots])
    busy_s = _added(sample.busy_s, [records[s].busy_s for s in slots])
    peak_s = sample.peak_s + max(records[s].busy_s for s in slots)
    measured = replace(sample, rows_out=made, rows_in=took, busy_s=busy_s, peak_s=peak_s)
    return replace(state, sample=measured)


_Number = TypeVar("_Number", int, float)


def _added(before: Sequence[_Number], more: Sequence[_Number]) -> tuple[_Number, ...]:
    """The sums by slot; a slot that is new had nothing before, and one that is gone has no more."""
    sums = tuple(old + new for old, new in zip(before, more, strict=False))
    return sums + tuple(more[len(before) :])


def _measured_anew(state: Committed, state_bytes: int, progress: Progress) -> Committed:
    none = (0,) * state.routing.slots
    sample = Sample(state.clock_s, state.batch, state_bytes, none, progress=progress)
    return replace(state, sample=sample)


def _watched(state: Committed, records: Mapping[int, SlotRecord], rounds: Rounds) -> Committed:
    """While the moves of a round are under way, and when they end (FLUX 5.3)."""
    sample = state.sample
    progress = sample.progress.seen(groups=any(move.groups for move in state.moves))
    if state.moves:
        return replace(state, sample=replace(sample, progress=progress))
    moving_s, rows = state.clock_s - sample.clock_s, sum(sample.rows_in)
    held = sum(sum(one.state_bytes) + sum(one.disk_bytes) for one in records.values())
    return _measured_anew(state, held, rounds.ended(progress, moving_s, rows))


def _view(
    state: Committed,
    records: Mapping[int, SlotRecord],
    limits: Mapping[int, int | None],
    place_names: int,
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
            state.sample.busy_s[slot],
            state.sample.rows_in[slot],
            _made_bytes(records[slot]),
            "/".join(records[slot].worker.split("/")[:place_names]),
        )
        for slot in range(state.routing.slots)
    )
    # What was forced out and is not on disk any more, expired or back in memory, counts no longer.
    forced = min(state.forced_bytes, sum(slot.disk_bytes for slot in slots))
    growth = sum(slot.memory_bytes + slot.disk_bytes for slot in slots) - state.sample.state_bytes
    span_s = state.clock_s - state.sample.clock_s
    return ClusterView(slots, max(0, growth), forced, span_s, state.sample.peak_s)


def _made_bytes(record: SlotRecord) -> tuple[tuple[str, int], ...]:
    made = len(record.made)
    return tuple(
        zip(record.made, record.state_bytes[len(record.state_bytes) - made :], strict=True)
    )


def begin(
    state: Committed, decisions: Sequence[Move | ForceSpill], part_bytes: int | None = None
) -> Committed:
    """The state with decisions of a policy under way."""
    forces = tuple(
        (one.slot, Force(one.bytes, one.reason, one.below))
        for one in decisions
        if isinstance(one, ForceSpill)
    )
    wanted = [one for one in decisions if isinstance(one, Move)]
    new = [_moved(state, number, move, part_bytes) for number, move in enumerate(wanted)]
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


def _moved(state: Committed, number: int, move: Move, part_bytes: int | None) -> GroupMove:
    """The first part of a move; groups with rows on disk, which go only all together, go at once.

    So do those of a parallel track, where nothing is sent.
    """
    kind = PROTOCOLS[move.protocol]
    whole = move.everything or move.pick is not None or kind is ParallelTrack
    most = move.bytes if whole or part_bytes is None else part_bytes
    part = min(move.bytes, most)
    return kind(
        state.moves_begun + number,
        move.sender,
        move.receiver,
        part,
        move.groups,
        move.everything,
        move.reason,
        since_s=state.clock_s,
        left_bytes=move.bytes - part,
        pick=move.pick,
    )


def _scaled(state: Committed, view: ClusterView, scaling: Scaling, rules: Rules) -> Committed:
    """The next moves of a change of slots, or its end."""
    tries = dict(scaling.tries)
    full = len(filled(view, scaling.slots, tries)) == len(tries)
    if full and not state.moves and drained(view, scaling.slots):
        return _with_slots(state, scaling.slots)
    moves = scaling_moves(view, scaling.slots, tries)
    state = begin(state, _by_protocol(moves, view, rules), rules.part_bytes)
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
        sample=_only(state.sample, slots),
    )


def _rescaled(sample: Sample, slots: int) -> Sample:
    """The sample once other moves have begun than those of a FLUX round, which end it."""
    rows_out = (*sample.rows_out, *(0 for _ in range(slots)))[:slots]
    return replace(sample, rows_out=rows_out, progress=Progress(tuner=sample.progress.tuner))


def _only(sample: Sample, slots: int) -> Sample:
    by_slot = {name: getattr(sample, name)[:slots] for name in ("rows_out", "busy_s", "rows_in")}
    return replace(sample, **by_slot)
