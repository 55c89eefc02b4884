"""FLUX's global policies: groups move one by one until slots are equally busy, or equally full.

    load     utilisation is levelled: the busiest slot gives to the idlest, the next to the next, towards
             the middle, one group for each pair (section 5.3)
    memory   the same by excess memory, which is negative where state has no room (6.2)
    hybrid   by memory while anything is on disk, since that is what makes results late; else by load,
             and then no group goes where it has no room (6.4)

They go in rounds: statistics are collected for a while, a round of moves is decided and carried out, and
only then are statistics collected again (policies/cluster/collection.py).

The paper's controller knows the rows of every partition and names the one that goes. Here it knows a
few numbers of each slot; it names the share of the sender's load, or the bytes, that would level the
pair, and the sender's own controller finds the group (policies/local/picking.py). Both assume, as the
paper does, that a slot goes on processing at the speed it has.

Known limitation: a pair that differs is decided on even if the sender has no group that it can move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.cluster.decision import Move, megabytes
from spillway.slot.orders import LOAD, SIZE, Pick

#: A receiver's row is taken to cost at most so many times a sender's, and at least one in so many: what
#: a slot does once in a batch makes one with few rows look slow, and it would never get more.
_SPEEDS = 4.0


@dataclass(frozen=True)
class Thresholds:
    """When a pair of slots is left as it is."""

    #: The sender has less than so many times what the receiver has: th_imb of section 5.3.
    imbalance: float = 1.2
    #: The receiver's utilisation is above it: th_util.
    busy: float = 0.9


def load_moves(view: ClusterView, thresholds: Thresholds) -> tuple[Move, ...]:
    """One group from the busier slot of each pair to the other, where they differ enough.

    Example:
        >>> busy = SlotView(0, 10, 0, None, 8, 0, busy_s=9.0, rows_in=900)
        >>> idle = SlotView(1, 10, 0, None, 8, 0, busy_s=3.0, rows_in=300)
        >>> [move] = load_moves(ClusterView((busy, idle), span_s=10.0), Thresholds())
        >>> move.sender, move.receiver, round(move.pick.share, 3), move.reason
        (0, 1, 0.333, 'U_max/U_min = 0.90/0.30 = 3.00 >= 1.20')
    """
    return _levelled(view, thresholds, lambda _: None)


def hybrid_moves(view: ClusterView, thresholds: Thresholds) -> tuple[Move, ...]:
    """By memory while a slot has state on disk; else by load, as far as receivers have room."""
    if any(slot.disk_bytes for slot in view.slots):
        return memory_moves(view, thresholds)
    return _levelled(view, thresholds, _free_bytes)


def memory_moves(view: ClusterView, thresholds: Thresholds) -> tuple[Move, ...]:
    """One group from the slot with less excess memory of each pair to the other."""
    common = _common_bytes(view)
    mean = sum(_used(slot, common) for slot in view.slots) / max(len(view.slots), 1)
    pairs = _pairs(view, lambda slot: -_excess(slot, common))
    moves = (_memory_move(*pair, common, mean, thresholds) for pair in pairs)
    return tuple(move for move in moves if move is not None)


def _pairs(
    view: ClusterView, key: Callable[[SlotView], float]
) -> Iterator[tuple[SlotView, SlotView]]:
    """The slot with the most and the one with the least, and so on towards the middle."""
    most_first = sorted(view.normal, key=lambda slot: (-key(slot), slot.slot))
    return zip(most_first[: len(most_first) // 2], reversed(most_first), strict=False)


def _levelled(
    view: ClusterView, thresholds: Thresholds, free_bytes: Callable[[SlotView], int | None]
) -> tuple[Move, ...]:
    mean = sum(map(view.utilisation, view.slots)) / max(len(view.slots), 1)
    moves = (
        _load_move(view, sender, receiver, mean, thresholds, free_bytes(receiver))
        for sender, receiver in _pairs(view, view.utilisation)
    )
    return tuple(move for move in moves if move is not None)


def _load_move(
    view: ClusterView,
    sender: SlotView,
    receiver: SlotView,
    mean: float,
    thresholds: Thresholds,
    free_bytes: int | None,
) -> Move | None:
    most, least = view.utilisation(sender), view.utilisation(receiver)
    uneven = most > least and most >= mean and most >= thresholds.imbalance * least
    if not uneven or least > thresholds.busy or sender.groups < 2 or free_bytes == 0:
        return None
    cost = _cost(sender, receiver, most, least)
    # The part of the sender's load that leaves both equally busy: U_d * (1 - s) = U_r + s * c.
    share = (1 - least / most) / (1 + cost / most)
    ratio = most / least if least > 0 else math.inf
    reason = f"U_max/U_min = {most:.2f}/{least:.2f} = {ratio:.2f} >= {thresholds.imbalance:.2f}"
    if free_bytes is not None:
        reason += f", room for {megabytes(free_bytes)}"
    pick = Pick(LOAD, share, free_bytes, cost / most, 1 / thresholds.imbalance)
    return Move(sender.slot, receiver.slot, 0, reason, pick=pick)


def _cost(sender: SlotView, receiver: SlotView, most: float, least: float) -> float:
    """How busy all rows of the sender would keep the receiver: c."""
    known = sender.rows_in and receiver.rows_in
    cost = least * sender.rows_in / receiver.rows_in if known and least > 0 else most
    return min(max(cost, most / _SPEEDS), most * _SPEEDS)


def _memory_move(
    sender: SlotView,
    receiver: SlotView,
    common: int,
    mean: float,
    thresholds: Thresholds,
) -> Move | None:
    lacks, spare = -_excess(sender, common), _excess(receiver, common)
    apart, most_bytes = spare + lacks, None
    if apart < 2 or sender.groups < 2:
        return None
    if lacks > 0 and spare >= 0:
        why = f"{megabytes(lacks)} have no room, the other has room for {megabytes(spare)}"
        # A group without room here that has room there may go although the pair is turned round.
        most_bytes = max(apart // 2, min(spare, apart - 1))
    elif lacks > 0:
        # Nobody has room, and what is on disk is spread.
        if lacks < thresholds.imbalance * -spare:
            return None
        why = f"{megabytes(lacks)} have no room, at the other {megabytes(-spare)}"
        why += f": ratio {lacks / -spare:.2f} >= {thresholds.imbalance:.2f}"
    else:
        most, least = _used(sender, common), _used(receiver, common)
        if most < mean or most < thresholds.imbalance * least:
            return None
        why = f"memory filled to {most:.2f} and {least:.2f}, ratio >= {thresholds.imbalance:.2f}"
    pick = Pick(SIZE, most_bytes=most_bytes)
    return Move(sender.slot, receiver.slot, apart // 2, why, pick=pick)


def _free_bytes(slot: SlotView) -> int | None:
    return None if slot.limit_bytes is None else max(0, slot.limit_bytes - slot.state_bytes)


def _common_bytes(view: ClusterView) -> int:
    """The memory of a slot without a limit: as much as any other may have, or has."""
    return max((max(slot.limit_bytes or 0, slot.state_bytes) for slot in view.slots), default=0)


def _excess(slot: SlotView, common: int) -> int:
    """Memory beyond the state, or less than nothing: the excess capacity of section 6.2."""
    return (common if slot.limit_bytes is None else slot.limit_bytes) - slot.state_bytes


def _used(slot: SlotView, common: int) -> float:
    return slot.state_bytes / max(common if slot.limit_bytes is None else slot.limit_bytes, 1)
