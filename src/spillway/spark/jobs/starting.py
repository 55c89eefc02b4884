"""A job as a running query: its session, its streams, its query, its sink."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.duration import duration_us
from spillway.errors import PlanError, SettingsError
from spillway.jobs.reading import read_job
from spillway.jobs.spec import Job, Option, Source, StreamOf
from spillway.redaction import learn_options
from spillway.settings import Adapt
from spillway.spark.api.query import Query
from spillway.spark.api.result import Result
from spillway.spark.api.session import local_session
from spillway.spark.api.sql.query import sql
from spillway.spark.api.start.stages import plan_stages
from spillway.spark.api.writer import StreamWriter
from spillway.spark.sinks.refusal import JVM_ERRORS, reason_of

#: Formats whose files have their own schema.
_SELF_DESCRIBING = ("parquet", "orc", "avro", "delta")
#: Formats of files that need a schema.
_NEED_SCHEMA = ("csv", "json", "text", "xml")


def start_job(path: str | os.PathLike[str], spark: SparkSession | None = None) -> Query:
    """Starts the query of a job file in a session, or in a new local one.

    Example:
        >>> query = sw.start_job("examples/bank.yaml", spark)  # doctest: +SKIP
    """
    job = read_job(path)
    found = session_of(job) if spark is None else spark
    return started(job, query_of(job, streams_of(job, found), found))


def session_of(job: Job, *, submitted: bool = False) -> SparkSession:
    """The session of a job: the one that runs, or a new one; `spark-submit` sets where it runs."""
    conf = _texts(job.session.conf)
    learn_options(conf)
    if SparkSession.getActiveSession() is not None or submitted:
        builder = SparkSession.builder.appName(job.name)
        for name, value in conf.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    return local_session(job.name, job.session.master, conf)


def streams_of(job: Job, spark: SparkSession) -> dict[str, DataFrame]:
    """The sources and streams of a job by name."""
    found: dict[str, DataFrame] = {}
    for name, source in job.sources.items():
        found[name] = _read(name, source, spark)
    for name, stream in job.streams.items():
        found[name] = _derived(name, stream, found[stream.of])
    return found


def _read(name: str, source: Source, spark: SparkSession) -> DataFrame:
    options = _texts(source.options)
    learn_options(options)
    reader = spark.readStream.format(source.format).options(**options)
    field = f"sources.{name}"
    try:
        if source.schema_text is not None:
            reader = reader.schema(source.schema_text)
        elif source.format.lower() in _SELF_DESCRIBING[:2]:
            files = spark.read.format(source.format).options(**options)
            reader = reader.schema(files.load(source.path).schema)
        elif source.format.lower() in _NEED_SCHEMA:
            raise SettingsError(
                f"{field} has no schema, and {source.format} files do not have theirs",
                hint="add schema: 'id bigint, ts timestamp'",
            )
        return reader.load(source.path) if source.path is not None else reader.load()
    except JVM_ERRORS as problem:
        raise SettingsError(
            f"{field} cannot be read",
            detail=reason_of(problem),
            hint="check format, path, schema and options; formats outside Spark need "
            "session: {conf: {spark.jars.packages: ...}}",
        ) from problem


def _derived(name: str, stream: StreamOf, frame: DataFrame) -> DataFrame:
    """A stream over another: watermark, filter, columns."""
    part = "where"
    try:
        if stream.where is not None:
            frame = frame.where(stream.where)
        part = "select"
        if stream.select is not None:
            frame = frame.select(
                *(F.expr(one) if one != "*" else F.col(one) for one in stream.select)
            )
        part = "watermark"
        if stream.watermark is not None:
            late_us = duration_us("lateness", stream.watermark.lateness)
            # Spark counts lateness in milliseconds.
            frame = frame.withWatermark(
                stream.watermark.time, f"{-(-late_us // 1000)} milliseconds"
            )
        return frame
    except (AnalysisException, ParseException) as problem:
        raise SettingsError(
            f"streams.{name}.{part} cannot be resolved",
            detail=str(problem).strip().splitlines()[0],
            hint=f"the columns are {', '.join(frame.columns)}",
        ) from problem


def query_of(job: Job, streams: Mapping[str, DataFrame], spark: SparkSession) -> Result:
    """The query of a job over its streams."""
    if job.query.python is not None:
        return _python(job.query.python, job.folder, streams, spark)
    found = sql(spark, query_text(job), **streams)
    if isinstance(found, Result):
        return found
    raise SettingsError(
        "the query of the job begins with EXPLAIN", hint="leave it out, and run with --explain"
    )


def query_text(job: Job) -> str:
    """The SQL text of a job."""
    if job.query.sql is not None:
        return job.query.sql
    place = job.folder / str(job.query.file)
    try:
        return place.read_text()
    except OSError as problem:
        raise SettingsError(
            f"query.file {place} cannot be read",
            detail=problem.strerror,
            hint="give its path, from the folder of the job file",
        ) from problem


def _python(
    name: str, folder: Path, streams: Mapping[str, DataFrame], spark: SparkSession
) -> Result:
    """What the user's function returns; it gets the session and the streams by name."""
    module_name, _, function_name = name.partition(":")
    sys.path.insert(0, str(folder))
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as problem:
        raise SettingsError(
            f"query.python {name} cannot be imported",
            detail=str(problem),
            hint=f"write a function {function_name}(spark, {', '.join(streams)}) in {module_name}.py "
            "next to the job file, or install its package",
        ) from problem
    finally:
        sys.path.remove(str(folder))
    made = function(spark, **streams)
    if not isinstance(made, Result):
        raise PlanError(
            f"query.python {name} returned {type(made).__name__}, not a query of Spillway",
            hint="return what sw.join(...), .agg(...), .dedup(...) or sw.sql(...) gives",
        )
    return made


