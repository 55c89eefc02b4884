"""The memory sink: the whole result as a table in the driver, for tests and notebooks.

It uses Spark's own MemorySink behind a temporary view, over py4j, so no row passes through Python. A
start begins with an empty table, as in Spark. The sink skips a batch whose id it has seen.

The view belongs to the user's session. The DataFrame of a batch belongs to a clone that Spark made
for the query, whose views the user cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spillway.errors import EnvironmentMissing, PlanError
from spillway.spark.sinks.refusal import any_failure
from spillway.spark.sinks.spec import SinkBatch

# Spark moves internal classes between releases; these are the known places.
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

    def open(self, schema: StructType) -> None:
        """Creates the view of the empty table."""
        empty: Any = self._spark.createDataFrame([], schema)
        columns = empty._jdf.queryExecution().analyzed().output()
        plan = find_class(self._spark, _MEMORY_PLANS)(self._rows, columns)
        dataset = find_class(self._spark, _DATASETS)
        dataset.ofRows(self._spark._jsparkSession, plan).createOrReplaceTempView(self._name)
        self._open = True

    def undo(self) -> Callable[[], None]:
        """Returns a function that brings back the views as they are now, for a start that fails."""
        views = self._spark._jsparkSession.sessionState().catalog()
        before = views.getTempView(self._name)

        def restore() -> None:
            self._spark.catalog.dropTempView(self._name)
            if before.isDefined():
                dataset = find_class(self._spark, _DATASETS)
                found = dataset.ofRows(self._spark._jsparkSession, before.get())
                found.createOrReplaceTempView(self._name)

        return restore

    def write(self, batch: SinkBatch) -> None:
        """Adds the batch to the table."""
        if not self._open:
            self.open(batch.rows.schema)
        rows: Any = batch.rows
        self._rows.write(batch.number, False, rows._jdf.collect())


def find_class(spark: SparkSession, names: Iterable[str]) -> Any:
    """The first of the JVM classes that this release of Spark has."""
    probed = list(names)
    for name in probed:
        # py4j returns a package for a name that is not a class.
        found = getattr(spark._jvm, name)
        if isinstance(found, JavaClass):
            return found
    raise EnvironmentMissing(
        f"the memory sink does not support Spark {spark.version}",
        detail=f"Spark has none of these classes: {', '.join(probed)}",
        hint="use Spark 4.1 to 4.3, or collect the rows with foreachBatch",
    )


def _view_name(name: str | None, spark: SparkSession) -> str:
    if not name:
        raise PlanError(
            "the memory sink needs a name for its table",
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
