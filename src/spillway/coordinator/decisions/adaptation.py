"""What the coordinator decides between batches: moves, forced spills and the slot count.

    adapt        compares the slots at intervals and begins what the strategy says (DCAPE 4, 5)
    rescale      takes a request for another slot count
    waits        whether that change only waits for rows to expire
    resume       delivers messages that came between batches to their moves
    begin        begins what a policy decided
    give_up      gives up all parallel tracks, with a reason
    tire         gives up those that have lasted too long

All are functions of committed states. What they begin is part of the next log record, so a crash
neither repeats nor loses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.coordinator.batch.committed import Committed, Sample, Scaling
from spillway.coordinator.batch.moves import told_of
from spillway.coordinator.decisions.measuring import measured_anew, only, rescaled, sampled, view_of
from spillway.errors import SettingsError
from spillway.metrics.events import Event, Scaled
from spillway.metrics.record import SlotRecord
from spillway.metrics.view import ClusterView
from spillway.policies.cluster.cycle import Cycle, Progress
from spillway.policies.cluster.decision import Decision, ForceSpill, Move
from spillway.policies.cluster.flux import Thresholds
from spillway.policies.cluster.protocols import Protocols
from spillway.policies.cluster.scaling import filled, scaling_moves
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.ring.slicing import emptied
from spillway.protocols.engine import PROTOCOLS, begun, delivered
from spillway.protocols.messages import ComputePartitionsToMove, GivenUp, Message
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.settings import Adapt, parse_bytes
from spillway.slot.orders import Force


@dataclass(frozen=True)
class Rules:
    """The strategy, and how often to compare slots."""

    strategy: Strategy
    #: Seconds of the query's clock between evaluations; or batches, if they are given.
    interval_s: float = 45.0
    interval_batches: int | None = None
    #: Bytes that move at a time; a larger amount goes in consecutive portions. None: at once.
    portion_bytes: int | None = None
    #: The same for the strategies of FLUX, which work in a cycle.
    cycle: Cycle | None = None
    protocols: Protocols = Protocols()
    #: How many names of a worker identify its memory tier: host, or executor.
    place_names: int = 1
    #: Whether to send state even to a slot that could take it over by name: simulators and tests do.
    always_sends: bool = False
    #: Whether no new move, forced spill, join shape or ring length begins; for users.
    paused: bool = False

    @classmethod
    def of(cls, adapt: Adapt, life_us: int | None = None) -> Rules:
        """Returns the rules of the settings; `life_us`: how long an old row counts, None: forever."""
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
        portion_bytes = parse_bytes("relocation_bytes", adapt.relocation_bytes)
        every = adapt.interval_s, adapt.relocation_batches, portion_bytes
        if not strategy.collects:
            return cls(strategy, *every)
        imbalance, least_s = adapt.imbalance_threshold, adapt.delta_min_s
        # Tuning begins with the paper's threshold.
        ratio = Thresholds.imbalance if isinstance(imbalance, str) else imbalance
        strategy = replace(strategy, flux=Thresholds(ratio, adapt.utilisation_threshold))
        cycle = Cycle(strategy, least_s, isinstance(imbalance, str))
        return cls(strategy, *every, cycle)

    def due(self, state: Committed) -> bool:
        """Whether to compare the slots now."""
        if self.paused:
            return False
        sample = state.sample
        if self.cycle is not None and sample.progress.collection.moving:
            return False
        if self.interval_batches is not None:
            return state.batch - sample.batch >= self.interval_batches
        elapsed_s = state.clock_s - sample.clock_s
        if self.cycle is not None:
            return self.cycle.due(sample.progress, elapsed_s)
        return elapsed_s >= self.interval_s

    def decided(self, state: Committed, view: ClusterView) -> tuple[Progress, tuple[Decision, ...]]:
        """Returns what to do now, and the progress of the cycle."""
        if self.cycle is None:
            return state.sample.progress, self.strategy.decide(view)
        return self.cycle.decided(state.sample.progress, view, state.clock_s)


def adapt(
    state: Committed,
    records: Mapping[int, SlotRecord],
    limits: Mapping[int, int | None],
    rules: Rules,
    period_s: float = 0.0,
) -> Committed:
    """Returns the state after a commit, with what begins now.

    `period_s` is the time since the previous batch, including pauses; 0: not known.
    """
    if state.scaling is None and not rules.strategy.relocates:
        # No strategy compares the slots, so nothing is measured: `rescale` starts it.
        return state if state.sample == Sample() else replace(state, sample=Sample())
    state = sampled(state, records, period_s)
    if rules.cycle is not None and state.sample.progress.collection.moving:
        return _watched(state, records, rules.cycle)
    # A round brings no rows, and exists for its moves.
    if state.round and state.scaling is None:
        return state
    gone, protocols = state.given_up, rules.protocols
    stalled = gone is not None and protocols.waits(state.watermark_us, gone.watermark_us)
    view = view_of(state, records, limits, rules.place_names, stalled=stalled)
    if state.scaling is not None:
        return _scaled(state, records, view, state.scaling, rules)
    if not rules.due(state):
        return state
    progress, decisions = rules.decided(state, view)
    begun_now = begin(state, _by_protocol(decisions, view, rules), rules.portion_bytes)
    return measured_anew(begun_now, view.state_bytes, progress)


def rescale(state: Committed, slots: int, *, passive: bool = False, reason: str = "") -> Committed:
    """Returns the state with a request for another slot count; new slots start empty.

    Passive: no group moves to fill or to empty a slot; see coordinator/decisions/smoothing.py.
    """
    if slots < 1 or slots > state.routing.groups:
        raise SettingsError(
            f"{slots} slots cannot share {state.routing.groups} groups",
            hint=f"use at least one slot, and at most {state.routing.groups}",
        )
    before = state.routing.slots
    grown = max(slots, before)
    more: tuple[None, ...] = (None,) * (grown - before)
    # A slot that was filling continues, unless it retires. A retiring slot that is needed again may
    # already be drained, so it is filled too.
    kept = state.scaling.slots if state.scaling else before
    filling = dict(state.scaling.tries) if state.scaling else {}
    tries = {slot: count for slot, count in filling.items() if slot < slots}
    tries |= dict.fromkeys(range(kept, slots), 0)
    filling_now = () if passive else tuple(sorted(tries.items()))
    return replace(
        state,
        routing=state.routing.with_slots(grown),
        manifests=(*state.manifests, *more),
        scaling=Scaling(slots, filling_now, passive, reason),
        sample=rescaled(state, grown),
    )


def waits(state: Committed, records: Mapping[int, SlotRecord]) -> bool:
    """Whether a change of slots only waits for rows of retiring slots to expire.

    A round after the last batch drops what has expired with it; further rounds change nothing.
    """
    scaling = state.scaling
    if scaling is None or state.moves or state.round == 0:
        return False
    return _routed(state, scaling) and _holding(state, records, scaling)


def resume(
    state: Committed, said: Iterable[tuple[Message, float]]
) -> tuple[Committed, tuple[Event, ...]]:
    """Returns the state after messages between batches, and their events.

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
    """Returns the state with the parallel tracks given up, and their events.

    Their senders serve the groups again; nothing was lost meanwhile.
    """
    return _given_up(state, lambda _: reason)


