"""What the coordinator's policies read: one small view per slot, however many groups there are.

The paper's coordinator does not collect the productivity of every group, because that would cost
too much network (DCAPE section 5.3). A *profile* is an affordable summary: the bytes a slot has in
memory by productivity class, 32 numbers or 256 bytes per slot and batch. From the sum of the
profiles, the coordinator finds the globally least productive groups to within a factor of two.

Invariant: the numbers of a profile add up to the bytes of its table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.metrics.groups import GroupTable, Ints

#: Class 0 has productivity 0; class c from 1 on has [2**(c - 24), 2**(c - 23)) outputs per byte.
#: The first and the last of those also include values beyond them.
CLASSES = 32
_UNIT_CLASS = 24

#: The modes of a slot (DCAPE Table 2): in a relocation, or not. A forced spill ends with its batch, so
#: an evaluation never sees the paper's third mode.
NORMAL = "normal"
RELOCATING = "sr"
#: One more: it is about to change its join shape, or still makes the new states.
RESHAPING = "re"

#: Shorter spans say nothing about how busy a slot was.
_LEAST_SPAN_S = 1e-6


def classes_of(table: GroupTable, *, amortised: bool = False) -> Ints:
    """Returns the productivity class of each group."""
    productivity = table.productivity(amortised=amortised)
    # frexp gives p = m * 2**e with m in [0.5, 1), so e - 1 is exactly the logarithm rounded down.
    exponent = np.frexp(productivity)[1].astype(np.int64) - 1
    return np.where(productivity > 0, np.clip(exponent + _UNIT_CLASS, 1, CLASSES - 1), 0)


def profile(table: GroupTable, *, amortised: bool = False) -> tuple[int, ...]:
    """Returns the bytes in memory by productivity class; always `CLASSES` numbers.

    Example:
        >>> sum(profile(GroupTable.empty(groups=100_000))), len(profile(GroupTable.empty(groups=4)))
        (0, 32)
    """
    classes = classes_of(table, amortised=amortised)
    held = np.bincount(classes, weights=table.size, minlength=CLASSES)
    return tuple(held.astype(np.int64).tolist())


@dataclass(frozen=True)
class SlotView:
    """What the coordinator knows about one slot."""

    slot: int
    #: State in memory and on disk.
    memory_bytes: int
    disk_bytes: int
    #: State in memory at which the slot spills; None: no limit.
    limit_bytes: int | None
    #: The number of groups routed to it.
    groups: int
    #: Results since the last evaluation.
    rows_out: int
    mode: str = NORMAL
    #: See `profile`; empty if the strategy does not need it.
    profile: tuple[int, ...] = ()
    #: Since the last evaluation: seconds of work, and rows taken.
    busy_s: float = 0.0
    rows_in: int = 0
    #: Bytes of its made streams, by name; and the owner of its memory tier.
    made_bytes: tuple[tuple[str, int], ...] = ()
    place: str = ""

    @property
    def state_bytes(self) -> int:
        """State in memory and on disk."""
        return self.memory_bytes + self.disk_bytes


@dataclass(frozen=True)
class ClusterView:
    """All slots at one evaluation.

    Example:
        >>> slots = SlotView(0, 70, 30, 80, 4, 9), SlotView(1, 50, 0, 80, 4, 9)
        >>> view = ClusterView(slots, growth_bytes=20)
        >>> view.memory_bytes, view.state_bytes, view.cluster_bytes
        (120, 150, 160)
    """

    slots: tuple[SlotView, ...]
    #: State that the slots gained since the last evaluation, in memory and on disk.
    growth_bytes: int = 0
    #: Bytes of forced spills since the first start.
    forced_bytes: int = 0
    #: Seconds that batches took since the last evaluation, by the query's clock.
    span_s: float = 0.0
    #: Seconds that the busiest slot of each batch worked since then. It gives the capacity of all
    #: slots, even if first one slot and then another was the busiest.
    peak_s: float = 0.0

    #: Seconds of the stream since then, including pauses between batches; 0: not known.
    elapsed_s: float = 0.0
    #: Whether the watermark has not moved enough since a parallel track was given up.
    stalled: bool = False

    def utilisation(self, slot: SlotView) -> float:
        """Returns the fraction of time that a slot worked: U of FLUX section 5.3.

        Only batch time counts: slots equally busy in batches are level, whatever the trigger.
        """
        return slot.busy_s / self.span_s if self.span_s > _LEAST_SPAN_S else 0.0

    def work_per_s(self, slot: SlotView) -> float:
        """Returns a slot's seconds of work per second of the stream."""
        seconds = max(self.span_s, self.elapsed_s)
        return slot.busy_s / seconds if seconds > _LEAST_SPAN_S else 0.0

    @property
    def normal(self) -> tuple[SlotView, ...]:
        """The slots that may be ordered to adapt: those that are not adapting already."""
        return tuple(slot for slot in self.slots if slot.mode == NORMAL)

    @property
    def memory_bytes(self) -> int:
        """State in memory."""
        return sum(slot.memory_bytes for slot in self.slots)

    @property
    def state_bytes(self) -> int:
        """State in memory and on disk."""
        return sum(slot.state_bytes for slot in self.slots)

    @property
    def cluster_bytes(self) -> int | None:
        """Memory of all slots, M_cluster of DCAPE section 5.3; None if one has no limit."""
        limits = [slot.limit_bytes for slot in self.slots if slot.limit_bytes is not None]
        return sum(limits) if len(limits) == len(self.slots) else None
