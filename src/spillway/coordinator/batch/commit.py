"""The commit of a batch: one record per slot becomes the next committed state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spillway.coordinator.batch.committed import Committed, GivenUpTrack, wants_shape
from spillway.coordinator.batch.moves import announced, answers, told_of
from spillway.coordinator.batch.plan import BatchPlan
from spillway.errors import QueryError
from spillway.metrics.events import Event, ForceSpilled
from spillway.metrics.record import SlotRecord
from spillway.protocols.engine import begun, delivered, following
from spillway.protocols.messages import ComputePartitionsToMove
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.parallel_track import ParallelTrack


def commit_batch(
    state: Committed,
    plan: BatchPlan,
    records: Mapping[int, SlotRecord],
    lateness_us: Sequence[int | None],
    seconds: float = 0.0,
    meanwhile: Sequence[Event] = (),
) -> Committed:
    """Returns the state after a batch that took `seconds`, from one record per slot.

    `meanwhile` has the events since the last batch; the commit reports them too.
    """
    ordered = _in_order(plan, records)
    counted = _counted(state, ordered, lateness_us)
    after = replace(counted, clock_s=state.clock_s + seconds, forces=(), routing=plan.routing)
    after = _named(after, plan, state)
    if any(isinstance(m, ParallelTrack) and m.phase is Phase.ROLLING_BACK for m in plan.moves):
        after = replace(after, given_up=GivenUpTrack(state.watermark_us))
    return _stepped(after, plan, records, (*meanwhile, *(e for r in ordered for e in r.events)))


def _in_order(plan: BatchPlan, records: Mapping[int, SlotRecord]) -> list[SlotRecord]:
    missing = [slot for slot in range(plan.routing.slots) if slot not in records]
    if missing:
        raise QueryError(
            f"batch {plan.batch}: slots {missing} sent no record",
            hint="start the query again: it repeats the batch",
        )
    return [records[slot] for slot in range(plan.routing.slots)]


def _named(after: Committed, plan: BatchPlan, before: Committed) -> Committed:
    """Gives the state its place in the log: a batch, or a round after one."""
    is_round = plan.batch == before.batch
    return replace(
        after,
        batch=plan.batch,
        final_us=plan.watermark_us,
        rounds=before.rounds + is_round,
        round=before.round + 1 if is_round else 0,
        input_digest=before.input_digest if is_round else plan.note.input_digest,
    )


def _counted(
    state: Committed, ordered: Sequence[SlotRecord], lateness_us: Sequence[int | None]
) -> Committed:
    """Returns the state with what the slots hold and have counted."""
    max_times = tuple(
        _latest([seen, *(r.max_times[stream] for r in ordered)])
        for stream, seen in enumerate(state.max_times)
    )
    forced = sum(e.bytes for r in ordered for e in r.events if isinstance(e, ForceSpilled))
    return replace(
        state,
        manifests=tuple(record.manifest or None for record in ordered),
        max_times=max_times,
        watermark_us=next_watermark(state.watermark_us, max_times, lateness_us),
        rows_in=_added(state.rows_in, [r.rows_in for r in ordered]),
        rows_late=_added(state.rows_late, [r.rows_late for r in ordered]),
        rows_null=_added(
            state.rows_null or (0,) * len(state.rows_in),
            [r.rows_null for r in ordered if r.rows_null],
        ),
        rows_out=state.rows_out + sum(r.rows_out for r in ordered),
        rows_cleaned=state.rows_cleaned + sum(r.rows_cleaned for r in ordered),
        pending=tuple(sorted(one for r in ordered for one in r.pending)),
        decided_us=min((r.decided_us for r in ordered if r.decided_us is not None), default=None),
        spooled_rows=sum(r.spooled_rows for r in ordered),
        spooled_bytes=sum(r.spooled_bytes for r in ordered),
        forced_bytes=state.forced_bytes + forced,
        withheld=sum(r.withheld for r in ordered),
    )


def _stepped(
    state: Committed,
    plan: BatchPlan,
    records: Mapping[int, SlotRecord],
    events: tuple[Event, ...],
) -> Committed:
    """Returns the state with every move one step on, and all that happened as its events."""
    now_s = state.clock_s
    moves, heard = delivered(plan.moves, answers(plan.moves, records), now_s)
    may_follow = [
        (one, move)
        for one, move in heard
        if not _gives_way(state, move, records) and _has_room(plan, move, records)
    ]
    followers = following(may_follow, state.moves_begun, now_s)
    moves = begun(moves, followers)
    asked = [(ComputePartitionsToMove(move.move), move) for move in followers]
    said = [*heard, *announced(moves, heard), *asked]
    told = tuple(told_of(one, move, now_s, batch=plan.batch) for one, move in said)
    return replace(
        state, moves=moves, moves_begun=state.moves_begun + len(followers), events=(*events, *told)
    )


def _gives_way(state: Committed, move: GroupMove, records: Mapping[int, SlotRecord]) -> bool:
    """Whether the rest of a move waits, because one of its slots changes its shape first."""
    return any(wants_shape(state, slot, records[slot]) for slot in move.slots)


def _has_room(plan: BatchPlan, move: GroupMove, records: Mapping[int, SlotRecord]) -> bool:
    """Whether the next part of a move fits into the receiver's memory, and the sender has room."""
    more = {move.sender: 0, move.receiver: min(move.left_bytes, move.wanted_bytes)}
    return all(
        records[slot].demoted_bytes == 0
        and ((limit := plan.memory_bytes[slot]) is None or held + more[slot] <= limit)
        for slot, held in ((slot, sum(records[slot].state_bytes)) for slot in move.slots)
    )


def next_watermark(
    current: int | None, max_times: Sequence[int | None], lateness_us: Sequence[int | None]
) -> int | None:
    """Returns the least of (largest time - lateness) over the streams; it never goes back.

    A stream that was never seen holds the watermark; so does one without a window.

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
