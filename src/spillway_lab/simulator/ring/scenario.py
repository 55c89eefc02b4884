"""A simulated join without equal keys: PSP's section 8, and its two rivals.

The defaults are those of PSP 8.1 and 8.2: three streams of 50 rows a second, windows of 10 s, 600 s,
images of 10,000 pixels. The paper does not give:

    pair_s   30 µs: 30,000 bytes at a nanosecond each, the speed of a byte loop on its processors
    hop_s    70 µs, a packet's latency in FLUX's cluster. Slots pass on packets as they come: whole rows
             of 30 kB would take another 240 µs of a gigabit link (`network`), and a ring with one row at
             a time would fall behind at every length
    send_s   10 µs: a system call on either side
    insert_s, purge_s   1 µs

`found` is the mean number of partners of a row in a window of another stream; so we read the paper's
selectivities of 0.05 to 0.5. As fractions of pairs (its section 5), 0.5 would be 9.4 million results a
second, more than a master with a gigabit link can collect.

With `batch_s` rows come in micro-batches, as on Spark (spillway_lab/simulator/ring/batches.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spillway.codec import plain
from spillway.errors import SettingsError
from spillway.policies.ring.model import HopCosts, Source
from spillway.policies.ring.probing import MeasuredPredicate, MeasuredStream, probe_orders
from spillway.policies.ring.slicing import ATR, CTR, PSP
from spillway_lab.simulator.cluster.scenario import one_of
from spillway_lab.simulator.description import described

DISTRIBUTIONS = (PSP, ATR, CTR)
NETWORKS = ("packets", "links", "shared")
ADJUSTMENTS = ("none", "smoothing", "passive", "aggressive")


@dataclass(frozen=True)
class RingScenario:
    """A join, its slots, and how they share the work.

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
    #: How rows get to the next slot: packet by packet, so that bytes take no time; or whole, over a link
    #: from each slot to the next ("links"), or over one shared network.
    network: str = "packets"
    #: Seconds of the streams in a batch, all of whose rows are in the ring at once; None: row by row.
    batch_s: float | None = None
    #: Seconds of a batch in which no slot works.
    batch_fixed_s: float = 0.0
    #: Processors that all slots share in batch mode; None: one per slot.
    cores: int | None = None
    distribution: str = PSP
    #: Rows in the ring at a time: 1 is the paper's PSP, more its PSP-I.
    interleave: int = 1
    #: ATR: how long one slot gets all rows.
    interval_s: float = 20.0
    #: CTR: how many slots store each row.
    copies: int = 2
    #: Groups, over which slices rotate; about half of them have a live slice.
    groups: int = 128
    adjustment: str = "none"
    #: The longest ring, and seconds between two evaluations.
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
                f"network={self.network!r} requires distribution={PSP!r} without batch_s",
                hint="leave network out: then bytes take no time",
            )
        if self.batch_s is not None:
            self._check_batches(self.batch_s)
        elif self.cores is not None:
            raise SettingsError(
                f"cores={self.cores} requires batch_s",
                hint="set batch_s, or leave cores out: then every slot has one",
            )
        elif self.distribution == CTR and self.slots < 2 * self.copies:
            raise SettingsError(
                f"{self.copies} copies need at least {2 * self.copies} slots, not {self.slots}",
                hint="use fewer copies: with fewer slots, a slot would store every second row",
            )
        if not 1 <= self.slots <= self.groups // 4 or self.streams < 2 or self.interleave < 1:
            raise SettingsError(
                f"slots={self.slots}, streams={self.streams} and interleave={self.interleave} are not "
                "a valid ring",
                hint=f"use 1 to {self.groups // 4} slots, at least 2 streams, and interleave of at "
                "least 1",
            )

    def _check_batches(self, batch_s: float) -> None:
        cores = 1 if self.cores is None else self.cores
        if batch_s <= 0 or self.adjustment != "none" or cores < 1:
            raise SettingsError(
                f"batch_s={batch_s:g} does not work with adjustment={self.adjustment!r} and "
                f"cores={self.cores}",
                hint="use a positive batch_s, one core or more, and no adjustment",
            )
        if self.distribution == CTR and (self.slots < self.copies or self.groups % self.copies):
            raise SettingsError(
                f"{self.slots} slots and {self.groups} groups cannot hold {self.copies} copies",
                hint="use at least as many slots as copies, and a multiple of the copies as groups",
            )

    @property
    def part(self) -> float:
        """The fraction of all pairs that match."""
        return self.found / (self.rate * self.window_s)

    @property
    def costs(self) -> HopCosts:
        """The costs in the terms of the model."""
        return HopCosts(self.send_s, self.hop_s, self.insert_s, self.purge_s)

    @property
    def link_s(self) -> float:
        """How long a link needs for a row; 0: slots do not wait for all of its bytes."""
        return 0.0 if self.network == "packets" else self.row_bytes / self.link_bytes_per_s

    @property
    def rates(self) -> tuple[tuple[float, float], ...]:
        """Pairs of a second and the rows a second from then on."""
        first = (0.0, self.rate)
        return (first,) if self.rate_after is None else (first, (self.change_s, self.rate_after))

    def sources(self, rate: float) -> tuple[Source, ...]:
        """The join in the terms of the model, at this many rows a second of each stream."""
        names = [str(n) for n in range(self.streams)]
        known = [MeasuredStream(name, rate, rate * self.window_s) for name in names]
        pairs = [(i, j) for at, i in enumerate(names) for j in names[at + 1 :]]
        chain = [pair for pair in pairs if self._compared(*pair)]
        return probe_orders(
            known, [MeasuredPredicate(i, j, self.part, self.pair_s) for i, j in chain]
        )

    def _compared(self, left: str, right: str) -> bool:
        """Every stream is compared with the first one, so each step has one predicate."""
        return left == "0" or right == "0"

    def changed(self, **changes: Any) -> RingScenario:
        """The scenario with some fields replaced."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        found: dict[str, Any] = plain(self)
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> RingScenario:
        """The inverse of `to_json`; missing fields have their defaults."""
        return described(cls, found, "scenario")
