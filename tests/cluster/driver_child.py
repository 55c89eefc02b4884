"""A driver that is made to be killed: runs a life of each of its queries on their checkpoints, and ends.

See `lives.py`. A ring has what is measured given, so that it gets shorter on any machine.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from lives import SHORT_LIVED, Life
from pyspark.sql import SparkSession
from queries import KINDS
from sinks import SINKS

from spillway.coordinator import coordinator
from spillway.policies.ring.model import HopCosts, ProbeStep, Source
from spillway.spark.api.session import local_session
from spillway.spark.runtime import loop
from spillway.testing import Faults


def hops_alone(*_: Any) -> Any:
    """What is measured of a join that takes time on the way alone, so that one slot is best."""
    step = ProbeStep("b", 100.0, 0.01, 1e-9)
    sources = (Source("a", 1.0, (step,)), Source("b", 1.0, (replace(step, stream="a"),)))
    return sources, HopCosts(send_s=1e-6, hop_s=0.01)


def main(*texts: str) -> None:
    """Runs one life, or the lives of several queries side by side."""
    lives = [Life.parsed(text) for text in texts]
    if any("ring" in life.adapt for life in lives):
        coordinator.model_now = hops_alone
    rounds = [life.round_bytes for life in lives if life.round_bytes is not None]
    loop.ROUND_BYTES = min(rounds, default=loop.ROUND_BYTES)
    spark = local_session("killed", lives[0].master, {**SHORT_LIVED, **lives[0].conf})
    with Path(lives[0].root, "applications").open("a") as names:
        names.write(spark.sparkContext.applicationId + "\n")
    sys.stdin.readline()
    with ThreadPoolExecutor(len(lives)) as threads:
        # A start changes settings of its session for a moment, so each query has its own.
        for _ in threads.map(live, lives, (spark.newSession() for _ in lives)):
            pass
    spark.stop()


def live(life: Life, spark: SparkSession) -> None:
    """Runs the query of a life to its end."""
    result = KINDS[life.kind].build(life.given, spark)
    if life.plan:
        result = result.plan(**life.plan)
    writer = (
        result.writeStream.option("checkpointLocation", f"{life.root}/checkpoint")
        .adapt(**{"slots": 2, "groups": 16, **life.adapt})
        .faults(Faults(always_move=life.always_move))
        .trigger(availableNow=True)
    )
    sink = SINKS[life.sink]
    query = sink.start(writer, result, life)
    life.ready.touch()
    query.awaitTermination()
    sink.export(spark, life)
    Path(life.root, "report.json").write_text(json.dumps(query.recentProgress))
    life.done.touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
