"""Makes the sink that a `SinkSpec` describes."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spillway.errors import PlanError
from spillway.spark.sinks.append import AppendSink
from spillway.spark.sinks.console import ConsoleSink
from spillway.spark.sinks.files import FileSink
from spillway.spark.sinks.foreach import ForeachBatchSink
from spillway.spark.sinks.formats import find_format
from spillway.spark.sinks.memory import MemoryTableSink
from spillway.spark.sinks.spec import Sink, SinkSpec
from spillway.spark.sinks.table import TableSink


def make_sink(spec: SinkSpec, spark: SparkSession) -> Sink:
    """The sink for the user's writer verbs; raises `PlanError` or `SettingsError` if there is none.

    Example:
        >>> make_sink(SinkSpec("console", {}), spark)  # doctest: +SKIP
        <spillway.spark.sinks.console.ConsoleSink object at ...>
    """
    if spec.foreach_batch is not None:
        _refuse_partitions(spec, "foreachBatch")
        return ForeachBatchSink(spec.foreach_batch)
    if spec.table is not None:
        return TableSink(spec, spec.table, spark)
    return _by_format(spec, spec.format or _default_format(spark), spark)


def _by_format(spec: SinkSpec, name: str, spark: SparkSession) -> Sink:
    if name.lower() == "console":
        _refuse_partitions(spec, name)
        return ConsoleSink(spec)
    if name.lower() == "memory":
        _refuse_partitions(spec, name)
        return MemoryTableSink(spec.query_name, spark)
    found = find_format(spark, name)
    if found.writes_files:
        return FileSink(spec, found, spark)
    _refuse_partitions(spec, name)
    return AppendSink(spec, name, spark)


def _default_format(spark: SparkSession) -> str:
    return spark.conf.get("spark.sql.sources.default") or "parquet"


def _refuse_partitions(spec: SinkSpec, sink: str) -> None:
    if spec.partition_by:
        raise PlanError(
            f"the sink {sink!r} does not support partitionBy({', '.join(spec.partition_by)})",
            hint="leave partitionBy out, or write to files or a table",
        )
