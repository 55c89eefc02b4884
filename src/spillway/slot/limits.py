"""The limits of a slot: its memory and its work."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Memory without a limit, in bytes.
ENDLESS = 1 << 60
#: Least bytes of made rows that a slot keeps before it checks memory.
LEAST_MADE_BYTES = 1 << 18


@dataclass(frozen=True)
class Limits:
    """How much memory a slot has, and when groups spill and return."""

    #: Bytes of state in memory at which groups spill; None: no limit.
    memory_bytes: int | None = None
    #: Fraction of memory that leaves in one spill.
    spill_fraction: float = 0.3
    #: Groups return when memory stayed below `low_water` for `calm_batches` batches.
    low_water: float = 0.5
    calm_batches: int = 3
    #: Groups that two slots serve during a parallel track: they cannot spill, because the other slot
    #: counts on their results.
    pinned: frozenset[int] = frozenset()
    #: Seconds between turns, when groups rotate (slot/rotation.py); None: they spill in
    #: generations.
    t_gap_s: float | None = None

    @property
    def low_bytes(self) -> float:
        """The low-water mark."""
        return math.inf if self.memory_bytes is None else self.memory_bytes * self.low_water

    @property
    def fill_bytes(self) -> float:
        """How far returning groups may fill memory: halfway from the low-water mark to the limit."""
        return (self.low_bytes + (self.memory_bytes or 0)) / 2

    @property
    def made_bytes(self) -> int:
        """Bytes of made rows that a slot keeps at a time, before it checks memory."""
        limit = self.memory_bytes
        return ENDLESS if limit is None else max(LEAST_MADE_BYTES, limit // 8)


@dataclass(frozen=True)
class Budget:
    """The budget of a slow slot for one batch."""

    #: Rows to process, in their stored form.
    rows: int
    #: Bytes that may wait. The slot compares it with the expected backlog at batch end. A batch
    #: with more rows than usual may exceed it by the surplus.
    buffer_bytes: int
