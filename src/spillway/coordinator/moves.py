"""What the moves under way mean for the plan of a batch, and what its records mean for them.

The protocol (spillway/protocols/relocation.py) knows phases and messages; a batch knows orders, a
routing and slot records. Everything here translates between the two, without state of its own.

From the batch that deactivates groups on, the split sends their rows to the receiver, where they are
parked; so the rows are where they will be needed, and reactivation needs no further exchange.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spillway.errors import QueryError
from spillway.metrics.events import (
    DeactivationAsked,
    GroupsChosen,
    GroupsDeactivated,
    GroupsReactivated,
    GroupsReceived,
    GroupsSent,
    MoveAsked,
    MoveEvent,
    MoveRolledBack,
    SendingAsked,
    SendingFailed,
)
from spillway.metrics.record import SlotRecord
from spillway.operators.orders import Arrive, Choose, Depart, Force, Leave, Order, Park, TakeBack
from spillway.protocols.messages import (
    ComputePartitionsToMove,
    Deactivated,
    DeactivatePartitions,
    Message,
    PartitionsToMove,
    Reactivated,
    Received,
    ReceivePartitions,
    SendFailed,
    SendPartitions,
)
from spillway.protocols.relocation import Phase, Relocation
from spillway.routing.routing import Routing

_EVENTS: dict[type[Message], type[MoveEvent]] = {
    ComputePartitionsToMove: MoveAsked,
    PartitionsToMove: GroupsChosen,
    DeactivatePartitions: DeactivationAsked,
    Deactivated: GroupsDeactivated,
    SendPartitions: SendingAsked,
    ReceivePartitions: GroupsSent,
    Received: GroupsReceived,
    Reactivated: GroupsReactivated,
    SendFailed: SendingFailed,
}


def orders_of(
    moves: Sequence[Relocation],
    forces: Sequence[tuple[int, Force]],
    manifests: Sequence[str | None],
) -> dict[int, tuple[Order, ...]]:
    """What each slot is told, for those that are told something."""
    found: dict[int, tuple[Order, ...]] = {}
    for move in moves:
        for slot, order in _orders(move, manifests):
            found[slot] = (*found.get(slot, ()), order)
    for slot, force in forces:
        found[slot] = (*found.get(slot, ()), force)
    return found


def _orders(move: Relocation, manifests: Sequence[str | None]) -> list[tuple[int, Order]]:
    sender, receiver = move.slots
    match move.phase:
        case Phase.COMPUTING:
            wanted = (move.wanted_bytes, move.wanted_groups, move.everything, move.pick)
            return [(sender, Choose(move.move, *wanted))]
        case Phase.DEACTIVATING:
            groups = (move.move, move.groups)
            return [(sender, Depart(*groups)), (receiver, Park(*groups))]
        case Phase.SENDING | Phase.RECEIVING:
            return [(receiver, Park(move.move, move.groups))]
        case Phase.REACTIVATING:
            return [(sender, Leave(move.move)), (receiver, Arrive(move.move, move.part))]
        case Phase.ROLLING_BACK:
            back = TakeBack(move.move, manifests[receiver])
            return [(sender, back), (receiver, Leave(move.move))]
        case Phase.ENDED:
            return []


def routed(routing: Routing, moves: Sequence[Relocation]) -> Routing:
    """The routing of a batch: groups go to the receiver, or back to the sender."""
    changes: dict[int, int] = {}
    for move in moves:
        if move.phase is Phase.DEACTIVATING:
            changes |= dict.fromkeys(move.groups, move.receiver)
        elif move.phase is Phase.ROLLING_BACK:
            changes |= dict.fromkeys(move.groups, move.sender)
    return routing.changed(changes)


def answers(moves: Sequence[Relocation], records: Mapping[int, SlotRecord]) -> list[Message]:
    """What a batch that ran under these moves says to them, now that it is committed."""
    found: list[Message] = []
    for move in moves:
        match move.phase:
            case Phase.COMPUTING:
                found.append(_choice(move, records[move.sender]))
            case Phase.DEACTIVATING:
                found.append(Deactivated(move.move))
            case Phase.REACTIVATING | Phase.ROLLING_BACK:
                found.append(Reactivated(move.move))
            case _:
                pass
    return found


def _choice(move: Relocation, record: SlotRecord) -> PartitionsToMove:
    for one in record.chosen:
        if one.move == move.move:
            return PartitionsToMove(move.move, one.groups, one.bytes, one.reason)
    raise QueryError(f"slot {move.sender} did not say which groups to move")


def told_of(
    message: Message,
    move: Relocation,
    now_s: float,
    *,
    batch: int,
    seconds: float | None = None,
) -> MoveEvent:
    """The event that a message is, from the move as it was when the message came."""
    back = isinstance(message, Reactivated) and move.phase is Phase.ROLLING_BACK
    kind = MoveRolledBack if back else _EVENTS[type(message)]
    values: dict[str, Any] = {"groups": move.groups, "bytes": move.bytes, "reason": move.reason}
    match message:
        case PartitionsToMove(groups=groups, bytes=size, reason=reason):
            values = {"groups": groups, "bytes": size, "reason": reason}
        case Received(bytes=size):
            values["bytes"] = size
        case SendFailed(reason=reason):
            values["reason"] = reason
        case ComputePartitionsToMove():
            values["bytes"] = move.wanted_bytes
        case _:
            pass
    took = now_s - move.since_s if seconds is None else seconds
    return kind(
        batch,
        move.sender,
        values["groups"],
        values["bytes"],
        round(took, 6),
        values["reason"],
        move.move,
        move.receiver,
    )
