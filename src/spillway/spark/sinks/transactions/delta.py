"""Delta Lake: the number is the version of a transaction (txnAppId, txnVersion) in the table's log.

Delta writes files and log entry in one call, so `prepare` only keeps the rows and `commit` does both.
A crash between the files and the entry leaves files that no reader sees; VACUUM removes them. Delta
skips a version that the log has, and fails one of two commits of a version at the same time.

The log keeps the last version of an application without limit, unless the table has the property
`delta.setTransactionRetentionDuration`. With it, restart a query within that time.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spillway.errors import EnvironmentMissing, PlanError
from spillway.spark.sinks.hadoop import HadoopDirectory
from spillway.spark.sinks.refusal import JVM_ERRORS, any_failure, reason_of, refusals
from spillway.spark.sinks.spec import SinkSpec
from spillway.spark.sinks.transactions.changes import (
    OPTIONS,
    Changes,
    check_options,
    check_same,
    tick,
)
from spillway.spark.sinks.transactions.lakehouse import Source

_CONF = "spark.databricks.delta.write"
#: How often a batch is written because other writers were faster.
_ATTEMPTS = 5


class DeltaTarget:
    """A Delta table, by its path or its name in the catalog."""

    def __init__(self, spec: SinkSpec, spark: SparkSession) -> None:
        self._spec = spec
        self._spark = spark
        self._application = f"spillway-{spec.writer}"
        path = None if spec.table else spec.path or spec.option("path")
        # SQL takes only absolute paths.
        self._path = str(HadoopDirectory(spark, path, {})) if path else None
        if not (spec.table or self._path):
            raise PlanError(
                "the delta sink needs a table to write to",
                hint='name it: .start("path/of/the/table"), or .toTable("name")',
            )
        self._changes = Changes(())

    @property
    def name(self) -> str:
        """The table as SQL writes it."""
        return self._spec.table or f"delta.{tick(str(self._path))}"

    def open(self, schema: StructType) -> None:
        """Checks columns and keys; creates a table that is missing. Only a path can be missing here."""
        check_options(self._spec, "delta", ("path",))
        self._changes = Changes.of(self._spec, schema, "delta")
        empty = self._spark.createDataFrame([], schema)
        self._changes.check_condition(empty)
        if self._path and not self._exists():
            options = self._spec.options_without("path", *OPTIONS)
            with any_failure(
                f"Spark cannot create the Delta table {self._path}",
                hint="check path, options, partitionBy(...) and the columns of the result",
            ):
                writer = empty.write.format("delta").options(**options)
                writer.partitionBy(*self._spec.partition_by).save(self._path)
        self._check_existing()

    def last(self) -> int | None:
        """The version of the last transaction of this query."""
        jvm: Any = self._spark._jvm
        nothing = jvm.scala.Option.empty()
        try:
            log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
                self._spark._jsparkSession, self._location()
            )
            version = log.update(False, nothing, nothing).transactions().get(self._application)
        except (*JVM_ERRORS, TypeError) as error:
            raise EnvironmentMissing(
                f"the query cannot read the transactions of the Delta table {self.name}",
                detail=reason_of(error),
                hint="see docs/guide/connectors.md for the tested release of Delta Lake",
            ) from error
        return int(version.get()) if version.isDefined() else None

    def prepare(self, rows: Any, number: int) -> Source:
        """Makes the rows the source of a statement."""
        return Source.of(rows, number, self._changes)

    def commit(self, prepared: Source, number: int) -> None:
        """Writes the rows and the number."""
        settings = {f"{_CONF}.txnAppId": self._application, f"{_CONF}.txnVersion": str(number)}
        for attempt in range(_ATTEMPTS):
            try:
                with refusals(
                    f"the Delta table {self.name} rejected batch {number}",
                    hint="select(...) columns with the types of the table, or name a new table",
                ):
                    prepared.write(self.name, self._changes, settings)
                break
            except (*JVM_ERRORS, PlanError) as error:
                # Another writer committed at the same time, or an older driver this batch.
                if "DELTA_CONCURRENT" not in str(error) or attempt == _ATTEMPTS - 1:
                    raise
                last = self.last()
                if last is not None and last >= number:
                    break
        if self._spec.table:
            self._spark.catalog.refreshTable(self._spec.table)

    def discard(self, prepared: Source) -> None:
        """Releases the rows."""
        prepared.close()

    def sweep(self) -> None:
        """Does nothing: VACUUM removes files without an entry in the log."""

    def _exists(self) -> bool:
        jvm: Any = self._spark._jvm
        with any_failure(
            f"Spark cannot open {self._path} as a Delta table",
            hint="add Delta Lake to the session, see docs/guide/connectors.md",
        ):
            return bool(
                jvm.io.delta.tables.DeltaTable.isDeltaTable(self._spark._jsparkSession, self._path)
            )

    def _check_existing(self) -> None:
        with any_failure(
            f"Spark cannot read the Delta table {self.name}",
            hint="set spark.sql.extensions and spark.sql.catalog.spark_catalog as "
            "docs/guide/connectors.md says",
        ):
            columns = self._spark.table(self.name).columns
            partitions = tuple(self._detail("partitionColumns"))
        check_same(columns, self._changes.columns, f"the Delta table {self.name}")
        if self._spec.partition_by and self._spec.partition_by != partitions:
            raise PlanError(
                f"the Delta table {self.name} is partitioned by ({', '.join(partitions)}), "
                f"not by ({', '.join(self._spec.partition_by)})",
                hint="leave out partitionBy(...) to write to the table as it is",
            )

    def _location(self) -> str:
        return str(self._path or self._detail("location"))

    def _detail(self, column: str) -> Any:
        found = self._spark.sql(f"DESCRIBE DETAIL {self.name}").select(column).first()
        assert found is not None
        return found[0]
