"""One engine of one case, in its own process: an order in, the times of its batches out.

    python -m spillway_lab.bench.engine ORDER.json RESULT.json

It prints one JSON line per finished batch, for progress displays. All engines use the same clock:
`durationMs.triggerExecution` of Spark's progress, a whole trigger from finding offsets to committing
them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spillway.metrics.events import CleanedUp
from spillway.spark.api.aggregations import avg as sw_avg
from spillway.spark.api.aggregations import count as sw_count
from spillway.spark.api.aggregations import sum as sw_sum
from spillway.spark.api.join import join
from spillway.spark.api.query import Query
from spillway.spark.api.result import Result
from spillway.spark.api.session import local_session
from spillway.spark.api.stream import stream
from spillway_lab.bench.spec import (
    ADVANCE_MS,
    CORES,
    IDENTITY,
    PROVIDERS,
    TUMBLING_BATCHES,
    UNSYNCED,
    WINDOW_BATCHES,
    Case,
    EngineOrder,
)

_WINDOW = f"{WINDOW_BATCHES * ADVANCE_MS} milliseconds"
_TUMBLING = f"{TUMBLING_BATCHES * ADVANCE_MS} milliseconds"
_LOOK_EVERY_S = 0.25
_LEAST_WARMUP_BATCHES = 3
_SAMPLE_ROWS = 10_000


class Run(Protocol):
    """A started query of any engine."""

    def last_batch(self) -> int:
        """The last finished batch, -1 before the first; raises the error that ended the query."""

    def batches(self) -> list[dict[str, Any]]:
        """One entry per finished batch: batch, seconds, state_rows, and what the engine adds."""

    def stop(self) -> None:
        """Ends the query."""


class SpillwayRun:
    """A Spillway query or the identity plan, with Spark's clock and its own records."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._entries: dict[int, dict[str, Any]] = {}

    def last_batch(self) -> int:
        """The last batch whose records have arrived."""
        if (problem := self._query.exception()) is not None:
            raise problem
        # The query keeps only recent entries, so copy them as they come.
        self._entries |= {entry["batchId"]: entry for entry in self._query.recentProgress}
        return max(self._entries, default=-1)

    def batches(self) -> list[dict[str, Any]]:
        """The finished batches, with the reports of the slots."""
        self.last_batch()
        return [
            _timed(
                progress,
                state_rows=self._entries[progress["batchId"]]["stateRows"],
                state_bytes=self._entries[progress["batchId"]]["stateBytes"],
                operator_cpu_ms=self._entries[progress["batchId"]]["operatorCpuMs"],
                rows_out=self._entries[progress["batchId"]]["rowsOut"],
                busy_s=sum(
                    slot["busyMs"] / 1e3 for slot in self._entries[progress["batchId"]]["slots"]
                ),
            )
            for progress in self._query.sparkProgress
        ]

    def clean_up(self) -> dict[str, float]:
        """Makes missing results; returns their row count, and the summed seconds of all slots."""
        known = len(self._query.events)
        self._query.cleanup(show=lambda _: None)
        events = [e for e in self._query.events[known:] if isinstance(e, CleanedUp)]
        asked = [event for event in events if event.reason == "asked for"]
        return {
            "rows": sum(event.rows_out for event in asked),
            "seconds": sum(event.seconds for event in asked),
        }

    def stop(self) -> None:
        """Ends the query."""
        self._query.stop()


class SparkRun:
    """A query of Spark itself."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    def last_batch(self) -> int:
        """The last batch in Spark's progress."""
        if (problem := self._query.exception()) is not None:
            raise problem
        last = self._query.lastProgress
        return -1 if last is None else int(last["batchId"])

    def batches(self) -> list[dict[str, Any]]:
        """The finished batches; a chain of joins sums the state of its joins."""
        return [
            _timed(one, state_rows=sum(s["numRowsTotal"] for s in one["stateOperators"]))
            for one in self._query.recentProgress
        ]

    def stop(self) -> None:
        """Ends the query."""
        self._query.stop()


