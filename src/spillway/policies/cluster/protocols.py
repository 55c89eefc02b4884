"""By which protocol groups move: by moving their state, or by a parallel track (PLANS 5.3).

    mslb    the state travels, what the receiver's plan has no use for is dropped, and what it lacks is
            made again
    ptlb    no state travels; sender and receiver both process the new rows until the old ones are gone
    auto    what costs less, for each move

Both costs are seconds of work. Moving state costs its bytes; a parallel track costs what the sender goes
on to do for the groups, which is their share of its load for as long as an old row counts: a time of the
stream, so the load is what it does in a second of that, pauses between batches included. Where a slot
has rows on disk state is always sent: a group of a track is in memory, so that it has no missing
results, and while there is a track neither slot spills or takes anything back.

A track ends when the watermark has passed its old rows. Where that stands, because a stream is silent or
a row is far ahead of its time, a track would have two slots do the same work for ever. So it is given up
when it has lasted too long, and state is sent until the watermark has moved by as much as a track needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.cluster.decision import Move
from spillway.settings import MSLB, PTLB
from spillway.slot.orders import LOAD

#: Bytes that are sent in a second beside the batches: about `sent_bytes_per_s` of
#: bench/results/relocate.json; and bytes of intermediate states that are made, as `FILL_ROWS` says
#: (operators/equi/tree.py).
SENT_BYTES_S = 15e6
MADE_BYTES_S = 200e6
#: What a move by sending costs besides: the jobs of its steps, and rows that wait meanwhile.
LEAST_SENT_S = 0.5
#: A track is given up after so many times its life, in the query's own time. It takes one life where
#: event times keep pace with that clock, and less where they catch up; with three it is waited for in a
#: query that keeps up with a third of its input, and a query that does not should not work twice.
TRACK_LIVES = 3
#: It also takes at least two batches however long these are, and a minute of double work is nothing to
#: be saved: event times that are made up need not keep pace with any clock.
LEAST_TRACK_S = 60.0


@dataclass(frozen=True)
class Protocols:
    """How moves are made.

    Example:
        >>> view = ClusterView((SlotView(0, 100, 0, None, 8, 0), SlotView(1, 40, 0, None, 8, 0)))
        >>> Protocols(PTLB, life_s=60.0).of(Move(0, 1, 30, "a reason"), view).protocol
        'ptlb'
    """

    #: One of `spillway.settings.MOVES`.
    name: str = MSLB
    #: Seconds that an old row counts: the longest window and the lateness. None: for ever, or no result
    #: can be told to be free of old rows; then state is sent.
    life_s: float | None = None

    def of(self, move: Move, view: ClusterView) -> Move:
        """The move with its protocol, and why where it was a choice or is not what was asked for."""
        by_slot = {slot.slot: slot for slot in view.slots}
        sender, receiver = by_slot[move.sender], by_slot[move.receiver]
        if self.life_s is None or self.name == MSLB:
            return replace(move, protocol=MSLB)
        if why := _hindrance((sender, receiver), view):
            return replace(move, protocol=MSLB, reason=f"{move.reason}; state is moved: {why}")
        if self.name == PTLB:
            return replace(move, protocol=PTLB)
        sent_s = sending_s(move, sender, receiver)
        track_s = _share(move, sender) * view.work_per_s(sender) * self.life_s
        chosen, sign = (PTLB, "<") if track_s < sent_s else (MSLB, ">=")
        why = f"parallel track {track_s:.2f} s {sign} moving state {sent_s:.2f} s"
        return replace(move, protocol=chosen, reason=f"{move.reason}; {why}")

    def impatience(self, lasted_s: float, batch_s: float) -> str:
        """Why a track that has lasted so long is given up; "" if it is waited for.

        Both are seconds of the query's own time; `batch_s` is what a batch takes.

        Example:
            >>> Protocols(PTLB, life_s=60.0).impatience(181.0, 1.0)
            'it has lasted 181 s, more than 3 times the 60 s that an old row counts'
            >>> Protocols(PTLB, life_s=60.0).impatience(181.0, 70.0)
            ''
        """
        if self.life_s is None:
            return ""
        longest_s = max(LEAST_TRACK_S, TRACK_LIVES * max(self.life_s, batch_s))
        if lasted_s <= longest_s:
            return ""
        times = f"{TRACK_LIVES} times the {self.life_s:g} s that an old row counts"
        return f"it has lasted {lasted_s:.0f} s, more than {times}"

    def waits(self, watermark_us: int | None, given_up_us: int | None) -> bool:
        """Whether no track begins, since one was given up when the watermark was there."""
        if watermark_us is None:
            return True
        life_us = (self.life_s or 0.0) * 1e6
        return given_up_us is not None and watermark_us < given_up_us + life_us


def _hindrance(slots: Iterable[SlotView], view: ClusterView) -> str:
    """Why no track can begin between two slots; "" if one can."""
    for slot in slots:
        if slot.disk_bytes:
            return f"slot {slot.slot} has rows on disk"
    return "a parallel track was given up not long ago" if view.stalled else ""


def sending_s(move: Move, sender: SlotView, receiver: SlotView) -> float:
    """Seconds to send the state of a move, and to make what the receiver lacks of it."""
    share = _share(move, sender)
    held = dict(sender.made_bytes)
    there = {name for name, _ in receiver.made_bytes}
    useless = sum(size for name, size in held.items() if name not in there)
    sent = share * (sender.memory_bytes - useless)
    made_s = share * _lacking_bytes(sender, receiver) / MADE_BYTES_S
    together = sender.place and sender.place == receiver.place
    return made_s if together else LEAST_SENT_S + sent / SENT_BYTES_S + made_s


def _lacking_bytes(sender: SlotView, receiver: SlotView) -> float:
    """Bytes of what the receiver stores and the sender does not, for all groups of the sender.

    A group has about as much of a state as the groups that the receiver has already. Where it has none,
    or no rows in the state yet, a state is taken to be as large as those that the sender makes, and
    where it makes none, as its streams: it may be of any size, but is not nothing.
    """
    held = dict(sender.made_bytes)
    own = sum(held.values())
    usual = own / len(held) if own else sender.memory_bytes
    total = 0.0
    for name, size in receiver.made_bytes:
        if name not in held:
            known = size and receiver.groups
            total += size * sender.groups / receiver.groups if known else usual
    return total


def _share(move: Move, sender: SlotView) -> float:
    """The part of the sender's state and load that is asked for.

    What is picked is one group; by load it has at most the share that would level the two slots.
    """
    if move.everything:
        return 1.0
    by_load = move.pick.share if move.pick is not None and move.pick.by == LOAD else 0.0
    by_bytes = move.bytes / sender.memory_bytes if sender.memory_bytes else 0.0
    groups = move.groups if move.pick is None else max(1, move.groups)
    by_groups = groups / sender.groups if sender.groups else 0.0
    return min(1.0, max(by_load, by_bytes, by_groups))
