"""How a running query changes its slot count: by moves, a few at a time.

Retiring slots drain into the remaining ones; new slots fill from the fullest. Each call returns
moves between disjoint pairs of slots in normal mode. Repeated calls give every slot its share of
the bytes in memory; if there are none, of the groups, so that future rows are spread.

It terminates: a draining slot loses a group with every move, and a new slot gets at most as many
moves as there are slots. A slot with rows on disk drains at once: its groups only move all together,
see `movers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from spillway.metrics.view import NORMAL, ClusterView, SlotView
from spillway.policies.cluster.decision import Move

#: Fraction of its share that fills a new slot: the rest is not worth a move.
_FILLED = 0.8
#: A slot that would give nearly all it has gives everything.
_NEARLY_ALL = 0.9


@dataclass(frozen=True)
class _Share:
    """What is shared, and how much of it a slot has on average."""

    unit: str
    mean: int

    def of(self, slot: SlotView) -> int:
        """Returns what a slot has."""
        return slot.memory_bytes if self.unit == "bytes" else slot.groups

    def full(self, slot: SlotView) -> bool:
        """Whether a slot has about its share."""
        return slot.groups > 0 and self.of(slot) >= _FILLED * self.mean

    def move(self, sender: SlotView, receiver: SlotView, amount: int, why: str) -> Move:
        """Returns a move of an amount and at least one group, so that every move is progress."""
        size, groups = (amount, 1) if self.unit == "bytes" else (0, amount)
        reason = f"{why}: {amount} {self.unit} towards a mean of {self.mean}"
        return Move(sender.slot, receiver.slot, size, reason, groups)


def scaling_moves(view: ClusterView, slots: int, tries: Mapping[int, int]) -> tuple[Move, ...]:
    """Returns the next moves towards a slot count; none when it is reached or slots are busy.

    Args:
        view: All current and future slots.
        slots: The target number of slots.
        tries: The new slots, and the moves into each since scaling began.

    Example:
        >>> full, empty = SlotView(0, 100, 0, None, 8, 0), SlotView(1, 0, 0, None, 0, 0)
        >>> [(move.sender, move.receiver, move.bytes) for move in
        ...     scaling_moves(ClusterView((full, empty)), 2, {1: 0})]
        [(0, 1, 50)]
    """
    return _fills(view, slots, tries) if drained(view, slots) else _drains(view, slots)


def drained(view: ClusterView, slots: int) -> bool:
    """Whether no retiring slot has groups."""
    return not _leaving(view, slots)


def filled(view: ClusterView, slots: int, tries: Mapping[int, int]) -> tuple[int, ...]:
    """Returns the new slots that need no more moves."""
    wanting = {slot.slot for slot in _wanting(view, slots, tries)}
    return tuple(slot for slot in sorted(tries) if slot not in wanting)


def _leaving(view: ClusterView, slots: int) -> list[SlotView]:
    return [slot for slot in view.slots if slot.slot >= slots and slot.groups]


def _drains(view: ClusterView, slots: int) -> tuple[Move, ...]:
    """Returns moves out of retiring slots: the fullest into the emptiest."""
    share, leaving = _share(view, slots), _leaving(view, slots)
    remaining = [slot for slot in view.slots if slot.slot < slots]
    crowded = len(leaving) >= slots
    pairs = _pairs(share, leaving, remaining)
    return tuple(_drain(share, sender, receiver, crowded) for sender, receiver in pairs)


def _drain(share: _Share, sender: SlotView, receiver: SlotView, crowded: bool) -> Move:
    amount = max(1, share.mean - share.of(receiver))
    why = f"slot {sender.slot} retires"
    nearly_all = amount >= _NEARLY_ALL * share.of(sender)
    if crowded or nearly_all or sender.groups == 1 or sender.disk_bytes:
        whole = sender.memory_bytes, f"{why}: everything", sender.groups
        return Move(sender.slot, receiver.slot, *whole, everything=True)
    return share.move(sender, receiver, amount, why)


def _fills(view: ClusterView, slots: int, tries: Mapping[int, int]) -> tuple[Move, ...]:
    """Returns moves into new slots: from the fullest into the emptiest."""
    share = _fillable(view, slots)
    givers = [slot for slot in view.slots if _gives(share, slot)]
    pairs = _pairs(share, givers, _wanting(view, slots, tries))
    return tuple(_fill(share, sender, receiver) for sender, receiver in pairs)


def _fill(share: _Share, sender: SlotView, receiver: SlotView) -> Move:
    amount = min(share.of(sender) - share.mean, share.mean - share.of(receiver))
    return share.move(sender, receiver, max(1, amount), f"slot {receiver.slot} is new")


def _pairs(
    share: _Share, senders: Iterable[SlotView], receivers: Iterable[SlotView]
) -> Iterator[tuple[SlotView, SlotView]]:
    """Pairs the fullest sender with the emptiest receiver, and so on; busy slots wait."""
    full = sorted(_normal(senders), key=lambda slot: (-share.of(slot), slot.slot))
    empty = sorted(_normal(receivers), key=lambda slot: (share.of(slot), slot.slot))
    return zip(full, empty, strict=False)


def _normal(slots: Iterable[SlotView]) -> list[SlotView]:
    return [slot for slot in slots if slot.mode == NORMAL]


def _wanting(view: ClusterView, slots: int, tries: Mapping[int, int]) -> list[SlotView]:
    """Returns the new slots that need more moves."""
    by_bytes, fillable = _share(view, slots), _fillable(view, slots)
    most = len(view.slots)
    new = [slot for slot in view.slots if slot.slot < slots and tries.get(slot.slot, most) < most]
    return [slot for slot in new if not (by_bytes.full(slot) or fillable.full(slot))]


def _share(view: ClusterView, slots: int) -> _Share:
    """Shares bytes in memory; if there are none, groups."""
    mean = view.memory_bytes // slots
    return _Share("bytes", mean) if mean else _by_groups(view, slots)


def _fillable(view: ClusterView, slots: int) -> _Share:
    """The same, but shares groups also if no slot has bytes to give, such as all in one group."""
    share = _share(view, slots)
    return share if any(_gives(share, slot) for slot in view.slots) else _by_groups(view, slots)


def _by_groups(view: ClusterView, slots: int) -> _Share:
    return _Share("groups", sum(slot.groups for slot in view.slots) // slots)


def _gives(share: _Share, slot: SlotView) -> bool:
    return slot.groups > 1 and share.of(slot) > share.mean
