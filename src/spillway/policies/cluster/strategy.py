"""When the coordinator moves or spills state: strategies that combine the two.

    none            never
    spill-only      slots spill at their limits, nothing moves
    relocate-only   state moves from full slots to empty ones, nothing spills
    lazy-disk       both: state moves while slots differ, and slots spill if that is not enough
                    (DCAPE Algorithm 1)
    active-disk     also: if slots are alike, the least productive one must spill (Algorithm 2)
    global-disk     also: if slots are alike and all of them are almost full, the least productive
                    groups of all slots spill
    flux-load       groups move from busy slots to idle ones, one at a time (FLUX 5.3)
    flux-memory     groups move from slots short of memory to those with the most (6.2)
    flux-hybrid     flux-memory while something is on disk, else flux-load (6.4)

A strategy says how much; the slot's controller chooses the groups. One evaluation names a slot at
most once, and only slots in normal mode. The paper has one pair of sender and receiver; here every
slot may be in a pair.

Known limitation: a pair that differs goes first, even if the sender has no group that can move.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from spillway.metrics.view import ClusterView, SlotView
from spillway.policies.cluster.decision import Decision, ForceSpill, Move, megabytes
from spillway.policies.cluster.flux import Thresholds, hybrid_moves, load_moves, memory_moves


@dataclass(frozen=True)
class Strategy:
    """A strategy and its settings.

    Example:
        >>> full, empty = SlotView(0, 100, 0, None, 8, 0), SlotView(1, 40, 0, None, 8, 0)
        >>> [move] = Strategy("lazy-disk").decide(ClusterView((full, empty)))
        >>> move.sender, move.receiver, move.bytes, move.reason
        (0, 1, 30, 'M_least/M_max = 0.40 < 0.80')
    """

    #: One of `spillway.settings.STRATEGIES`.
    name: str
    #: State moves if M_least/M_max is below it: theta_r of DCAPE section 4.
    threshold: float = 0.8
    #: A slot is forced to spill if R_max/R_min is above it: lambda of DCAPE section 5.3.
    productivity_ratio: float = 2.0
    #: Fraction of the state in memory that leaves in one spill.
    spill_fraction: float = 0.3
    #: Total bytes of forced spills; None: M_query - M_cluster.
    max_forced_spill: int | None = None
    #: When slots differ enough for the strategies of FLUX.
    flux: Thresholds = Thresholds()

    @property
    def collects(self) -> bool:
        """Whether it alternates between collecting statistics and moving (FLUX 5.3)."""
        return self.name.startswith("flux-")

    def counts(self, view: ClusterView) -> bool:
        """Whether a FLUX strategy now decides by row counts, and not by bytes of state."""
        on_disk = any(slot.disk_bytes for slot in view.slots)
        return self.name == "flux-load" or (self.name == "flux-hybrid" and not on_disk)

    @property
    def relocates(self) -> bool:
        """Whether state moves between slots."""
        return self.name not in ("none", "spill-only")

    @property
    def spills(self) -> bool:
        """Whether a slot may spill by itself, at its limit."""
        return self.name not in ("none", "relocate-only")

    def decide(self, view: ClusterView) -> tuple[Decision, ...]:
        """Decides what to do now; called once per evaluation."""
        return _DECIDE[self.name](self, view)


def _nothing(_: Strategy, __: ClusterView) -> tuple[Decision, ...]:
    return ()


def _relocate(
    strategy: Strategy,
    view: ClusterView,
    held: Callable[[SlotView], int] = lambda slot: slot.memory_bytes,
) -> tuple[Decision, ...]:
    """Levels the fullest slot with the emptiest, the next with the next, and so on."""
    ordered = sorted(view.normal, key=lambda slot: (held(slot), slot.slot))
    pairs = zip(ordered[: len(ordered) // 2], reversed(ordered), strict=False)
    moves = []
    for least, most in pairs:
        amount = (held(most) - held(least)) // 2
        if amount == 0 or (ratio := held(least) / held(most)) >= strategy.threshold:
            continue
        reason = f"M_least/M_max = {ratio:.2f} < {strategy.threshold:.2f}"
        moves.append(Move(most.slot, least.slot, amount, reason))
    return tuple(moves)


def _lazy_disk(strategy: Strategy, view: ClusterView) -> tuple[Decision, ...]:
    return _relocate(strategy, view, _filled)


def _filled(slot: SlotView) -> int:
    """Returns memory in use, now or soon: a slot that spilled was full, and fills again.

    Otherwise the slot that has just spilled would look emptiest, get state from another, and spill
    again. Spilled state and its cleanup would gather in few slots.
    """
    room = slot.memory_bytes if slot.limit_bytes is None else slot.limit_bytes
    return max(slot.memory_bytes, min(room, slot.memory_bytes + slot.disk_bytes))


def _active_disk(strategy: Strategy, view: ClusterView) -> tuple[Decision, ...]:
    return _relocate(strategy, view) or _spill_least_slot(strategy, view)


def _spill_least_slot(strategy: Strategy, view: ClusterView) -> tuple[Decision, ...]:
    rates = [
        (_rate(slot), -slot.memory_bytes, slot.slot, slot) for slot in view.normal if slot.groups
    ]
    if not rates:
        return ()
    least, _, _, slot = min(rates)
    ratio = _ratio(max(rates)[0], least)
    amount = min(int(slot.memory_bytes * strategy.spill_fraction), _allowed(strategy, view))
    if ratio <= strategy.productivity_ratio or amount <= 0:
        return ()
    why = f"R_max/R_min = {ratio:.1f} > {strategy.productivity_ratio:.1f}"
    return (ForceSpill(slot.slot, amount, f"{why}, {_forced(strategy, view, amount)}"),)


def _rate(slot: SlotView) -> float:
    """Returns the average productivity rate R of DCAPE section 5.3: results per group."""
    return slot.rows_out / slot.groups


def _ratio(most: float, least: float) -> float:
    if least == 0:
        return math.inf if most > 0 else 1.0
    return most / least


def _global_disk(strategy: Strategy, view: ClusterView) -> tuple[Decision, ...]:
    return _relocate(strategy, view) or _spill_least_groups(strategy, view)


def _spill_least_groups(strategy: Strategy, view: ClusterView) -> tuple[Decision, ...]:
    slots = [slot for slot in view.normal if slot.profile]
    held = [sum(column) for column in zip(*(slot.profile for slot in slots), strict=True)]
    # Bytes below each class; the last entry is the total.
    below = list(accumulate(held, initial=0))
    wanted = int(view.memory_bytes * strategy.spill_fraction)
    wanted = min(wanted, _allowed(strategy, view), below[-1])
    if wanted <= 0 or not _short(view):
        return ()
    last = bisect_left(below, wanted) - 1
    reason = f"least productive of all slots, class {last} and below"
    reason = f"{reason}, {_forced(strategy, view, wanted)}"
    shares = _shared(wanted - below[last], [slot.profile[last] for slot in slots])
    amounts = [sum(slot.profile[:last]) + share for slot, share in zip(slots, shares, strict=True)]
    chosen = zip(slots, amounts, strict=True)
    return tuple(ForceSpill(slot.slot, amount, reason, last) for slot, amount in chosen if amount)


def _shared(amount: int, weights: Sequence[int]) -> list[int]:
    """Splits the amount in proportion to the weights; rounding neither loses nor adds a byte."""
    total = sum(weights)
    edges = (amount * weight // total for weight in accumulate(weights, initial=0))
    return [hi - lo for lo, hi in pairwise(edges)]


def _short(view: ClusterView) -> bool:
    """Whether memory will be short one interval from now, if nothing spills."""
    room = view.cluster_bytes
    return room is not None and view.memory_bytes + view.growth_bytes > room


def _cap(strategy: Strategy, view: ClusterView) -> int:
    """Returns the total bytes to force out: what will not fit one interval from now."""
    given, room = strategy.max_forced_spill, view.cluster_bytes
    if room is None:
        return given or 0
    lacking = max(0, view.state_bytes + view.growth_bytes - room)
    # The setting counts only when memory is short at all (DCAPE 5.4).
    return given if given is not None and lacking else lacking


def _allowed(strategy: Strategy, view: ClusterView) -> int:
    """Returns the bytes that may still be forced out."""
    return _cap(strategy, view) - view.forced_bytes


def _flux(
    moves: Callable[[ClusterView, Thresholds], tuple[Move, ...]],
) -> Callable[[Strategy, ClusterView], tuple[Decision, ...]]:
    return lambda strategy, view: moves(view, strategy.flux)


def _forced(strategy: Strategy, view: ClusterView, amount: int) -> str:
    total, cap = view.forced_bytes + amount, _cap(strategy, view)
    return f"forced {megabytes(total)} of at most {megabytes(cap)}"


_DECIDE: dict[str, Callable[[Strategy, ClusterView], tuple[Decision, ...]]] = {
    "none": _nothing,
    "spill-only": _nothing,
    "relocate-only": _relocate,
    "lazy-disk": _lazy_disk,
    "active-disk": _active_disk,
    "global-disk": _global_disk,
    "flux-load": _flux(load_moves),
    "flux-memory": _flux(memory_moves),
    "flux-hybrid": _flux(hybrid_moves),
}
