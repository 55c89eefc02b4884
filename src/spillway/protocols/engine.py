"""The protocol engine: all moves in progress, under one set of rules for all protocols.

A slot takes part in one move at a time, so moves are independent and a message reaches exactly one
of them. A slot that takes part is in relocation mode (DCAPE, Table 2): the coordinator orders no spill
from it. Unlike in the paper, it still spills other groups at its memory limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spillway.errors import BUG, QueryError
from spillway.protocols.messages import Message, Reactivated, SendPartitions
from spillway.protocols.move import GroupMove, Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.protocols.relocation import Relocation

PROTOCOLS: dict[str, type[GroupMove]] = {
    kind.protocol: kind for kind in (Relocation, ParallelTrack)
}


def begun(moves: Sequence[GroupMove], new: Sequence[GroupMove]) -> tuple[GroupMove, ...]:
    """Returns the moves plus new ones; rejects a slot that would be in two moves."""
    taken = busy(moves)
    for move in new:
        if move.sender == move.receiver or taken & set(move.slots):
            raise QueryError(
                f"slot {move.sender} cannot send to slot {move.receiver} now",
                detail=f"slots already in moves: {sorted(taken)}",
                hint=BUG,
            )
        taken |= set(move.slots)
    return (*moves, *new)


def delivered(
    moves: Sequence[GroupMove], messages: Iterable[Message], now_s: float = 0.0
) -> tuple[tuple[GroupMove, ...], list[tuple[Message, GroupMove]]]:
    """Delivers messages; returns the moves that continue, and each message with its prior move."""
    by_id = {move.move: move for move in moves}
    heard = []
    for message in messages:
        if message.move not in by_id:
            raise QueryError(
                f"{message} is for move {message.move}, which is not in progress", hint=BUG
            )
        before = by_id[message.move]
        heard.append((message, before))
        # The move itself asked for sending, so that message is not news to it.
        if not isinstance(message, SendPartitions):
            by_id[message.move] = before.step(message, now_s)
    return tuple(move for move in by_id.values() if move.phase is not Phase.ENDED), heard


def following(
    heard: Iterable[tuple[Message, GroupMove]], first: int, now_s: float = 0.0
) -> list[GroupMove]:
    """Returns the follow-up moves of those that ended well; the first gets the number `first`."""
    new: list[GroupMove] = []
    for message, before in heard:
        if isinstance(message, Reactivated) and before.phase is Phase.REACTIVATING:
            more = before.follower(first + len(new), now_s)
            new += [] if more is None else [more]
    return new


def busy(moves: Iterable[GroupMove]) -> set[int]:
    """Returns the slots that take part in a move."""
    return {slot for move in moves for slot in move.slots}
