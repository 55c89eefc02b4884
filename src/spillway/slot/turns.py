"""What is asked and answered where groups take turns in memory (slot/rotation.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.metrics.groups import Floats, Ints


@dataclass(frozen=True)
class Waiting:
    """The groups of one slot, one entry each in every column."""

    groups: Ints
    state_bytes: Ints
    in_memory: NDArray[np.bool_]
    #: When a group came into memory last; the group that came first leaves first.
    since_s: Floats
    #: Input that waits for a group on disk, and since when.
    spooled_bytes: Ints
    waiting_s: Floats


@dataclass(frozen=True)
class Turn:
    """What is to be done now: groups leave memory, in this order, and then others come in."""

    leave: tuple[int, ...]
    enter: tuple[int, ...]
    reason: str
