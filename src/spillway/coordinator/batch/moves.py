"""Translates moves in progress into the plan of a batch, and its records into messages.

The protocols (spillway/protocols) know phases and messages; a batch knows orders, a routing and
slot records. This module has no state.

From the batch that deactivates groups on, the split sends their rows to the receiver, which parks
them. So the rows are already where they will be needed, and reactivation needs no exchange. While
rows are duplicated they also go to the receiver, and copies go to the sender.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spillway.errors import QueryError
from spillway.metrics.events import (
    DeactivationAsked,
    DuplicationAsked,
    GroupsChosen,
    GroupsDeactivated,
    GroupsDeleted,
    GroupsReactivated,
    GroupsReceived,
    GroupsSent,
    MoveAsked,
    MoveEvent,
    MoveRolledBack,
    OldPurged,
    SendingAsked,
    SendingFailed,
    TrackGivenUp,
)
from spillway.metrics.record import SlotRecord
from spillway.protocols.messages import (
    AllOldPurged,
    ComputePartitionsToMove,
    Deactivated,
    DeactivatePartitions,
    DuplicatePartitions,
    EndOfPartitions,
    GivenUp,
    Message,
    PartitionsToMove,
    Reactivated,
    Received,
    ReceivePartitions,
    SendFailed,
    SendPartitions,
)
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.routing.routing import Routing
from spillway.slot.orders import (
    Arrive,
    Choose,
    Delete,
    Depart,
    Duplicate,
    Force,
    Leave,
    Order,
    Park,
    Rejoin,
    Shadow,
    TakeBack,
)

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
    DuplicatePartitions: DuplicationAsked,
    AllOldPurged: OldPurged,
    EndOfPartitions: GroupsDeleted,
    GivenUp: TrackGivenUp,
}
#: Reported when it is ordered, not when it is done.
_ANNOUNCED = DeactivatePartitions | DuplicatePartitions


def orders_of(
    moves: Sequence[GroupMove],
    forces: Sequence[tuple[int, Force]],
    manifests: Sequence[str | None],
) -> dict[int, tuple[Order, ...]]:
    """Returns the orders of each slot that has any."""
    found: dict[int, tuple[Order, ...]] = {}
    for move in moves:
        for slot, order in _orders(move, manifests):
            found[slot] = (*found.get(slot, ()), order)
    for slot, force in forces:
        found[slot] = (*found.get(slot, ()), force)
    return found


def _orders(move: GroupMove, manifests: Sequence[str | None]) -> list[tuple[int, Order]]:
    sender, receiver = move.slots
    match move.phase:
        case Phase.COMPUTING:
            wanted = (move.wanted_bytes, move.wanted_groups, move.everything, move.pick)
            tracked = isinstance(move, ParallelTrack)
            return [(sender, Choose(move.move, *wanted, in_memory=tracked))]
        case Phase.DEACTIVATING:
            groups = (move.move, move.groups)
            return [(sender, Depart(*groups)), (receiver, Park(*groups))]
        case Phase.SENDING | Phase.RECEIVING:
            return [(receiver, Park(move.move, move.groups))]
        case Phase.REACTIVATING:
            return [(sender, Leave(move.move)), (receiver, Arrive(move.move, move.part))]
        case Phase.DUPLICATING:
            groups = (move.move, move.groups)
            return [(sender, Duplicate(*groups)), (receiver, Shadow(*groups))]
        case Phase.DELETING:
            return [(sender, Delete(move.move, move.groups))]
        case Phase.ROLLING_BACK if isinstance(move, ParallelTrack):
            return [(sender, Rejoin(move.move)), (receiver, Delete(move.move, move.groups))]
        case Phase.ROLLING_BACK:
            back = TakeBack(move.move, manifests[receiver])
            return [(sender, back), (receiver, Leave(move.move))]
        case Phase.ENDED:
            return []


def routed(routing: Routing, moves: Sequence[GroupMove]) -> Routing:
    """Returns the routing of a batch: groups go to the receiver, or back to the sender."""
    changes: dict[int, int] = {}
    for move in moves:
        if move.phase in (Phase.DEACTIVATING, Phase.DUPLICATING):
            changes |= dict.fromkeys(move.groups, move.receiver)
        elif move.phase is Phase.ROLLING_BACK:
            changes |= dict.fromkeys(move.groups, move.sender)
    return routing.changed(changes)


def copied(moves: Sequence[GroupMove]) -> dict[int, int]:
    """Returns the groups whose rows also go to another slot, and which slot."""
    return {
        group: move.sender
        for move in moves
        if move.phase is Phase.DUPLICATING
        for group in move.groups
    }


def announced(
    moves: Sequence[GroupMove], heard: Sequence[tuple[Message, GroupMove]]
) -> list[tuple[Message, GroupMove]]:
    """Returns what moves that have just taken a step ask of split and slots."""
    stepped = {before.move for _, before in heard}
    said = [(move.says, move) for move in moves if move.move in stepped]
    return [(message, move) for message, move in said if isinstance(message, _ANNOUNCED)]


def answers(moves: Sequence[GroupMove], records: Mapping[int, SlotRecord]) -> list[Message]:
    """Returns the messages of a committed batch to its moves."""
    found: list[Message] = []
    for move in moves:
        match move.phase:
            case Phase.COMPUTING:
                found.append(_choice(move, records[move.sender]))
            case Phase.DEACTIVATING:
                found.append(Deactivated(move.move))
            case Phase.DUPLICATING:
                purged = move.move in records[move.sender].purged
                found += [AllOldPurged(move.move)] if purged else []
            case Phase.DELETING | Phase.ROLLING_BACK if isinstance(move, ParallelTrack):
                found.append(EndOfPartitions(move.move))
            case Phase.REACTIVATING | Phase.ROLLING_BACK:
                found.append(Reactivated(move.move))
            case _:
                pass
    return found


def _choice(move: GroupMove, record: SlotRecord) -> PartitionsToMove:
    for one in record.chosen:
        if one.move == move.move:
            return PartitionsToMove(move.move, one.groups, one.bytes, one.reason)
    raise QueryError(
        f"slot {move.sender} did not report which groups to send in move {move.move}",
        hint="start the query again: it repeats the batch",
    )


def told_of(
    message: Message,
    move: GroupMove,
    now_s: float,
    *,
    batch: int,
    seconds: float | None = None,
) -> MoveEvent:
    """Returns the event of a message, from the move as it was before the message."""
    ended = isinstance(message, Reactivated | EndOfPartitions)
    back = ended and move.phase is Phase.ROLLING_BACK
    kind = MoveRolledBack if back else _EVENTS[type(message)]
    values: dict[str, Any] = {"groups": move.groups, "bytes": move.bytes, "reason": move.reason}
    match message:
        case PartitionsToMove(groups=groups, bytes=size, reason=reason):
            values = {"groups": groups, "bytes": size, "reason": reason}
        case Received(bytes=size):
            values["bytes"] = size
        case SendFailed(reason=reason) | GivenUp(reason=reason):
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
