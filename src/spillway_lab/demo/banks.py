"""QUERY 1 of DCAPE on live synthetic bank streams, and a check that the result is exact.

An embedded Spark joins the three banks and writes Parquet files, one batch a second. The run ends
between two batches; then a Spark batch query over the committed input checks the committed output.

The paper's condition on timestamps (bank1 a window after the others) becomes the window of `within`:
all offers of a combination lie within one window of each other.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.committed import Committed
from spillway.dashboard.server.serving import Dashboard
from spillway.errors import EnvironmentMissing, QueryError, SettingsError
from spillway.settings import Adapt
from spillway.spark.api.join import join
from spillway.spark.api.query import Query
from spillway.spark.api.session import local_session
from spillway_lab.demo.check import Verdict, check_result
from spillway_lab.quiet import java_errors_to
from spillway_lab.workloads.banks import BANKS, KEYS, LATENESS_S, TIME, Banks

_TRIGGER_S = 1
_LOOK_EVERY_S = 0.2
#: No batch takes this long unless something hangs.
_PATIENCE_S = 300


@dataclass(frozen=True)
class DemoSpec:
    """The length, rate and parallelism of a demonstration."""

    seconds: float = 60
    #: Offers of each bank in each batch.
    rows: int = 10_000
    #: None: one per core.
    slots: int | None = None

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.rows < 1:
            raise SettingsError(
                f"--seconds {self.seconds:g} and --rows {self.rows} must be positive",
                hint="for example --seconds 60 --rows 10000",
            )
        Adapt(slots=self.slots)


@dataclass
class Live:
    """The display while the query runs: totals so far, and the last batch."""

    phase: str = "starting Spark"
    elapsed_s: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    rows_late: int = 0
    batch_ms: list[float] = field(default_factory=list)
    #: The last entry of `query.recentProgress`.
    last: Mapping[str, Any] | None = None
    #: The address of the dashboard; empty if its packages are not installed.
    url: str = ""

    @property
    def batch(self) -> int:
        """The last batch that was counted, -1 before the first."""
        return -1 if self.last is None else int(self.last["batchId"])

    def take(self, entries: Iterable[Mapping[str, Any]]) -> bool:
        """Counts new batches; returns whether there were any."""
        fresh = [entry for entry in entries if entry["batchId"] > self.batch]
        for entry in fresh:
            self._add(entry)
        return bool(fresh)

    def _add(self, entry: Mapping[str, Any]) -> None:
        self.rows_in += sum(entry["rowsIn"].values())
        self.rows_out += entry["rowsOut"]
        self.rows_late += sum(entry["rowsLate"].values())
        self.batch_ms.append(entry["batchMs"])
        self.last = entry


@dataclass(frozen=True)
class DemoResult:
    """The outcome of a demonstration."""

    spec: DemoSpec
    banks: Banks
    live: Live
    committed: Committed
    verdict: Verdict
    #: Broker and lowest price: the answer of QUERY 1.
    cheapest: Sequence[tuple[str, str]]

    @property
    def exact(self) -> bool:
        """Whether the result equals the batch query's, and exactly the late rows were dropped."""
        late = tuple(self.verdict.late[bank] for bank in BANKS)
        return (
            self.verdict.differing_rows == 0
            and self.verdict.collected_rows == self.committed.rows_out
            and self.committed.rows_late == late
        )

    def document(self) -> dict[str, Any]:
        """The figures as plain data, for `--json`."""
        last, state = self.live.last or {}, self.committed
        times = np.array(self.live.batch_ms) / 1e3
        return {
            "seconds": round(self.live.elapsed_s, 1),
            "batches": state.batch + 1,
            "rows_per_bank_and_batch": self.spec.rows,
            "window_seconds": self.banks.window_s,
            "rows_in": dict(zip(BANKS, state.rows_in, strict=True)),
            "rows_late": dict(zip(BANKS, state.rows_late, strict=True)),
            "rows_out": state.rows_out,
            "state_rows": last.get("stateRows"),
            "state_bytes": last.get("stateBytes"),
            "watermark": last.get("watermark"),
            "batch_p50_s": round(float(np.median(times)), 4),
            "batch_max_s": round(float(times.max()), 4),
            "slots": last.get("slots"),
            "query1": [
                {"brokerName": broker, "min_price": price} for broker, price in self.cheapest
            ],
            "check": {
                "expected_rows": self.verdict.expected_rows,
                "collected_rows": self.verdict.collected_rows,
                "differing_rows": self.verdict.differing_rows,
                "expected_late": dict(self.verdict.late),
            },
            "exact": self.exact,
        }


