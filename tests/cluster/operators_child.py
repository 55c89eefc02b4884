"""A driver that is made to be killed, with any operator; see `driver_child.py`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from driver_child import JAVA
from inputs import SCHEMAS
from pyspark.sql import DataFrame, SparkSession

import spillway as sw
from spillway.coordinator import coordinator
from spillway.policies.ring.model import HopCosts, ProbeStep, Source
from spillway.spark.api.result import Result
from spillway.spark.api.session import local_session
from spillway.spark.runtime import loop


def query_of(kind: str, spark: SparkSession, root: str) -> Result:
    """The query under test."""

    def rows(stream: str) -> DataFrame:
        reader = spark.readStream.schema(SCHEMAS[stream]).option("maxFilesPerTrigger", 1)
        return reader.parquet(f"{root}/in/{stream}")

    if kind == "match":

        def alike(prices: Any, stock: Any) -> Any:
            return prices.ref % 50 == stock.key % 50

        return (
            sw.join(**{stream: rows(stream) for stream in SCHEMAS})
            .within("2 minutes", time="ts", lateness="3 minutes")
            .match("abs(orders.amount - prices.price) < 0.3")
            .match(alike, "prices", "stock")
            .select("orders.item", "orders.amount", "prices.price", "stock.place")
        )
    orders = sw.stream(rows("orders"), "orders")
    if kind == "group-by":
        return orders.group_by("item").agg(n=sw.count(), total=sw.sum("amount"))
    if kind == "windowed":
        return orders.group_by("item").last(3, by="ts").agg(n=sw.count())
    return orders.dedup("item")


def hops_alone(*_: Any) -> Any:
    """What is measured of a join that takes time on the way alone, so that one slot is best."""
    step = ProbeStep("b", 100.0, 0.01, 1e-9)
    sources = (Source("a", 1.0, (step,)), Source("b", 1.0, (replace(step, stream="a"),)))
    return sources, HopCosts(send_s=1e-6, hop_s=0.01)


def main(kind: str, root: str, ready: str, adapt: str) -> None:
    """Runs one life; `adapt` are settings, as JSON, and the bytes of a round of cleanup.

    A ring has what is measured given, so that it gets shorter on any machine.
    """
    settings = json.loads(adapt)
    if "ring" in settings:
        coordinator.model_now = hops_alone
    loop.ROUND_BYTES = settings.pop("round_bytes", loop.ROUND_BYTES)
    conf = {"spark.driver.extraJavaOptions": JAVA, "spark.sql.session.timeZone": "UTC"}
    spark = local_session("killed", "local[2]", conf)
    sys.stdin.readline()
    query = (
        query_of(kind, spark, root)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{root}/checkpoint")
        .adapt(slots=2, groups=16, **settings)
        .trigger(availableNow=True)
        .start(f"{root}/out")
    )
    Path(ready).touch()
    query.awaitTermination()
    Path(f"{root}/report.json").write_text(json.dumps(query.recentProgress))
    Path(f"{root}/done").touch()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
