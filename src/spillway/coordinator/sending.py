"""What a host sends: groups that have left their sender and are not yet in transit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.decisions.adaptation import Rules
from spillway.coordinator.effects import SendGroups
from spillway.metrics.record import SlotRecord
from spillway.plan.shape import Shape
from spillway.protocols.move import GroupMove, Phase


def departed(state: Committed, sending: Collection[int]) -> list[GroupMove]:
    """Returns the moves whose groups have departed, without those that the host sends already."""
    return [
        move
        for move in state.moves
        if move.phase in (Phase.SENDING, Phase.RECEIVING) and move.move not in sending
    ]


def send_groups(
    move: GroupMove,
    state: Committed,
    shapes: Sequence[Shape],
    *,
    by_name: bool,
    room_bytes: int | None = None,
) -> SendGroups:
    """Returns the effect that sends a move; the receiver gets only made streams that its shape has."""
    manifest = state.manifests[move.sender]
    assert manifest is not None
    made = [node.name for node in shapes[move.receiver].inner()] if shapes else []
    return SendGroups(move, manifest, tuple(made), by_name, room_bytes)


def in_one_place(move: GroupMove, last: Mapping[int, SlotRecord], rules: Rules) -> bool:
    """Whether the slots of a move last ran where they share a memory tier."""
    if rules.always_sends or not set(move.slots) <= set(last):
        return False
    here, there = (last[slot].place(rules.place_names) for slot in move.slots)
    return here == there


def room_of(
    slot: int, last: Mapping[int, SlotRecord], limits: Mapping[int, int | None]
) -> int | None:
    """Returns the bytes that a slot can take before it reaches its limit; None: it has no limit."""
    limit = limits.get(slot)
    if limit is None or slot not in last:
        return limit
    return max(0, limit - sum(last[slot].state_bytes))
