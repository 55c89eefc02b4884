"""By which protocol groups move: by moving their state, or by a parallel track (PLANS 5.3).

    mslb    the state travels, what the receiver's plan has no use for is dropped, and what it lacks is
            made again
    ptlb    no state travels; sender and receiver both process the new rows until the old ones are gone
    auto    what costs less, for each move

Both costs are seconds of work. Moving state costs its bytes; a parallel track costs what the sender goes
on to do for the groups, which is their share of its load for as long as an old row counts. A slot with
rows on disk always sends: a group of a track is in memory, so that it has no missing results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.decision import Move
from spillway.settings import MSLB, PTLB

#: Bytes that are sent in a second beside the batches: about `sent_bytes_per_s` of
#: bench/results/relocate.json; and bytes of intermediate states that are made, as `FILL_ROWS` says
#: (operators/tree.py).
SENT_BYTES_S = 15e6
MADE_BYTES_S = 200e6
#: What a move by sending costs besides: the jobs of its steps, and rows that wait meanwhile.
LEAST_SENT_S = 0.5


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
        """The move with its protocol, and why where it was a choice."""
        by_slot = {slot.slot: slot for slot in view.slots}
        sender, receiver = by_slot[move.sender], by_slot[move.receiver]
        if self.life_s is None or self.name == MSLB or sender.disk_bytes:
            return replace(move, protocol=MSLB)
        if self.name == PTLB:
            return replace(move, protocol=PTLB)
        sent_s = sending_s(move, sender, receiver)
        track_s = _share(move, sender) * view.utilisation(sender) * self.life_s
        chosen, sign = (PTLB, "<") if track_s < sent_s else (MSLB, ">=")
        why = f"parallel track {track_s:.2f} s {sign} moving state {sent_s:.2f} s"
        return replace(move, protocol=chosen, reason=f"{move.reason}; {why}")


def sending_s(move: Move, sender: SlotView, receiver: SlotView) -> float:
    """Seconds to send the state of a move, and to make what the receiver lacks of it."""
    share = _share(move, sender)
    held = dict(sender.made_bytes)
    there = {name for name, _ in receiver.made_bytes}
    useless = sum(size for name, size in held.items() if name not in there)
    # What the receiver stores and the sender does not is about as large as what it stores already.
    lacking = sum(size for name, size in receiver.made_bytes if name not in held)
    sent = share * (sender.memory_bytes - useless)
    made_s = share * lacking / MADE_BYTES_S
    together = sender.place and sender.place == receiver.place
    return made_s if together else LEAST_SENT_S + sent / SENT_BYTES_S + made_s


def _share(move: Move, sender: SlotView) -> float:
    """The part of the sender's state that moves."""
    if move.everything:
        return 1.0
    by_bytes = move.bytes / sender.memory_bytes if sender.memory_bytes else 0.0
    by_groups = move.groups / sender.groups if sender.groups else 0.0
    return min(1.0, max(by_bytes, by_groups))
