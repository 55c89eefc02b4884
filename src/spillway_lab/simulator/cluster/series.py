"""The measurements of a simulation, one point for each sample of virtual time.

Latency is FLUX's (6.3): from when a slot takes a row until it has processed it. In memory that is the
processing time and a packet's latency; for a row written for later, its time on disk. `delay_s` adds the
wait before the slot, by Little's law; 0 if no row was processed. Percentiles come from a histogram with
bins of a fixed ratio, exact to about 15 %.
"""

from __future__ import annotations

import numpy as np

from spillway.metrics.groups import Floats
from spillway_lab.simulator.cluster.cluster import Cluster, Tick

#: The bins of latency: from 10 µs to 10,000 s, 16 to a factor of ten.
_EDGES = np.logspace(-5, 4, 9 * 16 + 1)
_CENTRES = np.sqrt(_EDGES[:-1] * _EDGES[1:])

NAMES = (
    "second",
    "rows_per_s",
    "latency_s",
    "latency_p50_s",
    "latency_p99_s",
    "delay_s",
    "memory_bytes",
    "fullest_bytes",
    "disk_bytes",
    "groups_on_disk",
    "buffered_rows",
    "spooled_rows",
    "utilisation",
    "utilisation_least",
    "utilisation_most",
    "moves",
)


class Recorder:
    """Sums up ticks, and makes a point at the end of every sample."""

    def __init__(self, slots: int) -> None:
        self.series: dict[str, list[float]] = {name: [] for name in NAMES}
        self._slots = slots
        self._begin(0.0)

    def _begin(self, now_s: float) -> None:
        self._since_s = now_s
        self._rows = 0.0
        self._latency_s = 0.0
        self._bins = np.zeros(len(_CENTRES))
        self._busy_s = np.zeros(self._slots)
        self._waiting_s = 0.0

    def add(self, tick: Tick, cluster: Cluster, tick_s: float) -> None:
        """What one tick did."""
        ages = np.concatenate([tick.fresh_age_s, tick.spool_age_s])
        rows = np.concatenate([tick.processed - tick.unspooled, tick.unspooled])
        self._rows += float(rows.sum())
        self._latency_s += float((ages * rows).sum())
        at = np.clip(np.searchsorted(_EDGES, ages) - 1, 0, len(_CENTRES) - 1)
        np.add.at(self._bins, at, rows)
        self._busy_s += tick.busy_s
        self._waiting_s += (cluster.held_rows + cluster.spooled_rows) * tick_s

    def point(self, cluster: Cluster, now_s: float, moves: int) -> None:
        """Ends a sample."""
        took = now_s - self._since_s
        rows = max(self._rows, 1e-9)
        used = self._busy_s / took
        values = (
            now_s,
            self._rows / took,
            self._latency_s / rows,
            percentile(self._bins, 0.5),
            percentile(self._bins, 0.99),
            self._waiting_s / rows if self._rows else 0.0,
            int(cluster.memory_bytes.sum()),
            int(cluster.memory_bytes.max()),
            int(cluster.disk_bytes.sum()),
            int(cluster.on_disk.sum()),
            cluster.held_rows,
            cluster.spooled_rows,
            used.mean(),
            used.min(),
            used.max(),
            moves,
        )
        for name, value in zip(NAMES, values, strict=True):
            self.series[name].append(value if isinstance(value, int) else round(float(value), 9))
        self._begin(now_s)


def percentile(weights: Floats, part: float) -> float:
    """The centre of the bin that contains this quantile; 0 without any weight."""
    total = np.cumsum(weights)
    if total[-1] <= 0:
        return 0.0
    return float(_CENTRES[int(np.searchsorted(total, part * total[-1]))])