def tire(state: Committed, rules: Rules, batch_s: float) -> tuple[Committed, tuple[Event, ...]]:
    """Does the same for tracks that have lasted too long; a batch takes `batch_s`."""
    protocols, now_s = rules.protocols, state.clock_s
    return _given_up(state, lambda since_s: protocols.impatience(now_s - since_s, batch_s))


def _given_up(state: Committed, why: Callable[[float], str]) -> tuple[Committed, tuple[Event, ...]]:
    """Gives up the tracks for which `why`, called with their start, returns a reason."""
    tracks = [m for m in state.moves if m.phase is Phase.DUPLICATING]
    said = [(GivenUp(m.move, reason), 0.0) for m in tracks if (reason := why(m.since_s))]
    return resume(state, said)


def _by_protocol(decisions: Sequence[Decision], view: ClusterView, rules: Rules) -> list[Decision]:
    return [rules.protocols.of(one, view) if isinstance(one, Move) else one for one in decisions]


def _watched(state: Committed, records: Mapping[int, SlotRecord], cycle: Cycle) -> Committed:
    """Returns the state while the moves of a cycle run, and when they end (FLUX 5.3)."""
    sample = state.sample
    progress = sample.progress.seen(groups=any(move.groups for move in state.moves))
    if state.moves:
        return replace(state, sample=replace(sample, progress=progress))
    moving_s, rows = state.clock_s - sample.clock_s, sum(sample.rows_in)
    held = sum(sum(one.state_bytes) + sum(one.disk_bytes) for one in records.values())
    return measured_anew(state, held, cycle.ended(progress, moving_s, rows))


