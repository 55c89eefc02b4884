"""The outcome of a simulation of any kind: its scenario, its series, its totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np


class Described(Protocol):
    """A scenario."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        ...


S = TypeVar("S", bound=Described)


@dataclass(frozen=True)
class Outcome(Generic[S]):
    """The outcome of a simulation."""

    scenario: S
    #: Points at equal intervals of virtual time, by name; one series is "second".
    series: Mapping[str, tuple[float, ...]]
    totals: Mapping[str, float]
    #: What the checkers found; empty if nothing is wrong.
    violations: tuple[str, ...]

    def mean(self, name: str, since_s: float = 0.0, until_s: float = float("inf")) -> float:
        """The mean of a series over a range of virtual time."""
        pairs = zip(self.series["second"], self.series[name], strict=True)
        values = [value for at, value in pairs if since_s < at <= until_s + 1e-9]
        return float(np.mean(values)) if values else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "scenario": self.scenario.to_json(),
            "totals": dict(self.totals),
            "violations": list(self.violations),
            "series": {name: list(values) for name, values in self.series.items()},
        }
