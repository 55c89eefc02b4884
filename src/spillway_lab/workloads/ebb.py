"""Three streams of equal rate, two of which slow down: the workload of PLANS 5.2.

    stream string, id bigint, k bigint, ts timestamp

Rows arrive at Poisson times. From `change_s` on, b and c keep one in `factor` of their rows. Keys come
from domains as in spillway_lab/workloads/drift.py: many pairs match, few combinations of three do. The
pairs (a, c) and (b, c) match `more` times as often as (a, b). At first ((a b) c) makes the fewest
intermediate combinations; after the change (a (b c)) does. A row depends only on the seed, not on how
the input is cut into files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.errors import SettingsError
from spillway_lab.simulator.ring.arrivals import poisson_times

NAMES = ("a", "b", "c")
SCHEMA = "stream string, id bigint, k bigint, ts timestamp"
#: Fractions of a stream's rows: those in the domain of each of its two pairs, and in that of all three.
PAIRED, TRIPLED = 0.45, 0.1
#: The domains of each stream; 0 to 2 are the pairs ab, ac, bc, and 3 is all three.
_DOMAINS = {"a": (0, 1, 3), "b": (0, 2, 3), "c": (1, 2, 3)}
#: Size of a domain's key range.
_DOMAIN_SIZE = 1 << 40


@dataclass(frozen=True)
class Ebb:
    """The streams, `seconds` long.

    Example:
        >>> Ebb(rate=100.0, seconds=9.0).table("b", 4.0, 8.0).column_names
        ['stream', 'id', 'k', 'ts']
    """

    #: Rows a second of each stream before the change.
    rate: float
    seconds: float
    change_s: float = 3.0
    factor: float = 20.0
    #: Mean number of rows of b from before the change that a row of a finds.
    partners: float = 12.0
    more: float = 1.25
    #: Mean number of results that a row of a completes with them.
    results: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.keys) < 1:
            raise SettingsError(
                f"{self.rate:g} rows a second are too few for {self.partners:g} partners",
                hint="use a higher rate, or fewer partners",
            )

    @property
    def keys(self) -> tuple[int, int, int, int]:
        """How many keys each domain has."""
        rows = self.rate * self.change_s
        pair = PAIRED**2 * rows / self.partners
        # Rows that a row in the common domain finds in each other stream.
        each = (self.results / TRIPLED) ** 0.5
        return int(pair), int(pair / self.more), int(pair / self.more), int(TRIPLED * rows / each)

    @cached_property
    def times(self) -> dict[str, NDArray[np.float64]]:
        """The seconds at which the rows of each stream arrive."""
        ebbing = [(0.0, self.rate), (self.change_s, self.rate / self.factor)]
        rates = {"a": [(0.0, self.rate)], "b": ebbing, "c": ebbing}
        rng = np.random.default_rng([self.seed, 0])
        return {name: poisson_times(rates[name], self.seconds, rng) for name in NAMES}

    @cached_property
    def drawn(self) -> dict[str, NDArray[np.int64]]:
        """The key of each row of each stream."""
        return {name: self._drawn(at, name) for at, name in enumerate(NAMES)}

    def table(self, name: str, since_s: float, until_s: float) -> pa.Table:
        """The rows of a stream that arrive in [since_s, until_s)."""
        times = self.times[name]
        first, last = np.searchsorted(times, [since_s, until_s]).tolist()
        micros = (times[first:last] * 1e6).astype(np.int64)
        return pa.table(
            {
                "stream": pa.array([name] * (last - first), pa.string()),
                "id": pa.array(np.arange(first, last)),
                "k": pa.array(self.drawn[name][first:last]),
                "ts": pa.array(micros).cast(pa.timestamp("us", "UTC")),
            }
        )

    def rows(self, until_s: float) -> int:
        """Rows of all streams that arrive before `until_s`."""
        return sum(int(np.searchsorted(times, until_s)) for times in self.times.values())

    def _drawn(self, at: int, name: str) -> NDArray[np.int64]:
        rng = np.random.default_rng([self.seed, 1, at])
        count = len(self.times[name])
        domain = rng.choice(_DOMAINS[name], count, p=(PAIRED, PAIRED, TRIPLED))
        key = (rng.random(count) * np.array(self.keys)[domain]).astype(np.int64)
        return np.asarray(domain * _DOMAIN_SIZE + key, np.int64)