def run_demo(spec: DemoSpec, show: Callable[[Live], None] = lambda _: None) -> DemoResult:
    """Runs the demonstration; calls `show` several times a second."""
    live = Live()
    with tempfile.TemporaryDirectory(prefix="spillway-demo-") as folder:
        show(live)
        spark = _session(Path(folder))
        try:
            return _run(spark, spec, Path(folder), live, show)
        finally:
            spark.stop()


def _session(folder: Path) -> SparkSession:
    with java_errors_to(folder / "spark.log"):
        return local_session(
            "spillway-demo",
            conf={
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.shuffle.partitions": "8",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.local.dir": str(folder / "scratch"),
            },
        )


def _run(
    spark: SparkSession, spec: DemoSpec, folder: Path, live: Live, show: Callable[[Live], None]
) -> DemoResult:
    banks = Banks(spec.rows)
    query = _start(spark, spec, banks, folder)
    board = open_dashboard(query, live, show)
    try:
        _follow(query, spec.seconds, live, show)
    finally:
        query.stop()
        if board is not None:
            board.close()
    live.take(query.recentProgress)
    committed = Checkpoint(str(folder / "checkpoint" / "spillway")).log.latest()
    if committed is None:
        raise QueryError(
            "the demonstration ended before it committed its first batch",
            hint="run `spillway doctor`, or use more --seconds",
        )
    live.phase = "checking the result against a Spark batch query"
    show(live)
    collected = _collected(spark, folder / "result", committed.batch)
    verdict = check_result(spark, banks, committed.batch + 1, collected)
    return DemoResult(spec, banks, live, committed, verdict, _query1(collected))


def open_dashboard(query: Query, live: Live, show: Callable[[Live], None]) -> Dashboard | None:
    """Opens the dashboard of a demonstration and shows its address; None without its packages."""
    try:
        board = query.dashboard()
    except EnvironmentMissing:
        return None
    live.url = board.url
    show(live)
    return board


def _start(spark: SparkSession, spec: DemoSpec, banks: Banks, folder: Path) -> Query:
    joined = (
        join(**{bank: banks.stream(spark, bank) for bank in BANKS})
        .on(*KEYS)
        .within(f"{banks.window_s} seconds", time=TIME, lateness=f"{LATENESS_S} seconds")
    )
    return (
        joined.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .adapt(slots=spec.slots)
        .trigger(processingTime=f"{_TRIGGER_S} seconds")
        .start(str(folder / "result"))
    )


def _follow(query: Query, seconds: float, live: Live, show: Callable[[Live], None]) -> None:
    """Watches the query for `seconds` after its first batch, then until it is between batches."""
    live.phase = "first batch: Spark starts its workers and compiles its plans"
    _wait(query, live, show, lambda fresh: fresh)
    live.phase, began = "running", time.monotonic()

    def over(_: bool) -> bool:
        live.elapsed_s = time.monotonic() - began
        return live.elapsed_s >= seconds

    _wait(query, live, show, over)
    _wait(query, live, show, lambda fresh: fresh or not query.status["isTriggerActive"])


def _wait(
    query: Query, live: Live, show: Callable[[Live], None], done: Callable[[bool], bool]
) -> None:
    """Counts batches until `done` returns true; its argument says whether a batch was just committed."""
    moved_at = time.monotonic()
    while True:
        if not query.isActive:
            raise query.exception() or QueryError(
                "the query ended early, without an error", hint="run `spillway doctor`"
            )
        fresh = live.take(query.recentProgress)
        if fresh:
            moved_at = time.monotonic()
        show(live)
        if done(fresh):
            return
        if time.monotonic() > moved_at + _PATIENCE_S:
            raise QueryError(
                f"the query committed no batch in {_PATIENCE_S} seconds",
                hint="run `spillway doctor`, or use fewer --rows",
            )
        time.sleep(_LOOK_EVERY_S)


def _collected(spark: SparkSession, path: Path, last_batch: int) -> DataFrame:
    """The output of the committed batches; file names of the sink start with the batch."""
    number = F.substring(F.col("_metadata.file_name"), 2, 12).cast("bigint")
    return spark.read.parquet(str(path)).where(number <= last_batch)


def _query1(collected: DataFrame) -> list[tuple[str, str]]:
    answer = collected.groupBy("bank1.brokerName").agg(F.min("bank1.price").alias("price"))
    rows = answer.orderBy("price", "brokerName").collect()
    return [(row["brokerName"], str(row["price"])) for row in rows]
