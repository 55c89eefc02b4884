"""Runs a continuous SQL query, and compares it with the same text that Spark runs in batch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import spillway as sw
from spillway.testing import FileStream

SCHEMA = "k bigint, j string, x double, n int, ts timestamp"
STREAMS = ("a", "b", "c")
LONGEST_S = 300
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def rows_of(seed: int, count: int, start_s: int) -> list[tuple[Any, ...]]:
    drawn = random.Random(seed)
    return [
        (
            drawn.choice([None, *range(4)]),
            drawn.choice(["p", "q", "P", None]),
            drawn.choice([0.0, 1.5, 4.0, 7.5, None]),
            drawn.randrange(5),
            START + timedelta(seconds=start_s + drawn.randrange(20)),
        )
        for _ in range(count)
    ]


def run(
    spark: SparkSession, text: str, streams: dict[str, FileStream], folder: Path
) -> list[tuple]:
    """What a continuous query writes, batch after batch."""
    for name, stream in streams.items():
        stream.stream().createOrReplaceTempView(name)
    written: list[tuple[int, list[tuple]]] = []

    def keep(rows: DataFrame, batch: int) -> None:
        written.append((batch, [tuple(row) for row in rows.collect()]))

    writer = sw.sql(spark, text).writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(folder / "ck"))
    query = writer.adapt(slots=2, groups=8).trigger(availableNow=True).start()
    assert query.awaitTermination(LONGEST_S), "the query hangs"
    return [row for _, rows in sorted(written, key=lambda one: one[0]) for row in rows]


def check(
    spark: SparkSession,
    text: str,
    streams: dict[str, FileStream],
    folder: Path,
    keys: Sequence[int] | None = None,
) -> int:
    """Compares with Spark's batch query; of a group-by, the last version of each group."""
    found = run(spark, text, streams, folder)
    if keys is not None:
        found = list({tuple(row[key] for key in keys): row for row in found}.values())
    for name, stream in streams.items():
        stream.batch().createOrReplaceTempView(name)
    expected = [tuple(row) for row in spark.sql(text).collect()]
    assert Counter(found) == Counter(expected)
    return len(expected)
