"""The rows of a batch as the source of one SQL statement on a table of Delta Lake or Iceberg.

The statement runs in the session of the batch, a clone that Spark made for the query. So its settings,
which name the batch for the table's transaction, never touch a write of the user.

With keys, the rows are kept on the executors while the statement runs: a MERGE reads its source twice or
more, and the keys are checked first. Without keys they are read once and kept nowhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from spillway.spark.sinks.transactions.changes import Changes, tick


@dataclass(frozen=True)
class Source:
    """The rows of a batch as a temporary view."""

    rows: DataFrame
    view: str
    #: Whether the executors keep the rows until the source is closed.
    kept: bool

    @staticmethod
    def of(rows: DataFrame, number: int, changes: Changes) -> Source:
        """Makes the view; rejects rows with one key."""
        flagged = changes.flagged(rows)
        kept = bool(changes.keys)
        if kept:
            flagged = flagged.persist(StorageLevel.MEMORY_AND_DISK)
        source = Source(flagged, f"spillway_{uuid.uuid4().hex}", kept)
        try:
            if kept:
                _refuse_same_keys(flagged, number, changes)
            flagged.createOrReplaceTempView(source.view)
        except BaseException:
            source.close()
            raise
        return source

    @property
    def session(self) -> SparkSession:
        """The session of the batch."""
        return self.rows.sparkSession

    def close(self) -> None:
        """Drops the view and the kept rows."""
        self.session.catalog.dropTempView(self.view)
        if self.kept:
            self.rows.unpersist()

    def write(self, target: str, changes: Changes, settings: Mapping[str, str]) -> None:
        """Runs the statement on the table, with settings that hold while it runs."""
        if changes.keys:
            match = " AND ".join(f"t.{tick(key)} <=> s.{tick(key)}" for key in changes.keys)
            statement = changes.merge(target, self.view, match)
        else:
            statement = changes.insert(target, self.view)
        with _settings(self.session, settings):
            self.session.sql(statement)


def _refuse_same_keys(rows: DataFrame, number: int, changes: Changes) -> None:
    # All rows are read here, so the slots have answered even if a statement reads only some columns.
    keys = [F.col(tick(key)) for key in changes.keys]
    counted = rows.groupBy(*keys).agg(F.count("*").alias("_rows"))
    twice = counted.where("_rows > 1").drop("_rows").limit(1).collect()
    if twice:
        raise changes.same_key_twice(number, str(tuple(twice[0])))


@contextmanager
def _settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)
