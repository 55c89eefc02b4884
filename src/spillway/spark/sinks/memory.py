"""The memory sink: the whole result as a table in the driver, for tests and notebooks.

It is Spark's own MemorySink behind a temporary view, driven over py4j, so no row passes through
Python. A new start begins with an empty table, as Spark's does. A batch that is written again is
known by its id and skipped; MemorySink itself only takes ids that ascend, which those of batches and
of rounds of cleanup together do not, so it is given the count of writes.

The view belongs to the session the user has: the DataFrame of a batch belongs to a clone of it,
made by Spark for the query, whose views the user cannot see.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spillway.errors import EnvironmentMissing, PlanError
from spillway.spark.sinks.refusal import any_failure

# Internal classes of Spark move between releases; these are the places they are known from.
_STREAMING = "org.apache.spark.sql.execution.streaming"
_PACKAGES = (f"{_STREAMING}.sources", f"{_STREAMING}.runtime", _STREAMING)
_MEMORY_SINKS = tuple(f"{package}.MemorySink" for package in _PACKAGES)
_MEMORY_PLANS = tuple(f"{package}.MemoryPlan" for package in _PACKAGES)
_DATASETS = ("org.apache.spark.sql.classic.Dataset", "org.apache.spark.sql.Dataset")


class MemoryTableSink:
    """Keeps all rows in the driver and shows them as the view `name`."""

    def __init__(self, name: str | None, spark: SparkSession) -> None:
        self._name = _view_name(name, spark)
        self._spark = spark
        self._rows = find_class(spark, _MEMORY_SINKS)()
        self._open = False
        self._written = 0
        self._last_id: int | None = None

    def open(self, schema: StructType) -> None:
        """Show the table, still empty."""
        empty: Any = self._spark.createDataFrame([], schema)
        columns = empty._jdf.queryExecution().analyzed().output()
        plan = find_class(self._spark, _MEMORY_PLANS)(self._rows, columns)
        dataset = find_class(self._spark, _DATASETS)
        dataset.ofRows(self._spark._jsparkSession, plan).createOrReplaceTempView(self._name)
        self._open = True

    def write(self, df: DataFrame, batch_id: int, *, replay: bool) -> None:  # noqa: ARG002
        """Add the batch to the table."""
        if not self._open:
            self.open(df.schema)
        if batch_id == self._last_id:
            return
        batch: Any = df
        self._rows.write(self._written, False, batch._jdf.collect())
        self._written += 1
        self._last_id = batch_id


def find_class(spark: SparkSession, names: Iterable[str]) -> Any:
    """The first of the JVM classes that this release of Spark has."""
    probed = list(names)
    for name in probed:
        # py4j answers with a package for a name that is no class.
        found = getattr(spark._jvm, name)
        if isinstance(found, JavaClass):
            return found
    raise EnvironmentMissing(
        f"The memory sink does not know Spark {spark.version}",
        detail=f"none of these classes is there: {', '.join(probed)}",
        hint="use a release of Spark from 4.1 to 4.3, or collect the rows in foreachBatch",
    )


def _view_name(name: str | None, spark: SparkSession) -> str:
    if not name:
        raise PlanError(
            "The memory sink needs a name for its table",
            hint='add .queryName("results"), then read it with spark.sql("select * from results")',
        )
    with any_failure(
        f"queryName({name!r}) cannot be the name of the memory sink's table",
        hint="use letters, digits and underscores",
    ):
        parsed = spark._jsparkSession.sessionState().sqlParser().parseTableIdentifier(name)
    if parsed.database().isDefined():
        raise PlanError(
            f"queryName({name!r}) cannot be the name of the memory sink's table: it names a schema",
            hint="use letters, digits and underscores, without a dot",
        )
    return name
