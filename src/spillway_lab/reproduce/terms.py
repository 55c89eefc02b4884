"""The terms of the papers' figures: streams, lines, figures.

Time is virtual: a fixed number of rows of each stream is a minute, whatever the clock says.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from spillway_lab.workloads.dcape import Dcape

MINUTES = 40
#: A tuple every 30 ms, as in most of the papers' experiments.
ROWS_PER_MINUTE = 2000
#: Divisible by 1 to 6, so that classes, halves and slots have equally many groups.
GROUPS = 120
#: The memory limit, as a fraction of the state of the whole input.
MEMORY_PART = 0.4

ALL_MEMORY = "All-Mem"


@dataclass(frozen=True)
class Feed:
    """A part of a workload, cut into batches.

    Example:
        >>> Feed(Dcape(rows=500), minutes=10, per_minute=4).batches
        40
    """

    #: Its rows are those of a batch.
    workload: Dcape
    minutes: int = MINUTES
    per_minute: int = 1
    #: The first batch of that part; it may be in the middle of a phase.
    first: int = 0

    @property
    def batches(self) -> int:
        """The number of batches."""
        return self.minutes * self.per_minute

    def minute(self, batch: int) -> float:
        """The virtual time at the end of a batch, counted from 0; whole minutes as whole numbers."""
        at = round((batch + 1) / self.per_minute, 4)
        return int(at) if at == int(at) else at


@dataclass(frozen=True)
class Variant:
    """One line of a figure: a run and its settings."""

    name: str
    #: The settings of `.adapt(...)` in addition to the memory.
    adapt: Mapping[str, Hashable] = field(default_factory=dict, hash=False)
    #: Whether memory is limited.
    limited: bool = False
    #: Bytes that the coordinator may make slots spill in total, as a multiple of the limit of one slot.
    forced_limits: float | None = None

    @property
    def settings(self) -> Hashable:
        """What the run depends on; lines with an equal value share the run."""
        return frozenset(self.adapt.items()), self.limited, self.forced_limits


@dataclass(frozen=True)
class Figure:
    """One figure of a paper."""

    name: str
    title: str
    claim: str
    #: What the paper reports, in its own numbers or words.
    paper: str
    feed: Feed
    variants: tuple[Variant, ...]
    #: What a line shows: "output" rows so far, "memory" bytes, those of each of the "slots", or
    #: those of the "fullest" slot.
    shows: str = "output"
    #: The limit of a slot, as a fraction of the state of the whole input; None: there is none.
    memory_part: float | None = MEMORY_PART
    #: Other limits under which the ratios are measured too.
    other_parts: tuple[float, ...] = ()
    #: How it was run, where it differs from the other figures.
    setup: str = ""
    #: Another figure, whose runs the claim is about too.
    compared_with: str | None = None


def tau(seconds: int, per_minute: int) -> int:
    """The batches of an interval of time.

    Example:
        >>> tau(45, per_minute=4)
        3
    """
    return seconds * per_minute // 60
