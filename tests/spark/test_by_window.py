"""Group-by over tumbling, hopping and session windows on Spark, against Spark's own batch query."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway import Query
from spillway.spark.api.result import Result
from spillway.spark.api.stream import Grouped
from spillway.testing import FileStream, assert_same_rows
from tier import few

#: The clocks of New York go forward at 7:00 UTC.
START = datetime(2026, 3, 8, 6, 59, tzinfo=timezone.utc)
LATENESS_S = 20
LONGEST_S = 120
AGGREGATES = {
    "n": (sw.count(), "count(*)"),
    "values": (sw.count("value"), "count(value)"),
    "total": (sw.sum("value"), "sum(value)"),
    "mean": (sw.avg("value"), "avg(value)"),
    "least": (sw.min("name"), "min(name)"),
    "price": (sw.sum("price"), "sum(price)"),
}
#: For each kind of windows, those of Spillway and of Spark.
WINDOWS: dict[str, tuple[dict[str, str], str]] = {
    "tumbling": ({"length": "30 seconds"}, "window(ts, '30 seconds')"),
    "tumbling with a start": (
        {"length": "1 minute", "start": "-7 seconds"},
        "window(ts, '1 minute', '1 minute', '-7 seconds')",
    ),
    "hopping": (
        {"length": "40 seconds", "slide": "15 seconds", "start": "4 seconds"},
        "window(ts, '40 seconds', '15 seconds', '4 seconds')",
    ),
    "session": ({"gap": "4 seconds"}, "session_window(ts, '4 seconds')"),
}


class Sales:
    """A stream of sales, and the output of a query on it."""

    def __init__(self, spark: SparkSession, root: Path, kind: str = "timestamp") -> None:
        self.spark, self.root = spark, root
        schema = f"k string, ts {kind}, value bigint, price decimal(12,2), name string"
        self.source = FileStream(spark, root / "in", schema)
        self.zone = timezone.utc if kind == "timestamp" else None

    def add(self, rows: int, seed: int, second: float = 0.0, keys: int = 12) -> None:
        rng = np.random.default_rng(seed)
        picked = zip(
            rng.integers(0, keys, rows).tolist(),
            # Some rows are behind, but none is late.
            (second - LATENESS_S / 2 * rng.random(rows)).tolist(),
            rng.integers(0, 50, rows).tolist(),
            strict=True,
        )
        self.source.add([self.sale(*one) for one in picked])

    def sale(self, key: int, second: float, value: int) -> tuple[Any, ...]:
        at = (START + timedelta(seconds=round(second, 3))).replace(tzinfo=self.zone)
        number = None if value == 0 else value
        return (
            None if key == 0 else f"k{key}",
            at,
            number,
            Decimal(f"{value}.25"),
            f"name {value:03d}",
        )

    def close(self, second: float) -> None:
        """A last row that ends all windows before it."""
        self.source.add([self.sale(99, second, 7)])

    def grouped(self, keyed: bool = True) -> Grouped:
        stream = sw.stream(self.source.stream(), "sales")
        return stream.group_by("k") if keyed else stream

    def run(self, query: Result, mode: str = "append", **adapt: Any) -> Query:
        running = (
            query.writeStream.format("parquet")
            .outputMode(mode)
            .option("checkpointLocation", str(self.root / "checkpoint"))
            .adapt(**({"slots": 2, "groups": 16} | adapt))
            .trigger(availableNow=True)
            .start(str(self.root / "out"))
        )
        assert running.awaitTermination(LONGEST_S), "the query hangs"
        assert running.exception() is None
        return running

    def found(self) -> DataFrame:
        return self.spark.read.parquet(str(self.root / "out"))

    def expected(self, window: str, name: str, keyed: bool = True) -> DataFrame:
        """Spark's batch query, with the windows that the watermark has passed."""
        rows = self.source.batch().where("ts IS NOT NULL")
        newest = rows.agg(F.max("ts")).first()[0]
        ends = newest - timedelta(seconds=LATENESS_S)
        keys = [F.col("k")] if keyed else []
        made = [F.expr(of).alias(title) for title, (_, of) in AGGREGATES.items()]
        whole = rows.groupBy(*keys, F.expr(window).alias(name)).agg(*made)
        end = F.col(f"{name}.end")
        return whole.where(end < F.lit(ends) if name == "session_window" else end <= F.lit(ends))


def over(grouped: Grouped, kind: str) -> Result:
    how = dict(WINDOWS[kind][0], time="ts", lateness=f"{LATENESS_S} seconds")
    made = {title: one for title, (one, _) in AGGREGATES.items()}
    if kind == "session":
        return grouped.session(how.pop("gap"), **how).agg(**made)
    return grouped.window(how.pop("length"), **how).agg(**made)


def name_of(kind: str) -> str:
    return "session_window" if kind == "session" else "window"


def fill(sales: Sales, batches: int = 6, rows: int = 400, keys: int = 40) -> None:
    for batch in range(batches):
        sales.add(rows, batch, 15.0 * batch + 10, keys)


@pytest.mark.parametrize("kind", few(WINDOWS, 2, 3))
def test_windows_are_those_of_spark_whatever_spills_and_restarts(elsewhere, tmp_path, kind) -> None:
    sales = Sales(elsewhere, tmp_path)
    query = over(sales.grouped(), kind)
    fill(sales)
    first = sales.run(query, memory=5000)
    sales.add(300, 77, 120.0)
    sales.close(400.0)
    sales.run(query, slots=3)
    assert_same_rows(sales.found(), sales.expected(WINDOWS[kind][1], name_of(kind)))
    assert sales.found().schema == query.schema
    assert any(event.kind == "spilled" for event in first.events)
    assert sales.found().count() > 100


@pytest.mark.full
@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("zoned", ["timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "no key"])
def test_windows_are_those_of_spark(elsewhere, tmp_path, kind, zoned, keyed) -> None:
    sales = Sales(elsewhere, tmp_path, zoned)
    fill(sales, rows=120)
    sales.close(400.0)
    sales.run(over(sales.grouped(keyed), kind))
    assert_same_rows(sales.found(), sales.expected(WINDOWS[kind][1], name_of(kind), keyed))


@pytest.mark.full
@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("how", [{"spill_mode": "rotation"}, {"skew_buffer": "1MB"}], ids=str)
def test_windows_are_those_of_spark_with_every_mechanism(spark, tmp_path, kind, how) -> None:
    sales = Sales(spark, tmp_path)
    fill(sales)
    sales.close(400.0)
    sales.run(over(sales.grouped(), kind), memory=20_000, **how)
    assert_same_rows(sales.found(), sales.expected(WINDOWS[kind][1], name_of(kind)))