def begin(
    state: Committed, decisions: Sequence[Move | ForceSpill], portion_bytes: int | None = None
) -> Committed:
    """Returns the state with the decisions of a policy begun."""
    forces = tuple(
        (one.slot, Force(one.bytes, one.reason, one.below))
        for one in decisions
        if isinstance(one, ForceSpill)
    )
    wanted = [one for one in decisions if isinstance(one, Move)]
    new = [_moved(state, number, move, portion_bytes) for number, move in enumerate(wanted)]
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


def _moved(state: Committed, number: int, move: Move, portion_bytes: int | None) -> GroupMove:
    """Returns the first portion of a move; groups with rows on disk move all at once.

    So do those of a parallel track, which sends nothing.
    """
    kind = PROTOCOLS[move.protocol]
    whole = move.everything or move.pick is not None or kind is ParallelTrack
    most = move.bytes if whole or portion_bytes is None else portion_bytes
    portion = min(move.bytes, most)
    return kind(
        state.moves_begun + number,
        move.sender,
        move.receiver,
        portion,
        move.groups,
        move.everything,
        move.reason,
        since_s=state.clock_s,
        left_bytes=move.bytes - portion,
        pick=move.pick,
    )


def _scaled(
    state: Committed,
    records: Mapping[int, SlotRecord],
    view: ClusterView,
    scaling: Scaling,
    rules: Rules,
) -> Committed:
    """Returns the state with the next moves of a change of slots, or with its end."""
    tries = dict(scaling.tries)
    full = len(filled(view, scaling.slots, tries)) == len(tries)
    # Rerouted slices leave rows behind, so a slot without groups may still have some.
    left = _routed(state, scaling) and not _holding(state, records, scaling)
    if full and left and not state.moves:
        return _with_slots(state, scaling)
    if scaling.passive:
        return state
    moves = scaling_moves(view, scaling.slots, tries)
    state = begin(state, _by_protocol(moves, view, rules), rules.portion_bytes)
    for move in moves:
        if move.receiver in tries:
            tries[move.receiver] += 1
    return replace(state, scaling=replace(scaling, tries=tuple(sorted(tries.items()))))


def _routed(state: Committed, scaling: Scaling) -> bool:
    """Whether no retiring slot has groups; and, if none moves, all others have some."""
    table, slots = state.routing.table, scaling.slots
    return emptied(table, slots) and (not scaling.passive or len(set(table)) == slots)


def _holding(state: Committed, records: Mapping[int, SlotRecord], scaling: Scaling) -> bool:
    """Whether a retiring slot has rows, in memory or on disk."""
    leaving = range(scaling.slots, state.routing.slots)
    known = [records[slot] for slot in leaving if slot in records]
    return any(sum(one.held_rows) for one in known)


def _with_slots(state: Committed, scaling: Scaling) -> Committed:
    slots, told = scaling.slots, f"{scaling.slots} slots now share the groups"
    reason = f"{told}: {scaling.reason}" if scaling.reason else told
    scaled = Scaled(state.batch, slots, (), 0, 0.0, reason)
    return replace(
        state,
        routing=state.routing.with_slots(slots),
        manifests=state.manifests[:slots],
        scaling=None,
        events=(*state.events, scaled),
        sample=only(state.sample, slots),
    )
