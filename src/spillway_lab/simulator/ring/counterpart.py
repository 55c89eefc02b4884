"""The simulated counterpart of a real run of a join without equal keys, and how well the two agree.

`RealRing` describes a real run, and `RingBatch` has a batch's measurements. `costs_of` derives costs
from a run with one slot. `compared` simulates another run on the same rows, with more slots or
another distribution, and tells whether batch times agree within `WITHIN` of
spillway_lab/simulator/cluster/counterpart.py. So it tests the effect of sharing work, without fitting
and without Spark.

With one slot, the query measures receiving and storing rows; the rest is comparing pairs, as in
`query.explain()` (`policies.ring.model.fitted`). The time of a batch beyond its slot's is fixed:
planning, reading, exchanges, sink, log. Rows visit all slots at once, without hops.

Known limitation: the fixed time does not depend on the number of slots, and slots do not slow each
other down. Matching pairs are random, not those of the real rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from spillway.errors import SettingsError, SpillwayError
from spillway.policies.ring.slicing import PSP
from spillway_lab.simulator.cluster.counterpart import WITHIN
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.simulation import RingResult, simulate_ring

Simulate = Callable[[RingScenario], RingResult]


@dataclass(frozen=True)
class RealRing:
    """The input and settings of a real run."""

    #: Rows a second of each stream, and the number of pairs per matching pair.
    rate: float
    scenes: int
    window_s: float
    #: Seconds of the streams in a batch, the number of batches, and of warm-up batches among them.
    batch_s: float
    batches: int
    first: int = 0
    slots: int = 1
    distribution: str = PSP
    interval_s: float = 20.0
    copies: int = 2
    groups: int = 64
    streams: int = 3
    #: Cores that the slots share.
    cores: int = 2
    #: The seed of arrival times.
    seed: int = 0


@dataclass(frozen=True)
class RingBatch:
    """The measurements of one batch."""

    seconds: float
    rows: int
    #: Seconds that each slot worked.
    busy_s: tuple[float, ...]
    #: Of these, in all slots: receiving rows, and storing them.
    received_s: float = 0.0
    stored_s: float = 0.0


@dataclass(frozen=True)
class RingCosts:
    """Costs measured with one slot: seconds of a pair, of a row received and stored, of a batch."""

    pair_s: float
    send_s: float
    insert_s: float
    fixed_s: float

    def to_json(self) -> dict[str, float]:
        """Plain data."""
        return {name: float(f"{value:.4g}") for name, value in asdict(self).items()}


def costs_of(
    run: RealRing, batches: Sequence[RingBatch], *, simulate: Simulate = simulate_ring
) -> RingCosts:
    """The costs of a run with one slot, by the medians of its batches."""
    if run.slots != 1 or run.distribution != PSP or not batches:
        raise SettingsError(
            f"{len(batches)} batches with {run.slots} slots and {run.distribution!r} give no costs",
            hint="pass batches of a run with one slot and distribute='psp'",
        )
    send_s = median(one.received_s / max(1, one.rows) for one in batches)
    insert_s = median(one.stored_s / max(1, one.rows) for one in batches)
    busy_s = median(sum(one.busy_s) for one in batches)
    fixed_s = median(one.seconds - sum(one.busy_s) for one in batches)
    # The same batches with free pairs: the rest of the slot's time belongs to pairs.
    other = simulate(scenario_of(run, RingCosts(0.0, send_s, insert_s, 0.0)))
    other_s, pairs = (median(other.series[name][run.first :]) for name in ("response_s", "pairs"))
    return RingCosts(
        max(0.0, busy_s - other_s) / max(1.0, pairs), send_s, insert_s, max(0.0, fixed_s)
    )


def scenario_of(run: RealRing, costs: RingCosts) -> RingScenario:
    """The scenario of a run.

    Example:
        >>> known = RingCosts(pair_s=1e-5, send_s=1e-4, insert_s=0.0, fixed_s=0.5)
        >>> made = scenario_of(RealRing(32.0, 160, 10.0, 2.0, batches=12, slots=2), known)
        >>> made.seconds, made.found, made.part == 1 / 160, made.batch_fixed_s
        (24.0, 2.0, True, 0.5)
    """
    return RingScenario(
        "counterpart",
        seconds=run.batch_s * run.batches,
        slots=run.slots,
        streams=run.streams,
        rate=run.rate,
        window_s=run.window_s,
        found=run.rate * run.window_s / run.scenes,
        pair_s=costs.pair_s,
        send_s=costs.send_s,
        hop_s=0.0,
        insert_s=costs.insert_s,
        purge_s=0.0,
        distribution=run.distribution,
        interval_s=run.interval_s,
        copies=run.copies,
        groups=run.groups,
        batch_s=run.batch_s,
        batch_fixed_s=costs.fixed_s,
        cores=run.cores,
        seed=run.seed,
    )


@dataclass(frozen=True)
class RingComparison:
    """Median seconds of a batch, in a real run and in its counterpart."""

    real_s: float
    simulated_s: float

    @property
    def ratio(self) -> float:
        """Simulated over measured."""
        return self.simulated_s / max(self.real_s, 1e-9)

    @property
    def agrees(self) -> bool:
        """Whether the ratio is within `WITHIN` of 1."""
        return abs(self.ratio - 1) <= WITHIN

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the verdict."""
        return {**asdict(self), "ratio": round(self.ratio, 4), "agrees": self.agrees}


def compared(
    run: RealRing,
    costs: RingCosts,
    batches: Sequence[RingBatch],
    *,
    simulate: Simulate = simulate_ring,
) -> RingComparison:
    """Simulates the counterpart of a run."""
    found = simulate(scenario_of(run, costs))
    if found.violations:
        raise SpillwayError(
            f"the counterpart of {run.slots} slots and {run.distribution!r} failed its checks",
            detail=found.violations[0],
            hint="this is a bug in the simulator, and says nothing about the run",
        )
    simulated_s = median(found.series["response_s"][run.first :])
    return RingComparison(median(one.seconds for one in batches), simulated_s)
