"""The simulated counterpart of a real run, and how well the two agree.

`RealRun` describes a real run, and `Measured` has its batches, as one JSON document. `scenario_of` makes
a scenario from them and the machine's calibration; `compared` runs it and tells whether throughput and
moves agree within `WITHIN`. Spark is not needed.

A micro-batch takes a fixed time, then as long as its slowest slot. In the simulator a batch ends when
its rows have arrived, all slots wait for the fixed time, and none gets ahead by more than a batch.

Known limitation: all groups and all batches get equally many rows, and sending state does not slow down
concurrent batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from spillway.codec import made, plain
from spillway.errors import SettingsError
from spillway_lab.simulator.cluster.calibration import Calibration
from spillway_lab.simulator.cluster.scenario import Disturbance, Exchange, Scenario, Workload
from spillway_lab.simulator.cluster.simulation import Result, simulate

#: What counts as agreement: a fifth, or a single move.
WITHIN = 0.2
#: Memory that no run fills.
_MEMORY_BYTES = 1 << 50
#: Ticks in a batch.
_TICKS = 20


@dataclass(frozen=True)
class Slowed:
    """One slot takes longer for each row, for a while."""

    slot: int
    #: How many times longer a row takes.
    factor: float
    since_s: float
    until_s: float | None = None


@dataclass(frozen=True)
class RealRun:
    """The settings of a real run."""

    slots: int
    groups: int
    batch_rows: int
    #: Seconds from one trigger to the next; None: batches follow each other at once.
    interval_s: float | None = None
    #: Processor seconds of a row in a slot; None: as the machine was calibrated.
    row_s: float | None = None
    #: Seconds in which no slot works, per batch and per row: reading, exchange.
    fixed_s: float = 0.0
    exchange_s: float = 0.0
    #: The settings of `.adapt(...)`, without slots, groups and memory.
    adapt: Mapping[str, Any] = field(default_factory=dict)
    slowed: tuple[Slowed, ...] = ()

    def __post_init__(self) -> None:
        for one in self.slowed:
            if one.factor < 1:
                raise SettingsError(
                    f"factor={one.factor!r} must be at least 1, to slow a slot down",
                    hint="for example factor=3.0: a row takes three times as long",
                )


@dataclass(frozen=True)
class Batch:
    """The measurements of one batch."""

    #: From its trigger to its commit, including the wait for the trigger.
    seconds: float
    rows: int
    #: By slot: seconds of work, and rows taken.
    busy_s: tuple[float, ...]
    slot_rows: tuple[int, ...]
    #: Moves that ended with this batch: `groups-reactivated` among its events.
    moves: int = 0


@dataclass(frozen=True)
class Measured:
    """A real run and its batches, without warm-up batches.

    Example:
        >>> found = Measured(RealRun(2, 8, 100), (Batch(0.5, 100, (0.3, 0.2), (50, 50)),))
        >>> Measured.from_json(found.to_json()) == found, found.rows_per_s
        (True, 200.0)
    """

    run: RealRun
    batches: tuple[Batch, ...]

    @property
    def seconds(self) -> float:
        """How long all batches took."""
        return sum(one.seconds for one in self.batches)

    @property
    def rows_per_s(self) -> float:
        """Rows a second."""
        return sum(one.rows for one in self.batches) / max(self.seconds, 1e-9)

    @property
    def moves(self) -> int:
        """All moves of the run."""
        return sum(one.moves for one in self.batches)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        found: dict[str, Any] = plain(self)
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Measured:
        """The inverse of `to_json`."""
        return made(cls, found)


def scenario_of(run: RealRun, calibration: Calibration, seconds: float) -> Scenario:
    """The scenario of a run that takes this many seconds.

    Example:
        >>> known = Calibration(2e-6, 1e-7, 24.5, 3e8, 2e9, 1000, 5)
        >>> made = scenario_of(RealRun(3, 48, 300_000, fixed_s=0.2), known, seconds=30.0)
        >>> made.slots, made.batch_rows, made.machine.row_s
        (3, 300000, 2e-06)
    """
    machine = replace(
        calibration.machine(),
        row_s=calibration.row_s if run.row_s is None else run.row_s,
        memory_bytes=_MEMORY_BYTES,
        link_bytes_per_s=calibration.memory_bytes_per_s,
        latency_s=0.0,
    )
    fixed_s = run.fixed_s + run.exchange_s * run.batch_rows
    batch_s = max(run.interval_s or 0.0, fixed_s + run.batch_rows / run.slots * machine.row_s)
    tick_s = batch_s / _TICKS
    rate = None if run.interval_s is None else run.batch_rows / run.interval_s
    return Scenario(
        name="counterpart",
        seconds=seconds,
        slots=run.slots,
        groups=run.groups,
        machine=machine,
        # A slot that is ahead has at most the rows that wait in the sources of the next batch.
        exchange=Exchange("buffer", run.batch_rows // run.slots, link_rows=0.0),
        workload=Workload(
            keys=max(Workload.keys, run.groups),
            row_bytes=max(1, round(calibration.row_bytes)),
            rows_per_s=rate,
            history_rows=None,
            warm=False,
        ),
        disturbances=tuple(_disturbance(one) for one in run.slowed),
        section_bytes_per_s=calibration.memory_bytes_per_s,
        adapt=dict(run.adapt),
        tick_s=tick_s,
        batch_s=batch_s,
        batch_rows=run.batch_rows,
        batch_fixed_s=fixed_s,
        sample_s=batch_s,
        noise=False,
    )


def _disturbance(slowed: Slowed) -> Disturbance:
    """A slot with this fraction of its processor takes that much longer for a row."""
    taken = 1 - 1 / slowed.factor
    return Disturbance((slowed.slot,), cpu=taken, since_s=slowed.since_s, until_s=slowed.until_s)


@dataclass(frozen=True)
class Comparison:
    """A real run and its counterpart."""

    real_rows_per_s: float
    simulated_rows_per_s: float
    real_moves: int
    simulated_moves: int

    @property
    def throughput_ratio(self) -> float:
        """Simulated over measured."""
        return self.simulated_rows_per_s / max(self.real_rows_per_s, 1e-9)

    @property
    def throughput_agrees(self) -> bool:
        """Whether throughput is within `WITHIN` of the real one."""
        return abs(self.throughput_ratio - 1) <= WITHIN

    @property
    def moves_agree(self) -> bool:
        """Whether moves are within `WITHIN` of the real ones, or one off."""
        apart = abs(self.simulated_moves - self.real_moves)
        return apart <= max(1.0, WITHIN * self.real_moves)

    @property
    def agrees(self) -> bool:
        """Whether both do."""
        return self.throughput_agrees and self.moves_agree

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the verdicts."""
        return {
            **asdict(self),
            "throughput_ratio": round(self.throughput_ratio, 4),
            "throughput_agrees": self.throughput_agrees,
            "moves_agree": self.moves_agree,
            "agrees": self.agrees,
            "within": WITHIN,
        }


def compared(
    found: Measured,
    calibration: Calibration,
    *,
    run: Callable[[Scenario], Result] = simulate,
) -> Comparison:
    """Simulates the counterpart of a run, for as long as the run took."""
    result = run(scenario_of(found.run, calibration, found.seconds))
    return Comparison(
        found.rows_per_s, result.totals["rows_per_s"], found.moves, int(result.totals["moves"])
    )
