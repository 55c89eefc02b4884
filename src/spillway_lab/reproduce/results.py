"""The results of a figure's runs, as its verdict needs them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from spillway_lab.reproduce.runs import Run

Runs = Mapping[str, Run]
#: Adds numbers to the measured ones, and decides whether they support the claim.
Verdict = tuple[dict[str, Any], bool]


@dataclass(frozen=True)
class Results:
    """The runs of a figure, by the names of its lines."""

    runs: Runs
    rows_expected: int
    #: The limit of each slot; None: there is none.
    limit_bytes: int | None = None
    #: The same under other limits, which show how the verdict depends on the limit.
    by_part: Mapping[float, Runs] = field(default_factory=dict)
    #: The results of the figure that this one is compared with.
    compared_with: Results | None = None

    @property
    def limit(self) -> int:
        """The limit of a figure that has one."""
        assert self.limit_bytes is not None
        return self.limit_bytes

    @property
    def other(self) -> Runs:
        """The runs of the figure that this one is compared with."""
        assert self.compared_with is not None
        return self.compared_with.runs

    @property
    def exact(self) -> bool:
        """Whether every run produced, with its cleanup, as many rows as the join of its input has."""
        known = (run for some in (self.runs, *self.by_part.values()) for run in some.values())
        mine = all(run.total == self.rows_expected for run in known)
        return mine and (self.compared_with is None or self.compared_with.exact)


def apart(numbers: Collection[float]) -> float:
    """How far the least is below the largest, as a fraction of it.

    Example:
        >>> apart([98, 100])
        0.02
    """
    most = max(numbers)
    return round(1 - min(numbers) / most, 4) if most else 0.0


def moved(runs: Runs) -> dict[str, Any]:
    """What the coordinator did in each run, and the total time of its batches."""
    return {
        "relocations": {name: len(run.relocated) for name, run in runs.items()},
        "forced_spills": {name: len(run.forced) for name, run in runs.items()},
        "processing_s": {name: round(run.processing_s, 1) for name, run in runs.items()},
    }
