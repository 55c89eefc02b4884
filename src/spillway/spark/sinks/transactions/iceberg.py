"""Iceberg: rows are staged as a snapshot that readers do not see (write-audit-publish), then published.

    prepare   an INSERT or MERGE under spark.wap.id makes a staged snapshot
    commit    one Iceberg transaction publishes it and sets the table property with the number

The WAP id names query and batch. Iceberg refuses to publish an id that the history of the table has,
so a driver that slept cannot add its batch again. A staged MERGE is only valid for the snapshot that it
read: if another writer commits first, the sink stages it again.

The sink sets `write.wap.enabled` on the table; it changes nothing for writers that set no WAP id. Staged
snapshots of dead attempts stay until `expire_snapshots`, like any others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spillway.errors import QueryError
from spillway.spark.sinks.refusal import any_failure, reason_of, refusals
from spillway.spark.sinks.spec import SinkSpec
from spillway.spark.sinks.transactions.changes import Changes, check_options, check_same
from spillway.spark.sinks.transactions.lakehouse import Source

_WAP = "spark.wap.id"
#: Snapshots, from the newest on, among which the one is that a statement has just made.
_NEWEST = 20
#: How often a MERGE is staged again because another writer was faster.
_ATTEMPTS = 5


@dataclass
class Staged:
    """The rows of a batch, and the snapshot that has them."""

    source: Source
    #: None: the statement changed nothing.
    snapshot: int | None


class IcebergTarget:
    """A table of an Iceberg catalog."""

    def __init__(self, spec: SinkSpec, table: str, spark: SparkSession) -> None:
        self._spec = spec
        self.name = table
        self._spark = spark
        self._property = f"spillway.{spec.writer or 'query'}.number"
        self._changes = Changes(())

    def open(self, schema: StructType) -> None:
        """Checks columns and keys of the table, and allows staged snapshots in it."""
        check_options(self._spec, "iceberg", ("path",))
        self._changes = Changes.of(self._spec, schema, "iceberg")
        self._changes.check_condition(self._spark.createDataFrame([], schema))
        with any_failure(
            f"Spark cannot open the Iceberg table {self.name}",
            hint="configure the catalog as docs/guide/connectors.md says",
        ):
            columns = self._spark.table(self.name).columns
            enabled = self._table().properties().get("write.wap.enabled")
        check_same(columns, self._changes.columns, f"the Iceberg table {self.name}")
        if enabled != "true":
            with any_failure(
                f"Spark cannot set write.wap.enabled on the Iceberg table {self.name}",
                hint="the sink needs the permission to change the table",
            ):
                self._table().updateProperties().set("write.wap.enabled", "true").commit()

    def last(self) -> int | None:
        """The number in the properties of the table."""
        found = self._table().properties().get(self._property)
        return None if found is None else int(found)

    def prepare(self, rows: Any, number: int) -> Staged:
        """Stages a snapshot with the rows."""
        source = Source.of(rows, number, self._changes)
        try:
            return Staged(source, self._stage(source, number))
        except BaseException:
            source.close()
            raise

    def commit(self, prepared: Staged, number: int) -> None:
        """Publishes the snapshot and sets the number."""
        for attempt in range(_ATTEMPTS):
            try:
                self._publish(prepared.snapshot, number)
                break
            except Py4JJavaError as error:
                last = self.last()
                if last is not None and last >= number:
                    break
                if not self._changes.keys or attempt == _ATTEMPTS - 1:
                    raise QueryError(
                        f"the Iceberg table {self.name} did not take batch {number}",
                        detail=reason_of(error),
                        hint="start the query again; it repeats the batch",
                    ) from error
                prepared.snapshot = self._stage(prepared.source, number)
        self._spark.catalog.refreshTable(self.name)

    def discard(self, prepared: Staged) -> None:
        """Releases the rows."""
        prepared.source.close()

    def sweep(self) -> None:
        """Does nothing: expire_snapshots removes staged snapshots."""

    def _stage(self, source: Source, number: int) -> int | None:
        before = set(self._staged(number))
        with refusals(
            f"the Iceberg table {self.name} rejected batch {number}",
            hint="select(...) columns with the types of the table, or name a new table",
        ):
            source.write(self.name, self._changes, {_WAP: self._wap(number)})
        new = [one for one in self._staged(number) if one not in before]
        return new[-1] if new else None

    def _publish(self, snapshot: int | None, number: int) -> None:
        transaction = self._table().newTransaction()
        if snapshot is not None:
            transaction.manageSnapshots().cherrypick(snapshot).commit()
        transaction.updateProperties().set(self._property, str(number)).commit()
        transaction.commitTransaction()

    def _staged(self, number: int) -> list[int]:
        """The newest snapshots under the WAP id of the batch, oldest first."""
        wap, snapshots = self._wap(number), self._table().snapshots()
        count = snapshots.size()
        newest = [snapshots.get(at) for at in range(max(0, count - _NEWEST), count)]
        return [one.snapshotId() for one in newest if one.summary().get("wap.id") == wap]

    def _wap(self, number: int) -> str:
        return f"spillway-{self._spec.writer}-{number}"

    def _table(self) -> Any:
        jvm: Any = self._spark._jvm
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self._spark._jsparkSession, self.name
        )
        table.refresh()
        return table
