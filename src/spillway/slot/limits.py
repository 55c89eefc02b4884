"""What a slot is told about its memory and its work."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Memory without a limit, in bytes.
ENDLESS = 1 << 60
#: The least bytes of rows that an operator makes which are kept before memory is checked.
LEAST_MADE_BYTES = 1 << 18


@dataclass(frozen=True)
class Limits:
    """How much memory a slot has, and when groups leave it and come back."""

    #: Bytes of state in memory at which groups leave it; None: no limit.
    memory_bytes: int | None = None
    #: Part of what is in memory that leaves it at a time.
    spill_fraction: float = 0.3
    #: Groups come back when memory was filled less than `low_water` for `calm_batches` batches.
    low_water: float = 0.5
    calm_batches: int = 3
    #: Whether groups of the slot are being moved, so that none leave memory or come back meanwhile.
    relocating: bool = False
    #: Seconds from one turn to the next, where groups take turns (slot/rotation.py); None: they
    #: leave in generations.
    t_gap_s: float | None = None

    @property
    def low_bytes(self) -> float:
        """The low-water mark."""
        return math.inf if self.memory_bytes is None else self.memory_bytes * self.low_water

    @property
    def fill_bytes(self) -> float:
        """How far memory is filled with groups that come back: halfway to the limit."""
        return (self.low_bytes + (self.memory_bytes or 0)) / 2

    @property
    def made_bytes(self) -> int:
        """Bytes of rows that an operator makes which are kept at a time, before memory is checked."""
        limit = self.memory_bytes
        return ENDLESS if limit is None else max(LEAST_MADE_BYTES, limit // 8)


@dataclass(frozen=True)
class Budget:
    """What a slot that is slower than the others is told for one batch."""

    #: Rows to process, in the form in which they are kept.
    rows: int
    #: Bytes that may wait. It is compared with what is expected to wait when the batch ends: more rows
    #: than usual in one batch may exceed it by as much.
    buffer_bytes: int
