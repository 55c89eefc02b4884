"""`sw.sql`: continuous queries written as Spark SQL.

Spillway plans the query without Spark (plan/sql/query/). This module tells the planner which streams
there are, lets Spark analyse the whole text, and makes the planned calls of the public API. Spark's
analysis finds unknown functions and types that do not fit, names the columns, and gives their types:
results must have exactly these.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from spillway.plan.sql.query.catalog import Catalog, Registered, relations_of
from spillway.plan.sql.query.clauses import Statement, read
from spillway.plan.sql.query.explaining import explained
from spillway.plan.sql.query.planning import plan
from spillway.plan.sql.query.text import Piece, refused
from spillway.plan.sql.query.values import quoted
from spillway.plan.sql.times import is_steady
from spillway.spark.api.result import Result
from spillway.spark.api.sql.calls import made
from spillway.spark.api.sql.reading import analysed, check_types, named, quiet

#: Where Spark notes the lateness of an event time that `withWatermark` sets.
_DELAY = "spark.watermarkDelayMs"


def sql(spark: SparkSession, text: str, **streams: DataFrame) -> Any:
    """A continuous query as SQL text; returns what `sw.join` or `sw.stream(...)...agg` would.

    FROM names streaming temporary views, or `streams` given by keyword. The text is Spark SQL: run by
    Spark in batch over the same rows, it gives the same rows. `EXPLAIN SELECT ...` returns the plan as
    text. docs/guide/sql.md says what is supported.

    Example:
        >>> sw.sql(spark, '''SELECT /*+ LATENESS('30 seconds') */ o.id, p.amount
        ...     FROM orders o JOIN payments p ON o.id = p.id
        ...     AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR''')  # doctest: +SKIP
    """
    # A user's text, whose errors this call tells; Spark would log each with its stack.
    with quiet():
        return _planned(spark, text, streams)


def _planned(spark: SparkSession, text: str, streams: Mapping[str, DataFrame]) -> Result | str:
    statement = read(text)
    frames = _frames(spark, statement, streams)
    planned = plan(statement, _catalog(spark, frames))
    schema = analysed(spark, statement, streams)
    planned = named(planned, schema, statement)
    found = made(planned.node, frames)
    check_types(found, schema)
    for note in planned.notes:
        if note.warns:
            warnings.warn(note.text, stacklevel=3)
    return explained(planned) if statement.explain else found


def _frames(
    spark: SparkSession, statement: Statement, streams: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """The streams in FROM by lower-case name: those given by keyword, else temporary views."""
    given = {name.lower(): frame for name, frame in streams.items()}
    found: dict[str, DataFrame] = {}
    for name, place in relations_of(statement):
        frame = given.get(name.lower())
        found[name.lower()] = _table(spark, name, place) if frame is None else frame
        _check_stream(name, found[name.lower()], place)
    return found


def _table(spark: SparkSession, name: str, place: Piece) -> DataFrame:
    try:
        return spark.table(".".join(quoted(part) for part in name.split(".")))
    except (AnalysisException, ParseException) as problem:
        tables = spark.sql("SHOW TABLES").where("isTemporary").collect()
        views = sorted(str(one.tableName) for one in tables)
        raise refused(
            place,
            f"there is no stream {name}",
            f"register one: frame.createOrReplaceTempView({name!r}), or pass it: "
            f"sql(spark, text, {name}=frame); the views of this session are "
            + (", ".join(views) or "none"),
        ) from problem


def _check_stream(name: str, frame: object, place: Piece) -> None:
    if not isinstance(frame, DataFrame):
        raise refused(
            place,
            f"{name} is a {type(frame).__name__}, not a streaming DataFrame",
            f"pass what spark.readStream...load() returns: sql(spark, text, {name}=frame)",
        )
    if not frame.isStreaming:
        raise refused(
            place,
            f"{name} is a table, not a stream",
            f"read it with spark.readStream to make {name} a stream",
        )


def _catalog(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Catalog:
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    return Catalog({name: _registered(one) for name, one in frames.items()}, is_steady(zone))


def _registered(frame: DataFrame) -> Registered:
    columns = {one.name: one.dataType.simpleString() for one in frame.schema.fields}
    late = [
        (one.name, int(one.metadata[_DELAY]) * 1000)
        for one in frame.schema.fields
        if _DELAY in one.metadata
    ]
    return Registered(columns, late[0] if late else None)
