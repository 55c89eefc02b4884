"""What is measured: cases, engines, and the order for one child process.

A case is an input and a query; an engine is a way to run the query. All engines of a case get the same
input, cores, partitions, Java memory, sink and checkpoint disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spillway.errors import SettingsError
from spillway.settings.choices import UNLIMITED
from spillway_lab.workloads.pairs import Pairs

CORES = 2
#: Event time of a batch, and the batches in the windows of `join2-window` and `join2-left`, and of
#: `window-agg`.
ADVANCE_MS = 1000
WINDOW_BATCHES = 10
TUMBLING_BATCHES = 5

#: The cases that have their own measurement.
RELOCATE = "relocate"
DRIFT = "plans"
THETA = "theta"
BOARD = "dashboard"
SPILLWAY, IDENTITY, ALL_MEMORY = "spillway", "identity", "all-memory"
#: Spillway without fsync: the price of durability.
UNSYNCED = "spillway-unsynced"
#: Spark's state store providers by engine.
PROVIDERS = {
    "spark-memory": ("org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"),
    "spark-rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
ENGINES = (SPILLWAY, IDENTITY, *PROVIDERS)
#: The engines of `plans`, and the argument of `plan` for each.
AUTO = "auto"
PLANS: dict[str, dict[str, str]] = {
    "nway": {"kind": "nway"},
    "tree-ab": {"shape": "((a b) c)"},
    "tree-ac": {"shape": "((a c) b)"},
    "tree-bc": {"shape": "(a (b c))"},
    AUTO: {"kind": AUTO},
}
KNOWN_ENGINES = (*ENGINES, UNSYNCED, ALL_MEMORY, *PLANS)
#: Bytes of a (k, v) row in state, including its hash.
_ROW_BYTES = 20


@dataclass(frozen=True)
class Case:
    """An input and a query on it: a join, or a group-by."""

    streams: int
    #: Number of keys of a group-by over all streams; None: the streams are joined.
    keys: int | None = None
    payload: bool = False
    #: Whether a join has a window; a group-by has tumbling windows, which give final rows.
    windowed: bool = False
    #: The kind of a join of two streams.
    how: str = "inner"
    #: Memory of spillway, as a fraction of the state at the end of the run; None: no limit.
    memory_share: float | None = None
    #: The engines that can run it.
    engines: tuple[str, ...] = ENGINES
    #: The module that an engine's child process runs.
    module: str = "spillway_lab.bench.engine"


CASES = {
    "join2": Case(streams=2, engines=(*ENGINES, UNSYNCED)),
    "join3": Case(streams=3),
    "join2-strings": Case(streams=2, payload=True),
    "join2-window": Case(streams=2, windowed=True),
    "join2-left": Case(streams=2, windowed=True, how="left", engines=(SPILLWAY, *PROVIDERS)),
    "groupby": Case(streams=2, keys=1 << 20),
    "window-agg": Case(streams=2, keys=1 << 20, windowed=True),
    "spill": Case(streams=2, memory_share=0.3, engines=(SPILLWAY, ALL_MEMORY)),
    RELOCATE: Case(streams=2, payload=True, engines=(SPILLWAY,), module="spillway_lab.bench.move"),
    DRIFT: Case(
        streams=3,
        windowed=True,
        engines=tuple(PLANS),
        module="spillway_lab.bench.plans",
    ),
    THETA: Case(streams=2, windowed=True, engines=(SPILLWAY,), module="spillway_lab.bench.theta"),
    BOARD: Case(streams=2, windowed=True, engines=(SPILLWAY,), module="spillway_lab.bench.board"),
    "identity": Case(streams=2, engines=(IDENTITY,)),
}


@dataclass(frozen=True)
class BenchSettings:
    """The size of a measurement, and where it runs."""

    #: Rows of each stream in each batch.
    rows: int = 200_000
    #: Batches of spillway and identity. 50 batches of 2 x 200,000 rows make 20 million rows of state.
    batches: int = 50
    #: Batches of Spark's own joins, each of which takes seconds.
    spark_batches: int = 10
    #: Batches at the start that are not measured.
    dropped: int = 2
    #: Before the measurement an engine runs the same join on a tenth of the rows for this many
    #: seconds, until Java and numba have compiled their code. 0: no warm-up.
    warmup_s: float = 40.0
    driver_memory: str = "6g"
    #: Scratch and checkpoints of all engines; None is the system's temporary directory.
    directory: str | None = None

    def __post_init__(self) -> None:
        if min(self.batches, self.spark_batches) < 2 or self.rows < 1 or self.dropped < 0:
            raise SettingsError(
                f"--batches {self.batches}, --spark-batches {self.spark_batches} and --rows "
                f"{self.rows} are too few to measure",
                hint="use at least 2 batches and 1 row",
            )

        if self.directory is not None and not Path(self.directory).is_dir():
            raise SettingsError(
                f"there is no directory {self.directory}", hint="create it, or choose another --dir"
            )

    def batches_of(self, engine: str) -> int:
        """The number of batches that an engine runs."""
        return min(self.batches, self.spark_batches) if engine in PROVIDERS else self.batches


@dataclass(frozen=True)
class EngineOrder:
    """The task of one child process, passed as JSON."""

    name: str
    engine: str
    rows: int
    #: Batches to run, and the length of the run that the keys are spread over.
    batches: int
    run_batches: int
    warmup_s: float
    driver_memory: str
    directory: str

    @classmethod
    def of(cls, name: str, engine: str, settings: BenchSettings, directory: str) -> EngineOrder:
        """The order for one engine in one case."""
        return cls(
            name,
            engine,
            settings.rows,
            settings.batches_of(engine),
            settings.batches,
            settings.warmup_s,
            settings.driver_memory,
            directory,
        )

    @property
    def case(self) -> Case:
        """The case that is run."""
        return CASES[self.name]

    @property
    def pairs(self) -> Pairs:
        """The input, the same for every engine."""
        case = self.case
        return Pairs(
            case.streams,
            self.rows,
            self.run_batches,
            payload=case.payload,
            times=case.windowed,
            advance_ms=ADVANCE_MS,
        )

    @property
    def memory(self) -> int | str | None:
        """The memory limit of one slot; None: what a user gets without one."""
        share = self.case.memory_share
        if self.engine == ALL_MEMORY:
            return UNLIMITED
        if share is None or self.engine != SPILLWAY:
            return None
        whole = self.rows * self.run_batches * self.case.streams * _ROW_BYTES
        return max(1, int(share * whole / CORES))

    def smaller(self) -> EngineOrder:
        """The same order with a tenth of the rows, for the warm-up."""
        return replace(self, rows=max(1, self.rows // 10))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def chosen(what: str, asked: Sequence[str], known: Sequence[str]) -> list[str]:
    """The given names, or all if none are given, in the order of `known`."""
    for name in asked:
        if name not in known:
            raise SettingsError(
                f"there is no {what} {name!r}", hint=f"choose from {', '.join(known)}"
            )
    return [name for name in known if not asked or name in asked]
