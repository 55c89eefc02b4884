"""What is simulated: frozen descriptions that check themselves, with plain data in and out.

The defaults are the cluster of FLUX section 3: 32 nodes, 45 µs a row, rows of 80 bytes over 16K keys,
two packets of 1 kB on their way between two nodes, disks of 20 MB/s. Units are in the names. Sizes are
in the paper's megabytes; 1,024 of them are its gigabyte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spillway.codec import plain
from spillway.errors import SettingsError
from spillway.settings import Adapt
from spillway_lab.simulator.description import described

MB = 1 << 20

#: How rows get from the sources to the slots; see spillway_lab/simulator/cluster/flow.py.
EXCHANGES = ("exchange", "buffer")
#: How rows are spread over the keys; see spillway_lab/simulator/cluster/workload.py.
SHAPES = ("uniform", "hot", "self-similar", "halves")
#: What slots do when memory is short; see spillway_lab/simulator/cluster/disks.py.
SPILL_MODES = ("generations", "rotation")


@dataclass(frozen=True)
class Machine:
    """The hardware of a slot, and what a row costs on it."""

    #: Processor time of a row whose group is in memory, and of giving it to the exchange.
    row_s: float = 45e-6
    produce_s: float = 0.5e-6
    memory_bytes: int = 1024 * MB
    disk_bytes_per_s: float = 20 * MB
    seek_s: float = 5e-3
    #: Rate of sending state from slot to slot; a packet takes `latency_s` in addition.
    link_bytes_per_s: float = 250e6 / 8
    latency_s: float = 70e-6
    #: Processor time to take a row of state out of the operator, and to put it in.
    install_s: float = 0.2e-6
    #: The slot writes rows of a group on disk in blocks of this many bytes, each at the cost of a seek.
    spool_bytes: int = 64 << 10

    def __post_init__(self) -> None:
        for name in ("row_s", "disk_bytes_per_s", "link_bytes_per_s", "spool_bytes"):
            if not getattr(self, name) > 0:
                raise SettingsError(
                    f"{name}={getattr(self, name)!r} of a machine must be positive",
                    hint="a machine needs time for a row, and its disk and link need a rate",
                )

    @property
    def spool_s(self) -> float:
        """Disk time of a byte of input that is written for later."""
        return self.seek_s / self.spool_bytes + 1 / self.disk_bytes_per_s


@dataclass(frozen=True)
class Exchange:
    """The path of rows from the sources to the slots; one source on each machine."""

    #: "exchange": queues of equal size for each slot; "buffer": one that all slots share (FLUX 4).
    kind: str = "buffer"
    #: Rows that can wait at a source, in addition to those in transit.
    buffer_rows: int = 2048
    #: Rows in transit from one source to one slot: two packets of 1 kB.
    link_rows: float = 25.6

    def __post_init__(self) -> None:
        one_of("kind", self.kind, EXCHANGES)


@dataclass(frozen=True)
class Workload:
    """The rows, and the state that groups have of them."""

    shape: str = "uniform"
    keys: int = 16_384
    row_bytes: int = 80
    #: Rows a second of all sources; None: as many as the slots can process.
    rows_per_s: float | None = None
    #: "hot", "self-similar" and "halves": this fraction of the rows falls on that fraction of the keys.
    hot_rows: float = 0.8
    hot_keys: float = 0.2
    #: How often the hot keys change; None: never.
    turn_s: float | None = None
    #: The maximum of a group's state rows (FLUX: the history); None: all rows.
    history_rows: int | None = 10_000
    #: Whether groups start with a full history.
    warm: bool = True
    #: Result rows per row.
    results: float = 1.0

    def __post_init__(self) -> None:
        one_of("shape", self.shape, SHAPES)
        if self.warm and self.history_rows is None:
            raise SettingsError(
                "warm=true needs a limit of history_rows: a group starts with that many rows",
                hint="set warm=false, or history_rows to a number",
            )


@dataclass(frozen=True)
class Disturbance:
    """A disturbance from outside: processor time and memory that others take."""

    #: The slots it is on; empty: all.
    slots: tuple[int, ...] = ()
    #: Fraction of the processor that it takes; FLUX's process of 100 µs in 150 takes 0.57.
    cpu: float = 0.0
    memory_bytes: int = 0
    since_s: float = 0.0
    until_s: float | None = None
    #: It visits its slots in turn, this long each; None: it is on all of them at once.
    turn_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.cpu < 1:
            raise SettingsError(
                f"cpu={self.cpu!r} must be at least 0 and less than 1",
                hint="for example cpu=0.57: the fraction of the processor that others take",
            )


@dataclass(frozen=True)
class Scenario:
    """A cluster, its input, what disturbs it, and how it adapts.

    Example:
        >>> Scenario.from_json(Scenario(slots=4, groups=64).to_json()).slots
        4
    """

    name: str = "scenario"
    seconds: float = 20.0
    slots: int = 32
    groups: int = 2048
    seed: int = 0
    machine: Machine = field(default_factory=Machine)
    exchange: Exchange = field(default_factory=Exchange)
    workload: Workload = field(default_factory=Workload)
    disturbances: tuple[Disturbance, ...] = ()
    #: Bytes a second of state that all slots together can send.
    section_bytes_per_s: float = 500e6 / 8
    #: The settings of `.adapt(...)`; slots, groups and memory are the scenario's own.
    adapt: Mapping[str, Any] = field(default_factory=dict)
    #: What happens to groups that have no room: "generations" (DCAPE) or "rotation" (FLUX).
    spill_mode: str = "generations"
    #: Virtual time of one tick, and between two commits of the coordinator.
    tick_s: float = 0.01
    batch_s: float = 0.01
    #: The coordinator commits after this many rows, instead of every `batch_s`; and after each commit no
    #: slot works for `batch_fixed_s`, as between two micro-batches.
    batch_rows: int | None = None
    batch_fixed_s: float = 0.0
    #: Time that one point of the series stands for.
    sample_s: float = 1.0
    #: Whether arrivals are random; if not, every group gets exactly its share in every tick.
    noise: bool = True

    def __post_init__(self) -> None:
        one_of("spill_mode", self.spill_mode, SPILL_MODES)
        for name in ("seconds", "slots", "groups", "tick_s", "batch_s", "sample_s"):
            if not getattr(self, name) > 0:
                raise SettingsError(
                    f"{name}={getattr(self, name)!r} must be positive",
                    hint=f"for example {name}={getattr(Scenario(), name)!r}",
                )
        if self.batch_fixed_s < 0 or (self.batch_rows is not None and self.batch_rows < 1):
            raise SettingsError(
                f"batch_rows={self.batch_rows!r} must be at least 1, and "
                f"batch_fixed_s={self.batch_fixed_s!r} cannot be negative",
                hint="for example batch_rows=100000, batch_fixed_s=0.2",
            )
        if self.groups < self.slots or self.workload.keys < self.groups:
            raise SettingsError(
                f"{self.slots} slots cannot share {self.workload.keys} keys in {self.groups} groups",
                hint="use at least as many groups as slots, and at least as many keys as groups",
            )
        named = [slot for one in self.disturbances for slot in one.slots]
        if wrong := [slot for slot in named if not 0 <= slot < self.slots]:
            raise SettingsError(
                f"a disturbance names slot {wrong[0]}, but there are {self.slots} slots",
                hint=f"use slots from 0 to {self.slots - 1}",
            )
        self.settings  # noqa: B018 - checked while the scenario is made

    @property
    def settings(self) -> Adapt:
        """The settings of adaptation, checked as those of a query are."""
        for name in ("slots", "groups", "memory"):
            if name in self.adapt:
                raise SettingsError(
                    f"adapt of a scenario cannot set {name}",
                    hint="set slots and groups next to adapt, and memory as memory_bytes of machine",
                )
        # A scenario may have more groups than a query.
        known = Adapt(slots=self.slots, groups=min(self.groups, 65_536))
        return known.changed(**self.adapt)

    def changed(self, **changes: Any) -> Scenario:
        """The scenario with some fields replaced."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        found: dict[str, Any] = plain(self)
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Scenario:
        """The inverse of `to_json`; missing fields have their defaults."""
        return described(cls, found, "scenario")


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Rejects a value that is not one of the choices."""
    if value not in choices:
        raise SettingsError(
            f"{name}={value!r} is not one of {', '.join(map(repr, choices))}",
            hint=f"for example {name}={choices[0]!r}",
        )
