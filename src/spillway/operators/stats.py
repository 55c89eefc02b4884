"""Operator measurements: results by group, and counts of pairs (metrics/counts.py).

Counts of earlier batches decay. Samples decay faster than the rest, because a slot must notice
changes soon: after three batches, seven eighths of a sample are new.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.probe import count_groups
from spillway.metrics.counts import Counts, Judged, Key, Probed, Sampled, Spent, added
from spillway.routing.groups import group_of

#: Weight of older batches in counts, and in samples.
_DECAY = 0.8
_SAMPLED_DECAY = 0.5
#: Weighted rows below which counts are dropped, so that old plans leave nothing.
_FORGOTTEN = 1e-6


@dataclass
class OperatorStats:
    """Measurements of an operator, per group and per pair of streams."""

    groups: int
    outputs: NDArray[np.int64] = field(init=False)
    selectivity: dict[Key, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outputs = np.zeros(self.groups, np.int64)

    def count_outputs(self, h: NDArray[np.uint32]) -> None:
        """Counts results by the hash of the row that completed them."""
        self.outputs += np.bincount(group_of(h, self.groups), minlength=self.groups)

    def count_outputs_of(self, h: NDArray[np.uint32], rows: NDArray[np.int64]) -> None:
        """Counts results by their rows in a run with these hashes."""
        count_groups(h, rows, self.outputs)

    def take_outputs(self) -> NDArray[np.int64]:
        """Returns the results counted since the last call."""
        outputs, self.outputs = self.outputs, np.zeros(self.groups, np.int64)
        return outputs

    def count_probed(self, source: str, target: str, rows: int, matched: int) -> None:
        """Counts the partners that rows of one side found in another."""
        self._count(Probed(source, target), rows, matched)

    def count_sampled(self, source: str, target: str, pairs: int, matched: int) -> None:
        """Counts the pairs of rows of two streams that were examined, and the matches."""
        self._count(Sampled(source, target), pairs, matched)

    def count_judged(self, predicate: str, pairs: int, passed: int, seconds: float) -> None:
        """Counts the pairs that a predicate evaluated, and the time it took."""
        self._count(Judged(predicate), pairs, passed)
        self._count(Spent(predicate), pairs, seconds)

    def _count(self, key: Key, rows: int, matched: float) -> None:
        before = self.selectivity.get(key, (0.0, 0.0))
        self.selectivity[key] = (before[0] + rows, before[1] + matched)

    def blended(self, older: Counts) -> dict[Key, tuple[float, float]]:
        """Returns the counts, blended with decayed counts of earlier batches."""
        return added([_faded(older), self.selectivity])


def _faded(counts: Counts) -> Counts:
    faded = {}
    for key, (looked_at, came) in counts.items():
        weight = _SAMPLED_DECAY if isinstance(key, Sampled) else _DECAY
        if looked_at > _FORGOTTEN:
            faded[key] = (looked_at * weight, came * weight)
    return faded
