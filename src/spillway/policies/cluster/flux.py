"""FLUX's global policies: groups move one by one until slots are equally busy or equally full.

    load     levels utilisation: the busiest slot gives to the idlest, the next to the next, towards
             the middle, one group for each pair (section 5.3)
    memory   the same by excess memory, which is negative if state does not fit (6.2)
    hybrid   by memory while anything is on disk, because that makes results late; else by load, but
             no group moves to a slot where it does not fit (6.4)

They work in a cycle: collect statistics, decide on moves, carry them out, collect again
(policies/cluster/collection.py).

The paper's controller knows the rows of every partition and names the one that moves. Here it knows
a few numbers of each slot, and names the share of the sender's load, or the bytes, that would level
the pair. The sender's own controller finds the group (policies/local/picking.py). Both assume, like
the paper, that a slot keeps its speed.

Known limitation: a decision may name a pair whose sender has no group that can move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.cluster.decision import Move, megabytes
from spillway.slot.orders import LOAD, SIZE, Pick

#: Limits the cost ratio of a row at the receiver and at the sender, in both directions. The fixed
#: work per batch makes a slot with few rows look slow, and without the limit it would never get
#: more.
_SPEEDS = 4.0


@dataclass(frozen=True)
class Thresholds:
    """When to leave a pair of slots as it is."""

    #: Leave it if the sender has less than this many times the receiver's: th_imb of section 5.3.
    imbalance: float = 1.2
    #: Leave it if the receiver's utilisation is above this: th_util.
    busy: float = 0.9


def load_moves(view: ClusterView, thresholds: Thresholds) -> tuple[Move, ...]:
    """Decides to move one group from the busier slot of each pair, if they differ enough.

    Example:
        >>> busy = SlotView(0, 10, 0, None, 8, 0, busy_s=9.0, rows_in=900)
        >>> idle = SlotView(1, 10, 0, None, 8, 0, busy_s=3.0, rows_in=300)
        >>> [move] = load_moves(ClusterView((busy, idle), span_s=10.0), Thresholds())
        >>> move.sender, move.receiver, round(move.pick.share, 3), move.reason
        (0, 1, 0.333, 'U_max/U_min = 0.90/0.30 = 3.00 >= 1.20')
    """
    return _levelled(view, thresholds, lambda _: None)


def hybrid_moves(view: ClusterView, thresholds: Thresholds) -> tuple[Move, ...]:
    """Decides by memory while a slot has state on disk; else by load, if receivers have room."""
    if any(slot.disk_bytes for slot in view.slots):
        return memory_moves(view, thresholds)
    return _levelled(view, thresholds, _free_bytes)


def memory_moves(view: ClusterView, thresholds: Thresholds) -> tuple[Move, ...]:
    """Decides to move one group to the slot with more excess memory, in each pair."""
    common = _common_bytes(view)
    mean = sum(_used(slot, common) for slot in view.slots) / max(len(view.slots), 1)
    pairs = _pairs(view, lambda slot: -_excess(slot, common))
    moves = (_memory_move(*pair, common, mean, thresholds) for pair in pairs)
    return tuple(move for move in moves if move is not None)


def _pairs(
    view: ClusterView, key: Callable[[SlotView], float]
) -> Iterator[tuple[SlotView, SlotView]]:
    """Pairs the slot with the most and the one with the least, and so on towards the middle."""
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
    # The share of the sender's load that makes both equally busy: U_d * (1 - s) = U_r + s * c.
    share = (1 - least / most) / (1 + cost / most)
    ratio = most / least if least > 0 else math.inf
    reason = f"U_max/U_min = {most:.2f}/{least:.2f} = {ratio:.2f} >= {thresholds.imbalance:.2f}"
    if free_bytes is not None:
        reason += f", room for {megabytes(free_bytes)}"
    pick = Pick(LOAD, share, free_bytes, cost / most, 1 / thresholds.imbalance)
    return Move(sender.slot, receiver.slot, 0, reason, pick=pick)


def _cost(sender: SlotView, receiver: SlotView, most: float, least: float) -> float:
    """Returns how busy all rows of the sender would keep the receiver: c."""
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
        why = (
            f"the sender lacks {megabytes(lacks)} of memory, the receiver has "
            f"{megabytes(spare)} free"
        )
        # A group that fits only at the receiver may move, even if that reverses the pair.
        most_bytes = max(apart // 2, min(spare, apart - 1))
    elif lacks > 0:
        # No slot has room, so the moves spread what is on disk.
        if lacks < thresholds.imbalance * -spare:
            return None
        why = (
            f"the sender lacks {megabytes(lacks)} of memory, the receiver lacks {megabytes(-spare)}"
        )
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
    """Returns the memory of a slot without a limit: the most that any other may have, or has."""
    return max((max(slot.limit_bytes or 0, slot.state_bytes) for slot in view.slots), default=0)


def _excess(slot: SlotView, common: int) -> int:
    """Returns memory minus state, which may be negative: the excess capacity of section 6.2."""
    return (common if slot.limit_bytes is None else slot.limit_bytes) - slot.state_bytes


def _used(slot: SlotView, common: int) -> float:
    return slot.state_bytes / max(common if slot.limit_bytes is None else slot.limit_bytes, 1)
