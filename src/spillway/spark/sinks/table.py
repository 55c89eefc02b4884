"""The table sink: appends to a table of the catalog.

`open` creates the table if it is missing, as Spark's toTable does. So format, partition columns and
types are fixed before the stream starts. The sink matches columns by *name*, whatever their order or
the format of the table.

A table of Delta Lake or Iceberg takes each batch exactly once, with the batch's number in its own
transaction (`transactions/`).

Known limitation: other tables take batches at least once around a crash, like any append; see `append`.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spillway.errors import PlanError
from spillway.spark.sinks.refusal import refusals
from spillway.spark.sinks.spec import Sink, SinkBatch, SinkSpec
from spillway.spark.sinks.transactions.changes import OPTIONS
from spillway.spark.sinks.transactions.delta import DeltaTarget
from spillway.spark.sinks.transactions.iceberg import IcebergTarget
from spillway.spark.sinks.transactions.target import TransactionalSink

_VIEWS = ("VIEW", "TEMPORARY", "METRIC_VIEW")


class TableSink:
    """Appends each batch to a table."""

    def __init__(self, spec: SinkSpec, table: str, spark: SparkSession) -> None:
        self._spec = spec
        self._table = table
        self._spark = spark
        self._columns: list[str] | None = None
        #: The sink for a table with transactions.
        self._exact: Sink | None = None
        if self._exists():
            self._check_kind()

    def open(self, schema: StructType) -> None:
        """Creates the table, or checks that the existing one has the columns of the result."""
        if not self._exists():
            self._create(schema)
        self._exact = self._transactional()
        if self._exact is not None:
            self._exact.open(schema)
            return
        refuse_merging(self._spec, f"toTable({self._table})")
        self._check_columns(schema)
        self._columns = self._spark.table(self._table).columns

    def write(self, batch: SinkBatch) -> None:
        """Appends the batch."""
        if self._columns is None and self._exact is None:
            self.open(batch.rows.schema)
        if self._exact is not None:
            self._exact.write(batch)
            return
        ordered = batch.rows.select([f"`{name}`" for name in self._columns or ()])
        with refusals(
            f"table {self._table} rejected batch {batch.number}",
            hint="select(...) columns with the types of the table, or name a new table",
        ):
            ordered.write.mode("append").insertInto(self._table)
        # The batch belongs to a clone of the user's session, which keeps its own list of files.
        self._spark.catalog.refreshTable(self._table)

    def _transactional(self) -> Sink | None:
        """The sink for a table of Delta Lake or Iceberg."""
        spec, kind = self._spec, (self._stored_as() or "").lower()
        if kind == "delta":
            target = DeltaTarget(spec, self._spark)
            return TransactionalSink(target, f"the Delta table {self._table}", spec.check_owner)
        if kind == "iceberg":
            place = IcebergTarget(spec, self._table, self._spark)
            return TransactionalSink(place, f"the Iceberg table {self._table}", spec.check_owner)
        return None

    def _exists(self) -> bool:
        with refusals(
            f"toTable({self._table!r}): Spark cannot look up the table",
            hint='name it as "table", "schema.table" or "catalog.schema.table", in a schema that '
            "exists",
        ):
            return self._spark.catalog.tableExists(self._table)

    def _check_kind(self) -> None:
        if self._spark.catalog.getTable(self._table).tableType in _VIEWS:
            raise PlanError(
                f"toTable({self._table!r}): this is a view, and queries cannot write to a view",
                hint="name a table, or use a new name to create one",
            )
        asked, stored = self._spec.format, self._stored_as()
        if asked is not None and stored is not None and asked.lower() != stored.lower():
            raise PlanError(
                f"toTable({self._table!r}): the table is stored as {stored}, not as {asked}",
                hint="leave out format(...) to append to the table as it is",
            )

    def _stored_as(self) -> str | None:
        described = self._spark.sql(f"DESCRIBE TABLE EXTENDED {self._table}").collect()
        # Columns come first, and one of them may have that name.
        named = (row.data_type for row in reversed(described) if row.col_name == "Provider")
        return next(named, None)

    def _check_columns(self, schema: StructType) -> None:
        columns = self._spark.catalog.listColumns(self._table)
        there, given = {c.name.lower() for c in columns}, {n.lower() for n in schema.names}
        if there != given:
            raise PlanError(
                f"table {self._table} has the columns {', '.join(c.name for c in columns)}; "
                f"the result has {', '.join(schema.names)}",
                hint="select(...) exactly the columns of the table, or name a new table",
            )
        partitioned = tuple(c.name for c in columns if c.isPartition)
        if self._spec.partition_by and self._spec.partition_by != partitioned:
            raise PlanError(
                f"table {self._table} is partitioned by ({', '.join(partitioned)}), "
                f"not by ({', '.join(self._spec.partition_by)})",
                hint="leave out partitionBy(...) to append to the table as it is",
            )

    def _create(self, schema: StructType) -> None:
        options = self._spec.options_without(*OPTIONS)
        writer = self._spark.createDataFrame([], schema).write.options(**options)
        if self._spec.format is not None:
            writer = writer.format(self._spec.format)
        if self._spec.path is not None:
            writer = writer.option("path", self._spec.path)
        with refusals(
            f"Spark cannot create table {self._table} for the result",
            hint="check format, options, partitionBy(...) and the columns of the result",
        ):
            writer.partitionBy(*self._spec.partition_by).saveAsTable(self._table)


def refuse_merging(spec: SinkSpec, sink: str) -> None:
    """Rejects options for changes by key where a sink can only append."""
    for option in OPTIONS:
        if spec.option(option) is not None:
            raise PlanError(
                f"option {option}: the sink {sink!r} only appends rows",
                hint="write to delta, iceberg or postgresql, or merge in foreachBatch",
            )
