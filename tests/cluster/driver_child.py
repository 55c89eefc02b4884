"""A driver that is made to be killed: runs one life of a query on its checkpoint, and ends.

See `lives.py`. A ring has what is measured given, so that it gets shorter on any machine.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from lives import JAVA, Life
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


def main(text: str) -> None:
    """Runs one life."""
    life = Life.parsed(text)
    if "ring" in life.adapt:
        coordinator.model_now = hops_alone
    if life.round_bytes is not None:
        loop.ROUND_BYTES = life.round_bytes
    options = {"spark.driver.extraJavaOptions": JAVA, "spark.executor.extraJavaOptions": JAVA}
    conf = {"spark.sql.session.timeZone": "UTC", **options, **life.conf}
    spark = local_session("killed", life.master, conf)
    with Path(life.root, "applications").open("a") as names:
        names.write(spark.sparkContext.applicationId + "\n")
    sys.stdin.readline()
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
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
