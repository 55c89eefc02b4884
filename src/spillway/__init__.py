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
from spillway.simulator.scenario import Scenario
from spillway.simulator.simulation import simulate
from spillway.spark.join import Join, join
from spillway.spark.query import Query
from spillway.version import VERSION as __version__

__all__ = [
    "EnvironmentMissing",
    "Join",
    "PlanError",
    "Query",
    "QueryError",
    "Scenario",
    "SettingsError",
    "SpillwayError",
    "StateError",
    "__version__",
    "join",
    "simulate",
]
