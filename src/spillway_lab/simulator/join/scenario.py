"""A simulated windowed join: streams, slots and what they adapt, as plain data.

The defaults are those of PLANS section 5.2: three streams of 100 rows a second in 100 groups, joined in
the shape ((A B) C); one slot has half of the groups, and all share the rest. Work is in the units of
`policies.shape.costs.Costs`, so the simulation uses the costs that decide about shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from spillway.codec import plain
from spillway.errors import SettingsError
from spillway.metrics.groups import Floats
from spillway.plan.shape import Shape, parse
from spillway.settings import Adapt

NAMES = ("A", "B", "C")
#: Bytes of state that the development machine sends in the time of looking up one row: 13.5 MB/s
#: (`bench relocate`, between memory tiers) times 0.12 microseconds (`policies.shape.costs.Costs`).
SENT_BYTES_PER_WORK = 1.62


@dataclass(frozen=True)
class JoinScenario:
    """A join, its input, and how it adapts.

    Example:
        >>> JoinScenario(slots=4).shares
        (0.625, 0.125, 0.125, 0.125)
    """

    name: str = "join"
    seconds: float = 300.0
    slots: int = 4
    groups: int = 100
    seed: int = 0
    #: Pairs of a second and each stream's rows a second from then on.
    rates: tuple[tuple[float, tuple[float, ...]], ...] = ((0.0, (100.0, 100.0, 100.0)),)
    window_s: float = 60.0
    #: The fraction of pairs of rows of two streams in one group that match.
    matching: float = 0.1
    row_bytes: float = 100.0
    #: Work that a slot does in a second.
    work_per_s: float = 1000.0
    #: The fraction of the groups that the first slot has before all share the rest.
    hot: float = 0.5
    #: The initial shapes of the slots, in turn.
    shapes: tuple[str, ...] = ("((A B) C)",)
    #: Whether slots may change their shapes (PLANS: local optimisation, LM).
    optimise: bool = False
    #: The settings of `.adapt(...)` for moves (PLANS: load balancing, LB).
    adapt: Mapping[str, Any] = field(default_factory=lambda: {"strategy": "none"})
    #: Windows that a parallel track waits for old rows: 2 in PLANS, see joining.py.
    track_windows: int = 2
    #: Bytes a second of state on a link; and the work of a row of it, at either end.
    link_bytes_per_s: float = 12.5e6
    ship_work: float = 0.4
    #: Virtual time of one tick, between two commits of the coordinator, and of a point of the series.
    tick_s: float = 0.1
    batch_s: float = 1.0
    sample_s: float = 1.0

    def __post_init__(self) -> None:
        for name in ("seconds", "slots", "window_s", "work_per_s", "tick_s", "link_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise SettingsError(
                    f"{name}={getattr(self, name)!r} must be positive",
                    hint=f"use a number above 0 for {name}",
                )
        if not 0 < self.matching <= 1 or not 0 <= self.hot < 1:
            raise SettingsError(
                f"matching={self.matching!r} and hot={self.hot!r} must be fractions",
                hint="use a number above 0 and at most 1 for matching, and from 0 to below 1 for hot",
            )
        if self.rates[0][0] > 0 or any(len(some) != len(NAMES) for _, some in self.rates):
            raise SettingsError(
                f"rates={self.rates!r} must have values for {', '.join(NAMES)}, from second 0 on",
                hint="for example rates=((0, (10, 10, 10)),)",
            )
        self.settings  # noqa: B018 - checked while the scenario is made

    @property
    def settings(self) -> Adapt:
        """The settings of adaptation, checked as those of a query are."""
        return Adapt(slots=self.slots, groups=self.groups).changed(**self.adapt)

    @property
    def shares(self) -> tuple[float, ...]:
        """The fraction of the groups that each slot starts with."""
        rest = (1 - self.hot) / self.slots
        return (self.hot + rest, *(rest for _ in range(self.slots - 1)))

    @property
    def ticks(self) -> int:
        """Ticks of the whole run."""
        return round(self.seconds / self.tick_s)

    @property
    def window(self) -> int:
        """Ticks of a window."""
        return max(1, round(self.window_s / self.tick_s))

    @cached_property
    def first_shapes(self) -> tuple[Shape, ...]:
        """The shape that each slot starts with."""
        return tuple(parse(self.shapes[slot % len(self.shapes)]) for slot in range(self.slots))

    def rates_by_tick(self) -> Floats:
        """Rows a second of each stream in each tick."""
        begins = np.array([since for since, _ in self.rates])
        at = np.searchsorted(begins, np.arange(self.ticks) * self.tick_s + 1e-9, side="right") - 1
        return np.asarray([some for _, some in self.rates], np.float64)[at].T

    def calibrated(self) -> JoinScenario:
        """The scenario with links as slow, relative to its slots, as the measured ones."""
        return self.changed(link_bytes_per_s=SENT_BYTES_PER_WORK * self.work_per_s)

    def changed(self, **changes: Any) -> JoinScenario:
        """The scenario with some fields replaced."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        found: dict[str, Any] = plain(self)
        return found
