"""One query on three executors, through everything that can happen to them; reports what it saw.

Batches of the first start, with six slots:
  up to QUIET      nothing happens, slots stay where they are
  then             an executor is killed in the middle of a batch, Spark starts another
  WORKER_DIES      a Python worker is killed inside a task, Spark runs the task again
  after STOP       the query is stopped, in the middle of a batch too
The second start has four slots and takes the rest of the input.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from inputs import Input
from lives import SHORT_LIVED
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spillway.spark.api.query import Query
from spillway.spark.api.session import local_session
from spillway.spark.runtime.exchange.anchors import Anchors
from spillway.testing import Fault, Faults

SLOTS, FEWER_SLOTS = 6, 4
QUIET, WORKER_DIES, STOP, FILES = 4, 8, 10, 15


def main(given: str, root: str) -> None:
    """Runs the whole story and leaves `report.json`."""
    spark = local_session(
        "cluster",
        "local-cluster[3,1,1024]",
        {
            **SHORT_LIVED,
            "spark.sql.parquet.compression.codec": "uncompressed",
            # A fetch from a dead executor gives up soon, instead of after 15 seconds.
            "spark.shuffle.io.maxRetries": "1",
            "spark.shuffle.io.retryWait": "1s",
        },
    )
    Path(root, "application").write_text(spark.sparkContext.applicationId)
    report = Report(Path(root, "report.json"))
    report["cleared"] = after_cleared_cache(spark)
    dies = Fault("after-runs", WORKER_DIES, 2, f"{root}/worker-died", kill=True)
    query = started(spark, Input(**json.loads(given)), root, SLOTS, Faults((dies,)))
    until(query, QUIET)
    anchors = query._loop.stage.placement.anchors
    assert anchors is not None
    report["places"] = anchors.places()
    report["plan"] = query.describe()
    report["killed"] = kill_executor(spark, query)
    until(query, STOP)
    query.stop()
    report["first"] = query.recentProgress
    query = started(spark, Input(**json.loads(given)), root, FEWER_SLOTS, Faults())
    query.awaitTermination()
    report["second"] = query.recentProgress
    report["executors"] = executor_pids()
    report.write()
    spark.stop()


class Report(dict[str, Any]):
    """What the test reads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def write(self) -> None:
        """Puts it where the test finds it, whole."""
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self))
        partial.rename(self._path)


def started(spark: SparkSession, given: Input, root: str, slots: int, faults: Faults) -> Query:
    """The query on its checkpoint; each executor has a memory tier of its own, as on hosts apart."""
    writer = (
        given.join(spark)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{root}/checkpoint")
        .adapt(slots=slots, groups=32, share="executor")
        .trigger(availableNow=True)
    )
    return writer.faults(faults).start(f"{root}/out")


def until(query: Query, batch: int) -> None:
    """Waits for a batch to be committed."""

    def there() -> bool:
        problem = query.exception()
        if problem is not None:
            raise problem
        last = query.lastProgress
        return last is not None and last["batchId"] >= batch

    wait(there, 150)


def wait(true: Callable[[], bool], seconds: float) -> None:
    """Waits for something to come true."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "it took too long"
        time.sleep(0.01)


def kill_executor(spark: SparkSession, query: Query) -> dict[str, Any]:
    """SIGKILL to the JVM that has slot 0, while tasks run."""
    last = query.lastProgress
    assert last is not None
    pid = int(last["slots"][0]["worker"].split("/")[1])
    wait(lambda: running_tasks(spark) > 0, 60)
    executors = executor_pids()
    assert pid in executors
    os.kill(pid, signal.SIGKILL)
    return {"pid": pid, "executors": executors, "after": last["batchId"]}


def running_tasks(spark: SparkSession) -> int:
    """Tasks that run now, on all executors."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def executor_pids() -> list[int]:
    """The JVMs of the executors: children of the driver's."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                found.append(process.pid)
    return found


def after_cleared_cache(spark: SparkSession) -> dict[str, Any]:
    """What the exchange does when the user has cleared Spark's cache under it."""
    anchors = Anchors(spark, SLOTS)
    spark.catalog.clearCache()
    rows = spark.range(600).selectExpr("id", f"int(id % {SLOTS}) AS slot")
    placed = anchors.exchange(rows, F.col("slot"))
    found = placed.select(F.spark_partition_id().alias("at"), "slot").distinct().collect()
    places = anchors.places()
    anchors.close()
    return {"found": [[row["at"], row["slot"]] for row in found], "places": places}


if __name__ == "__main__":
    main(*sys.argv[1:])
