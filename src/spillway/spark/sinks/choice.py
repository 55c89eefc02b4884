"""Makes the sink that a `SinkSpec` describes."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from spillway.errors import PlanError
from spillway.spark.sinks.append import AppendSink
from spillway.spark.sinks.console import ConsoleSink
from spillway.spark.sinks.files import FileSink, directory_of
from spillway.spark.sinks.foreach import ForeachBatchSink
from spillway.spark.sinks.formats import SinkFormat, find_format
from spillway.spark.sinks.kafka import KafkaSink
from spillway.spark.sinks.memory import MemoryTableSink
from spillway.spark.sinks.spec import Sink, SinkSpec
from spillway.spark.sinks.table import TableSink, refuse_merging
from spillway.spark.sinks.transactions.delta import DeltaTarget
from spillway.spark.sinks.transactions.directories import OPTION, DirectoryTarget
from spillway.spark.sinks.transactions.postgres.target import PostgresTarget
from spillway.spark.sinks.transactions.target import TransactionalSink

_LAKEHOUSES = ("delta", "iceberg")


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
    name = spec.format or _default_format(spark)
    if name.lower() in _LAKEHOUSES:
        return _lakehouse(spec, name, spark)
    if name.lower() == "postgresql":
        _refuse_partitions(spec, name)
        table = PostgresTarget(spec, spark)
        return TransactionalSink(table, f"the table {table.name}", spec.check_owner)
    refuse_merging(spec, name)
    return _by_format(spec, name, spark)


def _by_format(spec: SinkSpec, name: str, spark: SparkSession) -> Sink:
    if name.lower() == "console":
        _refuse_partitions(spec, name)
        return ConsoleSink(spec)
    if name.lower() == "memory":
        _refuse_partitions(spec, name)
        return MemoryTableSink(spec.query_name, spark)
    found = find_format(spark, name)
    if found.writes_files:
        return _files(spec, found, spark)
    _refuse_partitions(spec, name)
    if name.lower() == "kafka":
        return KafkaSink(spec, spark)
    return AppendSink(spec, name, spark, numbered=found.in_python)


def _files(spec: SinkSpec, kind: SinkFormat, spark: SparkSession) -> Sink:
    if (spec.option(OPTION) or "false").strip().lower() != "true":
        return FileSink(replace(spec, options=spec.options_without(OPTION)), kind, spark)
    directory = directory_of(spec, kind, spark, spec.options_without("path", OPTION))
    target = DirectoryTarget(spec, kind, spark, directory)
    return TransactionalSink(target, f"the directory {directory}", spec.check_owner)


def _lakehouse(spec: SinkSpec, name: str, spark: SparkSession) -> Sink:
    """The sink for a table of Delta Lake by its path, or of Iceberg by its name."""
    find_format(spark, name)
    if name.lower() == "delta":
        target = DeltaTarget(spec, spark)
        return TransactionalSink(target, f"the Delta table {target.name}", spec.check_owner)
    table = spec.path or spec.option("path")
    if not table:
        raise PlanError(
            "the iceberg sink needs a table to write to",
            hint='name it: .toTable("catalog.schema.table")',
        )
    options = spec.options_without("path")
    return TableSink(replace(spec, table=table, path=None, options=options), table, spark)


def _default_format(spark: SparkSession) -> str:
    return spark.conf.get("spark.sql.sources.default") or "parquet"


def _refuse_partitions(spec: SinkSpec, sink: str) -> None:
    if spec.partition_by:
        raise PlanError(
            f"the sink {sink!r} does not support partitionBy({', '.join(spec.partition_by)})",
            hint="leave partitionBy out, or write to files or a table",
        )