def writer_of(job: Job, result: Result) -> StreamWriter:
    """The writer of a job's query, ready to start."""
    options = _texts(job.sink.options)
    if job.checkpoint is not None:
        options["checkpointLocation"] = job.checkpoint
    writer = result.writeStream.queryName(job.name).options(**options).adapt(**job.adapt)
    if job.sink.format is not None:
        writer = writer.format(job.sink.format)
    if job.sink.mode is not None:
        writer = writer.outputMode(job.sink.mode)
    if job.sink.partition_by:
        writer = writer.partitionBy(*job.sink.partition_by)
    return writer.trigger(**job.trigger.arguments) if job.trigger.arguments else writer


def started(job: Job, result: Result) -> Query:
    """The running query of a job."""
    writer = writer_of(job, result)
    return writer.start(job.sink.path) if job.sink.table is None else writer.toTable(job.sink.table)


def checked(job: Job, result: Result) -> list[str]:
    """What the query of a job does, as lines; checks it as far as a start does before its checkpoint."""
    writer_of(job, result)
    stages = plan_stages(result, Adapt().changed(**job.adapt), job.sink.mode or result.MODES[0])
    lines = []
    for stage in stages:
        plan = stage.planned.plan
        lines.append(plan.OPERATOR)
        lines += [
            f"  stream {one.name} ({', '.join(name for name, _ in one.columns)})"
            for one in plan.streams
        ]
    columns = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in result.schema.fields)
    return [*lines, f"results ({columns})"]


def explanation(job: Job, streams: Mapping[str, DataFrame], spark: SparkSession) -> str:
    """The plan of a job's query as text."""
    if job.query.python is None:
        return str(sql(spark, f"EXPLAIN {query_text(job)}", **streams))
    return "\n".join(checked(job, query_of(job, streams, spark)))


def _texts(options: Mapping[str, Option] | Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(one).lower() if isinstance(one, bool) else str(one)
        for name, one in options.items()
    }
