"""What Spark reads in a SQL query: the columns of its results, or why it rejects it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spillway.errors import BUG, PlanError
from spillway.plan.sql.query.clauses import Statement
from spillway.plan.sql.query.nodes import Planned
from spillway.plan.sql.query.text import refused
from spillway.spark.api.result import Result

#: The logger of pyspark for errors of SQL.
_LOGGER = "SQLQueryContextLogger"
#: Held while streams are views of a session.
_VIEWS = threading.Lock()
#: The end of Spark's messages; the place follows them.
_WHERE = re.compile(r"\s*SQLSTATE: \w+(; line \d+ pos \d+)?;?$")


def analysed(
    spark: SparkSession, statement: Statement, streams: Mapping[str, DataFrame]
) -> StructType:
    """The columns that Spark gives the query; raises with the place of what Spark rejects."""
    text = statement.text.piece
    whole = text.source.whole
    for token in text.tokens:
        # Spark would log that it does not know the hint.
        if str(token.text).startswith("/*+"):
            start, end = int(token.start), int(token.end) + 1
            whole = whole[:start] + " " * (end - start) + whole[end:]
    if statement.explain:
        skip = statement.query_at
        whole = " " * skip + whole[skip:]
    with _as_views(spark, streams):
        try:
            return spark.sql(whole.rstrip().rstrip(";")).schema
        except (AnalysisException, ParseException) as problem:
            raise _rejected(statement, problem) from problem


def _rejected(statement: Statement, problem: PySparkException) -> PlanError:
    """Spark's reason, at Spark's place."""
    told = _WHERE.sub("", str(problem).strip().splitlines()[0])
    contexts = problem.getQueryContext()
    place = ""
    if contexts:
        try:
            start, end = contexts[0].startIndex(), contexts[0].stopIndex() + 1
            place = "\n  " + statement.text.place(start, end)
        except (AttributeError, PySparkException):  # a context of Python code
            place = ""
    return PlanError(
        "the SQL query cannot run: Spark does not accept it",
        detail=told + place,
        hint="write it so that spark.sql(text) accepts it",
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Pyspark logs no error of the block, which tells them itself."""
    # Made by pyspark: its errors are logged with fields that other loggers do not take.
    logger = PySparkLogger.getLogger(_LOGGER)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def _as_views(spark: SparkSession, streams: Mapping[str, DataFrame]) -> Iterator[None]:
    """Registers streams as temporary views, and takes them back."""
    with _VIEWS:
        catalog = spark._jsparkSession.sessionState().catalog()
        before = {
            # A table of the same name is there again when the view is gone.
            name: spark.table(name) if catalog.getTempView(name).isDefined() else None
            for name in streams
        }
        try:
            for name, frame in streams.items():
                frame.createOrReplaceTempView(name)
            yield
        finally:
            for name, old in before.items():
                spark.catalog.dropTempView(name)
                if old is not None:
                    old.createOrReplaceTempView(name)


def named(planned: Planned, schema: StructType, statement: Statement) -> Planned:
    """The query with Spark's names for its columns."""
    names = [one.name for one in schema.fields]
    if len(names) != len(planned.columns):
        raise PlanError(
            f"Spark gives this SQL query {len(names)} columns, Spillway {len(planned.columns)}",
            hint=BUG,
        )
    folded = [name.lower() for name in names]
    twice = next((name for name in names if folded.count(name.lower()) > 1), None)
    if twice is not None:
        raise refused(
            statement.text.piece,
            f"two columns of its results are called {twice}",
            f"name one of them: a.{twice} AS other; or name the columns instead of *",
        )
    columns = (replace(one, name=name) for one, name in zip(planned.columns, names, strict=True))
    return planned.with_columns(tuple(columns))


def check_types(made: Result, schema: StructType) -> None:
    """Rejects results whose types are not those that Spark gives the query."""
    for ours, theirs in zip(made.schema.fields, schema.fields, strict=True):
        types = ours.dataType.simpleString(), theirs.dataType.simpleString()
        if types[0] != types[1]:
            raise PlanError(
                f"Spark makes the column {theirs.name} a {types[1]}, Spillway a {types[0]}",
                hint=f"cast it: CAST(... AS {types[0]}) AS {theirs.name}",
            )
