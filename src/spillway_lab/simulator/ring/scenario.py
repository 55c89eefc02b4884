"""A join without equal keys on some slots, as it is simulated: PSP's section 8, and its two rivals.

The defaults are those of PSP 8.1 and 8.2: three streams of 50 rows a second, windows of 10 s, 600 s,
images of 10,000 pixels. What the paper does not give:

    pair_s   30 µs: 30,000 bytes at a nanosecond each, as a loop over bytes takes on its processors
    hop_s    70 µs, a packet's latency as FLUX has it for its cluster. A row travels in packets that are
             passed on as they come: all of 30 kB would be another 240 µs of a gigabit link
             (`network`), and a ring that has one row at a time would fall behind at every length
    send_s   10 µs: a call of the operating system on either side
    insert_s, purge_s   1 µs

`found` is how many partners a row finds in a window of another stream on average. The paper's
selectivities of 0.05 to 0.5 are taken for that. Of the pairs, as in its section 5, they cannot be: 0.5
would be 9.4 million results a second, which no master with a gigabit link collects.

With `batch_s` rows come in micro-batches, as a query on Spark takes them
(spillway_lab/simulator/ring/batches.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from spillway.errors import SettingsError
from spillway.policies.ring.model import HopCosts, Source
from spillway.policies.ring.probing import Predicate, Stream, probe_orders
from spillway.policies.ring.slicing import ATR, CTR, PSP
from spillway_lab.simulator.cluster.scenario import one_of

DISTRIBUTIONS = (PSP, ATR, CTR)
NETWORKS = ("packets", "links", "shared")
ADJUSTMENTS = ("none", "smoothing", "passive", "aggressive")


@dataclass(frozen=True)
class RingScenario:
    """A join, its slots, and how they share it.

    Example:
        >>> [source.probing_s for source in RingScenario().sources(50.0)]
        [0.0165, 0.0165, 0.0165]
    """

    name: str = "ring"
    seconds: float = 600.0
    slots: int = 9
    streams: int = 3
    #: Rows a second of each stream, and from `change_s` on; None: the same.
    rate: float = 50.0
    rate_after: float | None = None
    change_s: float = 300.0
    window_s: float = 10.0
    #: Partners of a row in a window of another stream, at the first rate.
    found: float = 0.1
    pair_s: float = 30e-6
    send_s: float = 10e-6
    hop_s: float = 70e-6
    insert_s: float = 1e-6
    purge_s: float = 1e-6
    row_bytes: int = 30_000
    link_bytes_per_s: float = 125e6
    #: How rows get to the next slot: as their packets come, so that bytes take no time; or whole, over a
    #: link from each slot to the next, or over one network that all slots share.
    network: str = "packets"
    #: Seconds of all streams that come together, all of them in the ring at a time; None: row by row.
    batch_s: float | None = None
    #: Seconds of a batch in which no slot works.
    batch_fixed_s: float = 0.0
    #: Processors that all slots have together, where rows come in batches; None: one for each slot.
    cores: int | None = None
    distribution: str = PSP
    #: Rows that the ring has at a time: 1 is the paper's PSP, more its PSP-I.
    interleave: int = 1
    #: ATR: how long one slot has all rows.
    interval_s: float = 20.0
    #: CTR: in how many slots every row is.
    copies: int = 2
    #: Slices that all groups have; about half of them are live.
    groups: int = 128
    adjustment: str = "none"
    #: Slots that a ring may come to have, and seconds between two evaluations.
    most: int = 19
    evaluate_s: float = 5.0
    sample_s: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("distribution", self.distribution, DISTRIBUTIONS)
        one_of("adjustment", self.adjustment, ADJUSTMENTS)
        one_of("network", self.network, NETWORKS)
        if self.network != "packets" and (self.distribution != PSP or self.batch_s is not None):
            raise SettingsError(
                f"network={self.network!r} is simulated with PSP alone, row by row",
                hint="leave network out: then bytes take no time",
            )
        if self.batch_s is not None:
            self._check_batches(self.batch_s)
        elif self.cores is not None:
            raise SettingsError(
                f"{self.cores} cores for all slots are simulated in batches alone",
                hint="say batch_s, or leave cores out: then every slot has one",
            )
        elif self.distribution == CTR and self.slots < 2 * self.copies:
            raise SettingsError(
                f"{self.copies} copies need {2 * self.copies} slots, there are {self.slots}",
                hint="with fewer, every slot would have every second row; use fewer copies",
            )
        if not 1 <= self.slots <= self.groups // 4 or self.streams < 2 or self.interleave < 1:
            raise SettingsError(
                f"no ring of {self.slots} slots, {self.streams} streams, {self.interleave} at a time",
                hint=f"use two streams or more, a row or more at a time, 1 to {self.groups // 4} slots",
            )

    def _check_batches(self, batch_s: float) -> None:
        cores = 1 if self.cores is None else self.cores
        if batch_s <= 0 or self.adjustment != "none" or cores < 1:
            raise SettingsError(
                f"no batches of {batch_s:g} s with adjustment={self.adjustment!r} on {self.cores} cores",
                hint="batches are longer than 0 s, have a core or more, and their slices stay",
            )
        if self.distribution == CTR and (self.slots < self.copies or self.groups % self.copies):
            raise SettingsError(
                f"{self.slots} slots and {self.groups} groups cannot hold {self.copies} copies",
                hint="use as many slots as copies or more, and a multiple of them of groups",
            )

    @property
    def part(self) -> float:
        """The part of all pairs that match."""
        return self.found / (self.rate * self.window_s)

    @property
    def costs(self) -> HopCosts:
        """The costs in the terms of the model."""
        return HopCosts(self.send_s, self.hop_s, self.insert_s, self.purge_s)

    @property
    def link_s(self) -> float:
        """How long a link has a row; 0: no slot waits for all of its bytes."""
        return 0.0 if self.network == "packets" else self.row_bytes / self.link_bytes_per_s

    @property
    def rates(self) -> tuple[tuple[float, float], ...]:
        """From which second on how many rows come in each."""
        first = (0.0, self.rate)
        return (first,) if self.rate_after is None else (first, (self.change_s, self.rate_after))

    def sources(self, rate: float) -> tuple[Source, ...]:
        """The join in the terms of the model, where so many rows of each stream come a second."""
        names = [str(n) for n in range(self.streams)]
        known = [Stream(name, rate, rate * self.window_s) for name in names]
        pairs = [(i, j) for at, i in enumerate(names) for j in names[at + 1 :]]
        chain = [pair for pair in pairs if self._compared(*pair)]
        return probe_orders(known, [Predicate(i, j, self.part, self.pair_s) for i, j in chain])

    def _compared(self, left: str, right: str) -> bool:
        """Every stream is compared with the first one, so that each step has one predicate."""
        return left == "0" or right == "0"

    def changed(self, **changes: Any) -> RingScenario:
        """The scenario with some fields replaced."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> RingScenario:
        """The inverse of `to_json`; what is left out has its default."""
        return cls(**found)
