"""Spillway: adaptive, state-intensive stream queries on Apache Spark, from Python.

import spillway as sw

joined = (sw.join(orders=orders, payments=payments)
            .on("order_id")
            .within("10 minutes", time="ts", lateness="30 seconds"))
query = (joined.writeStream.format("parquet")
            .option("checkpointLocation", "ck")
            .start("out"))

Public names load on first use, so `import spillway` takes milliseconds and `spillway doctor` runs
where pyspark is missing. `spillway.testing` is for tests of your own queries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spillway.version import VERSION as __version__

if TYPE_CHECKING:
    from spillway.errors import EnvironmentMissing as EnvironmentMissing
    from spillway.errors import PlanError as PlanError
    from spillway.errors import QueryError as QueryError
    from spillway.errors import SettingsError as SettingsError
    from spillway.errors import SpillwayError as SpillwayError
    from spillway.errors import StateError as StateError
    from spillway.operators.predicates.conditions import predicate as predicate
    from spillway.operators.predicates.conditions import scalar as scalar
    from spillway.operators.predicates.measures import cosine_above as cosine_above
    from spillway.operators.predicates.measures import dot_above as dot_above
    from spillway.operators.predicates.measures import nearer as nearer
    from spillway.operators.predicates.tiles import tiles as tiles
    from spillway.spark.api.aggregations import Aggregation as Aggregation
    from spillway.spark.api.aggregations import approx_count_distinct as approx_count_distinct
    from spillway.spark.api.aggregations import approx_quantile as approx_quantile
    from spillway.spark.api.aggregations import avg as avg
    from spillway.spark.api.aggregations import bool_and as bool_and
    from spillway.spark.api.aggregations import bool_or as bool_or
    from spillway.spark.api.aggregations import collect_list as collect_list
    from spillway.spark.api.aggregations import collect_set as collect_set
    from spillway.spark.api.aggregations import count as count
    from spillway.spark.api.aggregations import count_distinct as count_distinct
    from spillway.spark.api.aggregations import first as first
    from spillway.spark.api.aggregations import fold as fold
    from spillway.spark.api.aggregations import function as function
    from spillway.spark.api.aggregations import last as last
    from spillway.spark.api.aggregations import max as max
    from spillway.spark.api.aggregations import max_by as max_by
    from spillway.spark.api.aggregations import min as min
    from spillway.spark.api.aggregations import min_by as min_by
    from spillway.spark.api.aggregations import stddev as stddev
    from spillway.spark.api.aggregations import sum as sum
    from spillway.spark.api.aggregations import variance as variance
    from spillway.spark.api.dedup import Dedup as Dedup
    from spillway.spark.api.groupby import GroupBy as GroupBy
    from spillway.spark.api.join import Join as Join
    from spillway.spark.api.join import join as join
    from spillway.spark.api.query import Query as Query
    from spillway.spark.api.session import local_session as local_session
    from spillway.spark.api.sql.query import sql as sql
    from spillway.spark.api.stream import Stream as Stream
    from spillway.spark.api.stream import stream as stream
    from spillway.spark.api.windowed import WindowedGroupBy as WindowedGroupBy
    from spillway.spark.jobs.starting import start_job as start_job

#: The public names of each module.
_HOMES = {
    "errors": (
        "EnvironmentMissing",
        "PlanError",
        "QueryError",
        "SettingsError",
        "SpillwayError",
        "StateError",
    ),
    "operators.predicates.conditions": ("predicate", "scalar"),
    "operators.predicates.measures": ("cosine_above", "dot_above", "nearer"),
    "operators.predicates.tiles": ("tiles",),
    "spark.api.aggregations": (
        "Aggregation",
        "approx_count_distinct",
        "approx_quantile",
        "avg",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "count",
        "count_distinct",
        "first",
        "fold",
        "function",
        "last",
        "max",
        "max_by",
        "min",
        "min_by",
        "stddev",
        "sum",
        "variance",
    ),
    "spark.api.dedup": ("Dedup",),
    "spark.api.groupby": ("GroupBy",),
    "spark.api.join": ("Join", "join"),
    "spark.api.query": ("Query",),
    "spark.api.session": ("local_session",),
    "spark.api.sql.query": ("sql",),
    "spark.api.stream": ("Stream", "stream"),
    "spark.api.windowed": ("WindowedGroupBy",),
    "spark.jobs.starting": ("start_job",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604 - names are computed


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module("spillway.testing")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'spillway' has no attribute {name!r}")
    value = getattr(import_module(f"spillway.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
