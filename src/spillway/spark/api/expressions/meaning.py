"""`check_meaning`: Spark must read a SQL condition as Spillway does.

Spillway parses conditions itself (plan/sql/expression.py), and its parser sometimes has another order
of precedence. So Spark gets both texts: the condition as the user wrote it, and as Spillway understands
it, with all parentheses (plan/sql/written.py). Spillway rejects a condition unless both are equal after
Spark's analyzer and optimizer. Texts with different meanings never become equal there. So a rejected
condition has another meaning in Spark, or Spark does not support it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spillway.errors import PlanError
from spillway.operators.predicates.conditions import Condition
from spillway.plan.sql.expression import parse, refused
from spillway.plan.sql.written import written
from spillway.spark.runtime.exchange.lanes import result_schema


def check_meaning(frames: Mapping[str, DataFrame], condition: object) -> None:
    """Rejects a condition with SQL that Spark reads in another way, or not at all."""
    texts = list(_texts(condition))
    if not texts:
        return
    rows = unseen_rows(next(iter(frames.values())).sparkSession, result_schema(frames))
    for text in texts:
        check_reading(rows, text)


def unseen_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """An empty DataFrame. The optimizer does not know that it is empty, so it evaluates no condition."""
    none = spark.sparkContext.emptyRDD()
    return spark.createDataFrame(none, schema, verifySchema=False)


def check_reading(rows: DataFrame, text: str) -> None:
    """Rejects a text that Spark reads in another way; `rows` are unseen, a struct for each stream."""
    ours = written(parse(text))
    try:
        read, meant = (_optimized(rows, one) for one in (text, ours))
    except PySparkException as problem:
        raise _rejected(text, problem) from problem
    if not read.sameResult(meant):
        raise refused(
            text,
            f"Spark reads it as {_read(rows, text)}, but Spillway as {ours}",
            "write it with parentheses",
        )


def _texts(condition: object) -> Iterator[str]:
    """The SQL texts of a condition that a user gives to `match`."""
    whole = condition if isinstance(condition, Condition) else None
    for one in (condition,) if whole is None else (whole.test, whole.prefilter):
        if isinstance(one, str):
            yield one


def _optimized(rows: DataFrame, text: str) -> Any:
    return rows.select(F.expr(text).alias("held"))._jdf.queryExecution().optimizedPlan()


def _read(rows: DataFrame, text: str) -> str:
    """Spark's reading, with all parentheses."""
    parser = rows.sparkSession._jsparkSession.sessionState().sqlParser()
    return str(parser.parseExpression(text).sql())


def _rejected(text: str, problem: Exception) -> PlanError:
    told = filter(None, (line.strip() for line in str(problem).splitlines()))
    why, hint = "Spark does not accept it", "write it as Spark SQL"
    return refused(text, why, hint, detail=next(told, None))
