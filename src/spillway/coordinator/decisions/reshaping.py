"""The join shape of each slot, decided when a batch is committed (PLANS 1.2).

    shapes_of    the shapes of the next plan
    reshape      the state after a commit, with the shapes of the slots from now on

A shape is part of the log record and of the plan's note, so a repeated batch has the same shape.
The results of a batch are the same in any shape.

A slot keeps its shape while it sends groups, because another shape would drop states of departed
groups. The coordinator keeps the new shape as the proposal, so that no other move begins first. A
parallel track sends nothing, so both its slots are evaluated as usual. A new `plan(...)` at a start
is like any change of shape, and comes with the first commit.

With many streams, the coordinator evaluates some slots per batch, to bound the time of a commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.plan import BatchPlan
from spillway.metrics.events import Reshaped
from spillway.metrics.record import SlotRecord
from spillway.plan.shape import Shape, flat
from spillway.policies.shape.costs import search_steps
from spillway.policies.shape.proposal import Proposal, Reshape
from spillway.policies.shape.shaping import NWAY, Shaping, SlotShape
from spillway.protocols.engine import busy
from spillway.protocols.parallel_track import ParallelTrack

#: Search steps for cheapest shapes per commit, a few microseconds each; more only if one slot needs
#: more.
MOST_STEPS = 10_000


def shapes_of(state: Committed, shaping: Shaping | None) -> tuple[Shape, ...]:
    """Returns the shape of each slot in the next plan; empty if all use the n-way join.

    A new slot begins with the most common shape.
    """
    known = [one.shape for one in state.shapes]
    if shaping is None or (not known and shaping.kind == NWAY):
        return ()
    usual = Counter(known).most_common(1)[0][0] if known else shaping.first
    slots = state.routing.slots
    return (*known[:slots], *(usual for _ in range(slots - len(known))))


def reshape(
    state: Committed,
    plan: BatchPlan,
    records: Mapping[int, SlotRecord],
    limits: Mapping[int, int | None],
    seconds: float,
    shaping: Shaping | None,
    paused: bool = False,
) -> Committed:
    """Returns the state after a commit, with the shapes that slots have from the next plan on.

    `seconds` is the time in which the rows of the batch came: since the previous batch. While `paused`,
    slots measure and keep their shapes.
    """
    if shaping is None or not plan.note.shapes:
        return state
    sending = busy(move for move in state.moves if not isinstance(move, ParallelTrack))
    evaluated = () if paused else _evaluated_now(state, limits, shaping)
    shapes, events = [], []
    for slot, shape in enumerate(plan.note.shapes[: state.routing.slots]):
        known = state.shapes[slot] if slot < len(state.shapes) else SlotShape(shape)
        known = replace(known, shape=shape)
        # A round brings no rows, and says nothing about rates.
        if state.round == 0:
            record = records[slot]
            known = shaping.observed(known, record, seconds)
            if slot in evaluated:
                room = _room(record, limits.get(slot), len(shaping.names))
                change, after = shaping.decided(slot, known, room)
                if change is not None and slot in sending:
                    after = replace(after, proposal=Proposal(change.shape, 1), chosen=known.chosen)
                elif change is not None:
                    events.append(_told(state, change, known.shape, record))
                    after = replace(after, shape=change.shape)
                known = after
        shapes.append(known)
    if shaping.kind == NWAY and all(one.shape == flat(shaping.names) for one in shapes):
        shapes = []
    return replace(state, shapes=tuple(shapes), events=(*state.events, *events))


def _evaluated_now(
    state: Committed, limits: Mapping[int, int | None], shaping: Shaping
) -> Collection[int]:
    """Returns the slots to evaluate after this batch."""
    slots = state.routing.slots
    if shaping.fixed is not None:
        return range(slots)
    limited = any(limit is not None for limit in limits.values())
    steps = search_steps(len(shaping.names), limited=limited)
    count = min(slots, max(1, MOST_STEPS // steps))
    return {(state.batch * count + at) % slots for at in range(count)}


def _room(record: SlotRecord, limit: int | None, streams: int) -> float | None:
    """Returns the bytes for intermediate states: memory minus the streams."""
    return None if limit is None else max(0, limit - sum(record.state_bytes[:streams]))


def _told(state: Committed, change: Reshape, before: Shape, record: SlotRecord) -> Reshaped:
    kept = {node.name for node in change.shape.inner()}
    made = zip(reversed(record.made), reversed(record.state_bytes), strict=False)
    dropped = sum(size for name, size in made if name not in kept)
    texts = (change.reason, str(before), str(change.shape))
    return Reshaped(state.batch, change.slot, (), dropped, 0.0, *texts)
