"""Chooses the protocol of a move: send the state, or use a parallel track (PLANS 5.3).

    mslb    sends the state; the receiver drops states that its plan lacks, and makes missing ones
    ptlb    sends no state; sender and receiver both process the new rows until the old ones are gone
    auto    uses the cheaper one, for each move

Both costs are seconds of work. Sending state costs its bytes. A parallel track costs the sender's
further work for the groups: their share of its load per second of stream time, for as long as an
old row counts. If a slot has rows on disk, the state is always sent: groups of a track must be in
memory, and cannot spill until its end.

A track ends when the watermark has passed its old rows. If the watermark stands still, because a
stream is silent or a row is far ahead of its time, two slots would do the same work forever. So the
coordinator gives up a track that lasts too long, and sends state until the watermark has moved as
far as a track needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.cluster.decision import Move
from spillway.settings import MSLB, PTLB
from spillway.slot.orders import LOAD

#: Bytes sent per second during the batches: about `sent_bytes_per_s` of
#: bench/results/relocate.json; also bytes of intermediate states made, as `FILL_ROWS` says
#: (operators/equi/tree.py).
SENT_BYTES_S = 15e6
MADE_BYTES_S = 200e6
#: Fixed cost of sending: the jobs of its steps, and the rows that wait meanwhile.
LEAST_SENT_S = 0.5
#: Multiple of its life after which a track is given up, in the query's own time. A track takes one
#: life if event times keep pace with that clock, and less if they catch up. With three, a track
#: survives in a query that processes a third of its input in time. A slower query should not do the
#: work twice.
TRACK_LIVES = 3
#: A track also takes at least two batches, however long they are. A minute of double work is not
#: worth saving: synthetic event times need not keep pace with any clock.
LEAST_TRACK_S = 60.0


@dataclass(frozen=True)
class Protocols:
    """How to make moves.

    Example:
        >>> view = ClusterView((SlotView(0, 100, 0, None, 8, 0), SlotView(1, 40, 0, None, 8, 0)))
        >>> Protocols(PTLB, life_s=60.0).of(Move(0, 1, 30, "a reason"), view).protocol
        'ptlb'
    """

    #: One of `spillway.settings.MOVES`.
    name: str = MSLB
    #: Seconds that an old row counts: the longest window plus the lateness. None: forever, or
    #: results cannot be separated from old rows; then state is sent.
    life_s: float | None = None

    def of(self, move: Move, view: ClusterView) -> Move:
        """Returns the move with its protocol; adds the reason if it was a choice or an exception."""
        by_slot = {slot.slot: slot for slot in view.slots}
        sender, receiver = by_slot[move.sender], by_slot[move.receiver]
        if self.life_s is None or self.name == MSLB:
            return replace(move, protocol=MSLB)
        if why := _hindrance((sender, receiver), view):
            return replace(
                move, protocol=MSLB, reason=f"{move.reason}; the slot sends its state: {why}"
            )
        if self.name == PTLB:
            return replace(move, protocol=PTLB)
        sent_s = sending_s(move, sender, receiver)
        track_s = _share(move, sender) * view.work_per_s(sender) * self.life_s
        chosen, sign = (PTLB, "<") if track_s < sent_s else (MSLB, ">=")
        why = f"parallel track {track_s:.2f} s {sign} sending state {sent_s:.2f} s"
        return replace(move, protocol=chosen, reason=f"{move.reason}; {why}")

    def impatience(self, lasted_s: float, batch_s: float) -> str:
        """Says why the coordinator should give up a track after this long; "" if it should not.

        Both are seconds of the query's own time; `batch_s` is the time of a batch.

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
        """Whether no new track may begin yet, after one was given up at `given_up_us`."""
        if watermark_us is None:
            return True
        life_us = (self.life_s or 0.0) * 1e6
        return given_up_us is not None and watermark_us < given_up_us + life_us


def _hindrance(slots: Iterable[SlotView], view: ClusterView) -> str:
    """Says why no track can begin between two slots; "" if one can."""
    for slot in slots:
        if slot.disk_bytes:
            return f"slot {slot.slot} has rows on disk"
    return "the query gave up a parallel track recently" if view.stalled else ""


def sending_s(move: Move, sender: SlotView, receiver: SlotView) -> float:
    """Estimates the seconds to send the state of a move, and to make what the receiver lacks."""
    share = _share(move, sender)
    held = dict(sender.made_bytes)
    there = {name for name, _ in receiver.made_bytes}
    useless = sum(size for name, size in held.items() if name not in there)
    sent = share * (sender.memory_bytes - useless)
    made_s = share * _lacking_bytes(sender, receiver) / MADE_BYTES_S
    together = sender.place and sender.place == receiver.place
    return made_s if together else LEAST_SENT_S + sent / SENT_BYTES_S + made_s


def _lacking_bytes(sender: SlotView, receiver: SlotView) -> float:
    """Estimates the bytes of states that the receiver stores and the sender does not.

    The estimate takes the bytes per group that the receiver already has in a state. If it has no
    groups, or no rows in the state, the estimate takes the size of the sender's own intermediate
    states. If there are none, it takes the size of its streams: any size is possible, but zero is
    wrong.
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
    """Returns the requested fraction of the sender's state and load.

    A pick is one group; by load it has at most the share that would level the two slots.
    """
    if move.everything:
        return 1.0
    by_load = move.pick.share if move.pick is not None and move.pick.by == LOAD else 0.0
    by_bytes = move.bytes / sender.memory_bytes if sender.memory_bytes else 0.0
    groups = move.groups if move.pick is None else max(1, move.groups)
    by_groups = groups / sender.groups if sender.groups else 0.0
    return min(1.0, max(by_load, by_bytes, by_groups))
