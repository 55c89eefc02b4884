"""The protocol engine: all moves of a query that are under way, by one set of rules.

A slot takes part in one move at a time, so moves are independent of one another and a message reaches
exactly one of them. A slot that takes part is in relocation mode (DCAPE, Table 2): it moves nothing out
of memory meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spillway.errors import QueryError
from spillway.protocols.messages import Message
from spillway.protocols.relocation import Phase, Relocation


def begun(moves: Sequence[Relocation], new: Relocation) -> tuple[Relocation, ...]:
    """The moves with one more; refused if one of its slots is taking part in another."""
    taken = busy(moves)
    if new.sender == new.receiver or taken & set(new.slots):
        raise QueryError(
            f"slot {new.sender} cannot send to slot {new.receiver} now",
            detail=f"slots that take part in moves: {sorted(taken)}",
        )
    return (*moves, new)


def delivered(
    moves: Sequence[Relocation], messages: Iterable[Message], now_s: float = 0.0
) -> tuple[tuple[Relocation, ...], tuple[Relocation, ...]]:
    """The moves after some messages: those that go on, and those that have ended."""
    by_id = {move.move: move for move in moves}
    for message in messages:
        if message.move not in by_id:
            raise QueryError(f"there is no move {message.move} that could take {message}")
        by_id[message.move] = by_id[message.move].step(message, now_s)
    ended = tuple(move for move in by_id.values() if move.phase is Phase.ENDED)
    return tuple(move for move in by_id.values() if move.phase is not Phase.ENDED), ended


def busy(moves: Iterable[Relocation]) -> set[int]:
    """The slots that take part in a move."""
    return {slot for move in moves for slot in move.slots}
