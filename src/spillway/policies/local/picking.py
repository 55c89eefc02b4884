"""Picks the one group to move, when the coordinator asks for one (FLUX 5.3, 6.2).

    load   the group that makes the busier of both least busy: the busiest group with at most the
           share that would level them, or the idlest with more, if the receiver then stays clearly
           less busy than the sender is now
    size   the largest group with at most the bytes asked for; if none is that small, the smallest
           that fits at the receiver

FLUX takes the first group of a sorted list that makes the difference of a pair smaller, which may
reverse the pair. Here a pick by load reverses a pair only if the receiver ends clearly below what
the sender was, so the group cannot return. A pick by size reverses a pair only if a group fits into
the receiver's memory and not into the sender's.

A group with rows on disk goes only if no other qualifies, since it costs more to move. A slot keeps
at least one group.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import Floats, GroupTable, Ints
from spillway.slot.controller import ChosenGroups
from spillway.slot.orders import LOAD, Pick

#: Tolerance for rounding: shares, and the share asked for, are quotients.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Owned:
    """The groups of a slot, ascending; sizes in memory and on disk together."""

    groups: Ints
    size: Ints
    share: Floats
    on_disk: NDArray[np.bool_]


def picked(
    table: GroupTable, owned: Collection[int] | Ints, wanted_bytes: int, pick: Pick
) -> ChosenGroups:
    """Returns the group to move, or none.

    Args:
        table: The statistics of the slot's groups; empty for a slot without state.
        owned: The groups routed to the slot.
        wanted_bytes: Bytes that would level sender and receiver, for a pick by size.
        pick: The request.

    Example:
        >>> picked(GroupTable.empty(8), range(8), 0, Pick(LOAD, share=0.5)).reason
        'no group by load: none has at most 0.500 of the load'
    """
    own = _owned(table, owned)
    if pick.by == LOAD:
        return _by_load(own, pick)
    return _by_size(own, wanted_bytes, pick)


def _owned(table: GroupTable, owned: Collection[int] | Ints) -> _Owned:
    numbers = owned if isinstance(owned, np.ndarray) else np.fromiter(owned, np.int64, len(owned))
    # A slot never gives its only group; without state, no group is known to be worth a move.
    groups = np.unique(numbers) if len(table) and len(numbers) > 1 else numbers[:0]
    load = table.load[groups]
    size = table.bytes[:, groups].sum(axis=0) + table.disk_bytes[groups]
    on_disk = (table.disk_rows[groups] > 0) | (table.generations[groups] > 0)
    return _Owned(groups, size.astype(np.int64), load / max(float(load.sum()), 1e-300), on_disk)


def _by_load(own: _Owned, pick: Pick) -> ChosenGroups:
    there = (own.share > 0) & _roomy(own, pick)
    below = own.share <= pick.share + _ROUNDING
    at, how = _first(own, there & below, (own.size, -own.share)), ""
    # How busy the busier of the two ends, relative to the sender now.
    least = 1.0 if at is None else 1.0 - float(own.share[at])
    ends = 1.0 - pick.share + (own.share - pick.share) * pick.cost
    turning = ~below & (ends <= pick.ceiling) & (ends < least)
    beyond = _first(own, there & turning, (own.size, own.share))
    if beyond is not None:
        at, how = (
            beyond,
            (f", the receiver ends at {ends[beyond]:.2f} of the sender's present load"),
        )
    if at is None:
        return ChosenGroups(
            (), f"no group by load: none has at most {pick.share:.3f} of the load{_room(pick)}"
        )
    limit = "" if how else f", at most {pick.share:.3f}"
    has = f"{own.share[at]:.3f} of the load{limit}{how}"
    return ChosenGroups((int(own.groups[at]),), f"by load: 1 group, {has}{_room(pick)}")


def _by_size(own: _Owned, wanted_bytes: int, pick: Pick) -> ChosenGroups:
    there = (own.size > 0) & _roomy(own, pick)
    at = _first(own, there & (own.size <= wanted_bytes), (-own.size,))
    how = "largest that fits"
    if at is None and pick.most_bytes is not None:
        at, how = _first(own, there, (own.size,)), "smallest, because none fits"
    if at is None:
        return ChosenGroups((), f"no group by size: none has at most {wanted_bytes} bytes")
    return ChosenGroups(
        (int(own.groups[at]),), f"{how}: 1 group, {own.size[at]} of {wanted_bytes} bytes"
    )


def _roomy(own: _Owned, pick: Pick) -> NDArray[np.bool_]:
    if pick.most_bytes is None:
        return np.ones(len(own.groups), np.bool_)
    return np.asarray(own.size <= pick.most_bytes, np.bool_)


def _room(pick: Pick) -> str:
    return "" if pick.most_bytes is None else f", and at most {pick.most_bytes} bytes"


def _first(own: _Owned, able: NDArray[np.bool_], keys: tuple[Ints | Floats, ...]) -> int | None:
    """Returns the first eligible group: in memory first, then by the keys, the last one first."""
    places = np.flatnonzero(able)
    if not len(places):
        return None
    order = np.lexsort((*(key[places] for key in keys), own.on_disk[places]))
    return int(places[order[0]])
