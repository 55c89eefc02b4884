"""Spillway: adaptive, state-intensive stream queries on Apache Spark, from Python.

import spillway as sw

joined = (sw.join(orders=orders, payments=payments)
            .on("order_id")
            .within("10 minutes", time="ts", lateness="30 seconds"))
query = (joined.writeStream.format("parquet")
            .option("checkpointLocation", "ck")
            .start("out"))
"""

from spillway.errors import (
    EnvironmentMissing,
    PlanError,
    QueryError,
    SettingsError,
    SpillwayError,
    StateError,
)
from spillway.operators.conditions import predicate, scalar
from spillway.simulator.scenario import Scenario
from spillway.simulator.simulation import simulate
from spillway.spark.aggregations import (
    Aggregation,
    approx_quantile,
    avg,
    count,
    first,
    function,
    last,
    max,
    min,
    stddev,
    sum,
    variance,
)
from spillway.spark.dedup import Dedup
from spillway.spark.groupby import GroupBy
from spillway.spark.join import Join, join
from spillway.spark.query import Query
from spillway.spark.stream import Stream, stream
from spillway.spark.windowed import WindowedGroupBy
from spillway.version import VERSION as __version__

__all__ = [
    "Aggregation",
    "Dedup",
    "EnvironmentMissing",
    "GroupBy",
    "Join",
    "PlanError",
    "Query",
    "QueryError",
    "Scenario",
    "SettingsError",
    "SpillwayError",
    "StateError",
    "Stream",
    "WindowedGroupBy",
    "__version__",
    "approx_quantile",
    "avg",
    "count",
    "first",
    "function",
    "join",
    "last",
    "max",
    "min",
    "predicate",
    "scalar",
    "simulate",
    "stddev",
    "stream",
    "sum",
    "variance",
]
