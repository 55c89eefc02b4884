"""The places that killed queries write to: how queries reach them, and how a test reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import artifacts
from inputs import Input
from pyspark.sql import SparkSession

#: Where a life of a query may die, in the order of a batch; "in ..." is some time after the call began.
POINTS = ("prepare", "in prepare", "prepared", "commit", "in commit", "committed")
#: Results of these keys are deleted again; the last result of a key decides.
DELETES = "n % 5 = 0"


@dataclass(frozen=True)
class Life:
    """One start of a query, as plain data."""

    root: str
    number: int
    given: Input
    #: One of `PLACES`, and whether rows merge by key.
    place: str
    merge: bool
    address: str = ""
    #: A point, and at which write of this life the driver dies there; None: it lives to the end.
    dies: tuple[str, int] | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def parsed(text: str) -> Life:
        """What `text` has written."""
        fields = json.loads(text)
        return Life(**{**fields, "given": Input(**fields["given"])})

    def file(self, name: str) -> Path:
        """A file by which this life tells something."""
        return Path(self.root, f"{name}-{self.number}")


@dataclass(frozen=True)
class Place:
    """How queries reach it."""

    #: Maven coordinates, and settings of the session.
    needs: tuple[str, ...]
    conf: Callable[[str], dict[str, str]]
    #: Sets format and target of a writer, and starts it.
    start: Callable[[Any, Life], Any]
    #: The rows, in the last life; None: the test reads them itself.
    read: Callable[[SparkSession, Life], Any] | None
    #: The release of Spark, if it is not that of the other tests.
    spark: str | None = None


def _delta_conf(root: str) -> dict[str, str]:
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # By default Delta reads its small log with 50 tasks.
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def _iceberg_conf(root: str) -> dict[str, str]:
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": f"{root}/warehouse",
    }


def _start_delta(writer: Any, life: Life) -> Any:
    return writer.format("delta").start(f"{life.root}/table")


def _start_iceberg(writer: Any, life: Life) -> Any:
    return writer.format("iceberg").toTable("ice.db.results")


def _start_postgres(writer: Any, life: Life) -> Any:
    options = {"url": life.address, "dbtable": "results"}
    return writer.format("postgresql").options(**options).start()


def _start_files(writer: Any, life: Life) -> Any:
    writer = writer.format("parquet").option("wholeBatches", True)
    return writer.partitionBy("item").start(f"{life.root}/table")


PLACES = {
    "delta": Place(
        artifacts.DELTA,
        _delta_conf,
        _start_delta,
        lambda spark, life: spark.read.format("delta").load(f"{life.root}/table"),
    ),
    "iceberg": Place(
        artifacts.ICEBERG,
        _iceberg_conf,
        _start_iceberg,
        lambda spark, life: spark.table("ice.db.results"),
        artifacts.ICEBERG_SPARK,
    ),
    "postgres": Place((), lambda root: {}, _start_postgres, None),
    "whole batches": Place(
        (),
        lambda root: {},
        _start_files,
        lambda spark, life: spark.read.parquet(f"{life.root}/table").drop("_batch"),
    ),
}
