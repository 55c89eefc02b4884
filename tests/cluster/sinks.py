"""The sinks of queries that are killed, each with what it promises when a driver dies.

parquet   files of a batch replace those of the same batch: every row once
by id     a function that skips ids it knows, or compares what comes again: every row once
table     appends: a batch that comes again after the driver died is there again
jdbc      the same, in a database; Spark's writer coalesces all slots to one partition
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from inputs import batch_of, counted
from lives import Life
from pyspark.sql import DataFrame, SparkSession

DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


@dataclass(frozen=True)
class SinkKind:
    """How a query writes to a sink, and how a test reads it."""

    #: Starts the query of a life: its writer, its result.
    start: Callable[[Any, Any, Life], Any]
    #: The directories or files of the output, each with the sink's number; None where it has none.
    parts: Callable[[Path], list[tuple[int | None, Path]]]
    #: Whether a batch that is repeated after the death of a driver is there once.
    exactly_once: bool = True
    #: Makes the files, in the last life, where the sink has none.
    export: Callable[[SparkSession, Life], None] = lambda *_: None

    def read(self, root: Path) -> pd.DataFrame:
        """All rows, in the order of the sink's numbers, with the column `sink_id`."""
        parts = sorted(self.parts(root / "out"), key=lambda part: (part[0] or 0, part[1]))
        frames = [pq.read_table(path).to_pandas().assign(sink_id=number) for number, path in parts]
        filled = [frame for frame in frames if len(frame)]
        return pd.concat(filled or frames, ignore_index=True)


def _start_parquet(writer: Any, result: Any, life: Life) -> Any:
    return writer.format("parquet").start(f"{life.root}/out")


def _published(out: Path) -> list[tuple[int | None, Path]]:
    return [(batch_of(path.name), path) for path in out.glob("b*.parquet")]


def _start_by_id(writer: Any, result: Any, life: Life) -> Any:
    return writer.foreachBatch(by_id(Path(life.root), life.replays)).start()


def by_id(root: Path, replays: str) -> Callable[[DataFrame, int], None]:
    """A function that keeps the rows of an id that it knows, and compares or skips what comes again."""

    def write(rows: DataFrame, number: int) -> None:
        target, hidden = root / f"out/{number:012d}", root / f"hidden/{uuid.uuid4().hex}"
        if target.exists() and replays == "skip":
            return
        rows.write.parquet(str(hidden))
        target.parent.mkdir(exist_ok=True)
        try:
            hidden.rename(target)
        except OSError:
            # The id is known; perhaps only since another driver, which was replaced, has woken up.
            compare(root, number, target, hidden)
            shutil.rmtree(hidden)

    return write


def compare(root: Path, number: int, before: Path, again: Path) -> None:
    """Leaves a file that tells of an id that came again with other rows."""
    old, new = (pq.read_table(path).to_pandas() for path in (before, again))
    columns = list(old.columns)
    missing = counted(old, columns) - counted(new, columns)
    extra = counted(new, columns) - counted(old, columns)
    if missing or extra:
        (root / f"differs-{number}").write_text(f"{columns}: {missing} missing, {extra} more")
    else:
        (root / f"same-{number}").touch()


def _named(out: Path) -> list[tuple[int | None, Path]]:
    return [(int(path.name), path) for path in out.iterdir()]


def _start_table(writer: Any, result: Any, life: Life) -> Any:
    """The catalog is gone with the JVM before, so every life names the same files a table."""
    catalog = result.spark.catalog
    catalog.createTable("results", f"{life.root}/out", source="parquet", schema=result.schema)
    return writer.toTable("results")


def _appended(out: Path) -> list[tuple[int | None, Path]]:
    return [(None, path) for path in out.glob("part-*.parquet")]


def _database(life: Life) -> dict[str, str]:
    url = f"jdbc:derby:{life.root}/database;create=true"
    return {"url": url, "driver": DERBY, "dbtable": "results"}


def _start_jdbc(writer: Any, result: Any, life: Life) -> Any:
    return writer.format("jdbc").options(**_database(life), numPartitions=1).start()


def _export_database(spark: SparkSession, life: Life) -> None:
    found = spark.read.format("jdbc").options(**_database(life)).load()
    found.write.mode("overwrite").parquet(f"{life.root}/out")


SINKS = {
    "parquet": SinkKind(_start_parquet, _published),
    "by id": SinkKind(_start_by_id, _named),
    "table": SinkKind(_start_table, _appended, exactly_once=False),
    "jdbc": SinkKind(_start_jdbc, _appended, exactly_once=False, export=_export_database),
}