def measure(order: EngineOrder, say: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Warms up, runs the batches, and returns their times."""
    spark = session(order)
    try:
        if order.warmup_s > 0:
            _run(spark, order.smaller(), "warm-up", say, order.warmup_s, _LEAST_WARMUP_BATCHES)
        found: dict[str, Any] = {}
        batches = _run(spark, order, "measured", say, 0.0, order.batches, found)
        return {
            "engine": order.engine,
            **found,
            "batches": batches[: order.batches],
            "plain_arrow_bytes_per_row": _plain_bytes(spark, order),
            "spark": pyspark.__version__,
        }
    finally:
        spark.stop()


def session(order: EngineOrder, master: str = f"local[{CORES}]") -> SparkSession:
    """A fresh Spark session; engines differ only in the state store."""
    conf = {
        "spark.driver.memory": order.driver_memory,
        "spark.local.dir": f"{order.directory}/scratch",
        "spark.sql.warehouse.dir": f"{order.directory}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.streaming.numRecentProgressUpdates": str(order.batches + 100),
    }
    if order.engine in PROVIDERS:
        conf["spark.sql.streaming.stateStore.providerClass"] = PROVIDERS[order.engine]
        # RocksDB only: without it, every batch uploads whole files.
        changelog = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
        conf[changelog] = "true"
    return local_session(f"bench {order.name} {order.engine}", master, conf)


def start(spark: SparkSession, order: EngineOrder, checkpoint: str) -> Run:
    """Starts the case's query on the engine, with a sink that drops rows."""
    frames, case = order.pairs.stream(spark), order.case
    if order.engine in PROVIDERS:
        rows = (
            spark_join(frames, windowed=case.windowed, how=case.how)
            if case.keys is None
            else spark_group_by(frames, case.keys, windowed=case.windowed)
        )
        writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        updates = case.keys is not None and not case.windowed
        return SparkRun(writer.outputMode("update" if updates else "append").start())
    query = (
        _joined(frames, case) if case.keys is None else _grouped(frames, case.keys, case.windowed)
    )
    ours = query.writeStream.format("noop").option("checkpointLocation", checkpoint)
    ours._identity = order.engine == IDENTITY
    ours = ours.adapt(slots=CORES, memory=order.memory, fsync=order.engine != UNSYNCED)
    return SpillwayRun(ours.start())


def _joined(frames: Mapping[str, DataFrame], case: Case) -> Result:
    joined = join(**frames, how=case.how).on("k")
    return joined.within(_WINDOW, time="ts") if case.windowed else joined


def _grouped(frames: Mapping[str, DataFrame], keys: int, windowed: bool) -> Result:
    aggregates = {"rows": sw_count(), "total": sw_sum("v"), "mean": sw_avg("v")}
    grouped = stream(by_key(frames, keys)).group_by("k")
    if windowed:
        grouped = grouped.window(_TUMBLING, time="ts")
    return grouped.agg(**aggregates)


def spark_group_by(
    frames: Mapping[str, DataFrame], keys: int, *, windowed: bool = False
) -> DataFrame:
    """The same group-by in plain Spark."""
    found = by_key(frames, keys)
    rows = found.groupBy("k")
    if windowed:
        rows = found.withWatermark("ts", "0 seconds").groupBy("k", F.window("ts", _TUMBLING))
    return rows.agg(F.count("*").alias("rows"), F.sum("v").alias("total"), F.avg("v").alias("mean"))


def by_key(frames: Mapping[str, DataFrame], keys: int) -> DataFrame:
    """The union of all streams, with `keys` keys, a power of two."""
    first, *others = frames.values()
    for other in others:
        first = first.unionAll(other)
    times = [name for name in first.columns if name == "ts"]
    return first.select(F.col("k").bitwiseAND(F.lit(keys - 1)).alias("k"), "v", *times)


def spark_join(frames: Mapping[str, DataFrame], *, windowed: bool, how: str = "inner") -> DataFrame:
    """The same join in plain Spark: binary, or a chain for more than two streams."""
    first, *others = frames.values()
    if not windowed:
        for other in others:
            first = first.join(other, "k")
        return first
    left, right = (
        frame.select(
            *(F.col(name).alias(f"{side}_{name}") for name in frame.columns)
        ).withWatermark(f"{side}_ts", "0 seconds")
        for side, frame in frames.items()
    )
    within = " AND ".join(
        f"{late}_ts < {early}_ts + INTERVAL {_WINDOW}" for late, early in (("a", "b"), ("b", "a"))
    )
    return left.join(right, F.expr(f"a_k = b_k AND {within}"), how)


def _run(
    spark: SparkSession,
    order: EngineOrder,
    phase: str,
    say: Callable[[dict[str, Any]], None],
    least_s: float,
    least_batches: int,
    found: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Runs at least `batches` batches for at least this long; with `found`, also the cleanup."""
    checkpoint = f"{order.directory}/checkpoint-{phase}"
    run = start(spark, order, checkpoint)
    try:
        batches = await_batches(run, phase, say, least_s, least_batches)
        if found is not None and isinstance(order.memory, int):
            assert isinstance(run, SpillwayRun)
            say({"phase": "cleanup", "batch": 0, "of": 1})
            found["cleanup"] = run.clean_up()
        return batches
    finally:
        run.stop()


def await_batches(
    run: Run,
    phase: str,
    say: Callable[[dict[str, Any]], None],
    least_s: float,
    least_batches: int,
) -> list[dict[str, Any]]:
    """Waits for enough batches and enough time; returns the batches of a run."""
    ends_at, seen = time.monotonic() + least_s, -1
    while seen + 1 < least_batches or time.monotonic() < ends_at:
        time.sleep(_LOOK_EVERY_S)
        if (last := run.last_batch()) > seen:
            seen = last
            say({"phase": phase, "batch": seen + 1, "of": least_batches})
    # Spark reports a batch only after its commit, a moment after Spillway does.
    while len(batches := run.batches()) < least_batches:
        time.sleep(_LOOK_EVERY_S)
        run.last_batch()
    return batches


def _timed(progress: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    seconds = progress["durationMs"]["triggerExecution"] / 1e3
    return {"batch": progress["batchId"], "seconds": seconds, **more}


def _plain_bytes(spark: SparkSession, order: EngineOrder) -> float:
    """Mean bytes of an input row in plain Arrow arrays, over all streams."""
    frames = order.pairs.batch(spark, 0, 0)
    tables = [frame.limit(_SAMPLE_ROWS).toArrow() for frame in frames.values()]
    return float(sum(t.nbytes for t in tables) / sum(t.num_rows for t in tables))


def answer(
    measured: Callable[[EngineOrder, Callable[[dict[str, Any]], None]], dict[str, Any]],
    order_path: str,
    result_path: str,
) -> None:
    """Reads the order, measures, and writes the result atomically."""
    order = EngineOrder(**json.loads(Path(order_path).read_text()))
    partial = f"{result_path}.partial"
    Path(partial).write_text(json.dumps(measured(order, _say)))
    os.replace(partial, result_path)


def _say(fact: dict[str, Any]) -> None:
    print(json.dumps(fact), flush=True)


if __name__ == "__main__":
    answer(measure, *sys.argv[1:])
