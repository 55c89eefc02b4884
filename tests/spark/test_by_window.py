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
from spillway import Query, SpillwayError
from spillway.spark.api.result import Result
from spillway.spark.api.stream import Grouped
from spillway.testing import FileStream, assert_same_rows
from tier import few

#: The clocks of New York go forward at 7:00 UTC.
START = datetime(2026, 3, 8, 6, 59, tzinfo=timezone.utc)
LATENESS_S = 20
LONGEST_S = 400
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

    def expected(
        self, window: str, name: str, keyed: bool = True, all_windows: bool = False
    ) -> DataFrame:
        """Spark's batch query, with the windows that the watermark has passed."""
        rows = self.source.batch().where("ts IS NOT NULL")
        newest = rows.agg(F.max("ts")).first()[0]
        ends = newest - timedelta(seconds=LATENESS_S)
        keys = [F.col("k")] if keyed else []
        made = [F.expr(of).alias(title) for title, (_, of) in AGGREGATES.items()]
        whole = rows.groupBy(*keys, F.expr(window).alias(name)).agg(*made)
        if all_windows:
            return whole
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


def fill(sales: Sales, batches: int = 4, rows: int = 250, keys: int = 40) -> None:
    for batch in range(batches):
        sales.add(rows, batch, 15.0 * batch + 10, keys)


@pytest.mark.parametrize("kind", few(WINDOWS, 2, 3))
def test_windows_are_those_of_spark_whatever_spills_and_restarts(elsewhere, tmp_path, kind) -> None:
    sales = Sales(elsewhere, tmp_path)
    query = over(sales.grouped(), kind)
    fill(sales)
    first = sales.run(query, memory=5000)
    sales.add(200, 77, 90.0)
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


@pytest.mark.full
@pytest.mark.parametrize("kind", ["tumbling", "hopping"])
def test_updates_end_with_the_rows_of_spark(spark, tmp_path, kind) -> None:
    sales = Sales(spark, tmp_path)
    fill(sales, rows=150)
    sales.close(400.0)
    sales.run(over(sales.grouped(), kind), "update", memory=20_000)
    whole = sales.expected(WINDOWS[kind][1], "window", all_windows=True)
    # Counts only grow, so the last update of a window is the one with the most rows.
    newest = sales.found().groupBy("k", "window").agg(F.max("n").alias("n"))
    last = (
        sales.found()
        .alias("f")
        .join(
            newest.alias("l"),
            F.expr("f.k <=> l.k AND f.window = l.window AND f.n = l.n"),
            "left_semi",
        )
    )
    assert_same_rows(last.distinct(), whole)


def test_rows_of_a_range_are_final_and_exact_out_of_order(spark, tmp_path) -> None:
    sales = Sales(spark, tmp_path)
    for batch in range(4):
        sales.add(60, batch, 6.0 * batch + 10, keys=4)
    sales.close(400.0)
    made = {title: one for title, (one, _) in AGGREGATES.items()}
    query = sales.grouped().within(
        "7 seconds", time="ts", lateness=f"{LATENESS_S} seconds", final=True
    )
    sales.run(query.agg(**made), memory=20_000)
    over_range = (
        "OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '6.999999' SECOND PRECEDING"
        " AND CURRENT ROW)"
    )
    rows = sales.source.batch().where("ts <= timestamp'2026-03-08 07:05:00'")
    wanted = rows.selectExpr(
        "k", "ts", *(f"{of} {over_range} AS {title}" for title, (_, of) in AGGREGATES.items())
    )
    assert_same_rows(sales.found(), wanted)


def test_key_that_pauses_starts_anew(spark, tmp_path) -> None:
    sales = Sales(spark, tmp_path)
    for at, key, value in [(0, 1, 5), (3, 1, 6), (4, 2, 1), (20, 1, 7), (60, 2, 2), (61, 1, 3)]:
        sales.source.add([sales.sale(key, at, value)])
    query = sw.stream(sales.source.stream(), "sales").group_by("k", ttl="10 seconds", time="ts")
    run = sales.run(query.agg(n=sw.count(), total=sw.sum("value")), "update")
    found = sorted(map(tuple, sales.found().collect()))
    assert found == sorted(
        [("k1", 1, 5), ("k1", 2, 11), ("k2", 1, 1), ("k1", 1, 7), ("k2", 1, 2), ("k1", 1, 3)]
    )
    assert sum(one["rowsExpired"] for one in run.recentProgress) == 3
    assert "keys with a time to live of 10 s" in run.describe()


MORE = {
    "different": (sw.count_distinct("value"), "count(DISTINCT value)"),
    "roughly": (sw.approx_count_distinct("name"), "count(DISTINCT name)"),
    "values": (sw.collect_list("value", limit=999), "array_sort(collect_list(value))"),
    "names": (sw.collect_set("name", limit=999), "array_sort(collect_set(name))"),
    "dearest": (sw.max_by("name", "at"), "max_by(name, at)"),
    "first": (sw.min_by("name", "at"), "min_by(name, at)"),
    "cheap": (sw.bool_and("price < 49"), "bool_and(price < 49)"),
    "dear": (sw.bool_or("price > 45"), "bool_or(price > 45)"),
    "waited": (sw.sum("wait"), "sum(wait)"),
    "mean wait": (sw.avg("wait"), "avg(wait)"),
}


def test_more_aggregates_are_those_of_spark(spark, tmp_path) -> None:
    sales = Sales(spark, tmp_path)
    fill(sales, batches=3, rows=80, keys=5)
    more = ["*", "ts AS at", "(ts - timestamp'2026-03-08 07:00:00') AS wait"]
    rows = sales.source.stream().selectExpr(*more)
    made = {title: one for title, (one, _) in MORE.items()}
    sales.run(sw.stream(rows, "sales").group_by("k").agg(**made), "update", memory=20_000)
    wanted = sales.source.batch().selectExpr(*more).groupBy("k")
    whole = wanted.agg(*(F.expr(of).alias(title) for title, (_, of) in MORE.items()))
    # The last update of a key has the most values.
    found = sales.found().withColumn("values", F.array_sort("values"))
    sizes = found.groupBy("k").agg(F.max(F.size("values")).alias("most"))
    last = found.alias("f").join(
        sizes.alias("s"), F.expr("f.k <=> s.k AND size(f.values) = s.most"), "left_semi"
    )
    assert_same_rows(last, whole)


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        (lambda g: g.window("0 seconds", time="ts"), "the window of stream sales must be positive"),
        (
            lambda g: g.window("1 minute", time="ts", slide="2 minutes"),
            "the slide of stream sales cannot be longer than the window",
        ),
        (
            lambda g: g.window("1 minute", time="ts", start="1 minute"),
            "the start of the windows of stream sales must be less than their slide",
        ),
        (lambda g: g.session("0 seconds", time="ts"), "the gap of stream sales must be positive"),
        (lambda g: g.window("1 minute", time="value"), "is on value, which is bigint"),
        (
            lambda g: g.session("1 minute", time="ts").agg(session_window=sw.count()),
            "aggregate session_window has the same name as the column of the windows",
        ),
        (
            lambda g: g.stream.group_by("k", ttl="1 minute"),
            "group_by() takes ttl and time together",
        ),
        (
            lambda g: g.stream.group_by("k", ttl="1 minute", time="ts").window("1 s", time="ts"),
            "a group-by with ttl cannot have .window(...) too",
        ),
        (
            lambda g: g.last(3).agg(a=sw.fold(min, min, min, partials={"s": "int"}, returns="int")),
            "aggregate a is a fold, which does not work with .last() and .within()",
        ),
        (
            lambda g: g.agg(a=sw.collect_list("value", limit=0)),
            "collect_list(limit=0) must be a positive number of values",
        ),
        (
            lambda g: g.agg(a=sw.approx_count_distinct("value", 0.0)),
            "must be between 0.002 and 0.5, not 0.0",
        ),
        (
            lambda g: (
                g.session("1 s", time="ts").agg(n=sw.count()).writeStream.outputMode("update")
            ),
            "outputMode('update') is not valid for a group-by",
        ),
        (
            lambda g: (
                g.session("1 s", time="ts")
                .agg(n=sw.count())
                .writeStream.format("noop")
                .adapt(moves="ptlb")
                .start()
            ),
            'moves="ptlb" does not work with the group-by',
        ),
    ],
)
def test_what_does_not_fit_is_refused(spark, tmp_path, verb, text) -> None:
    with pytest.raises(SpillwayError) as refused:
        verb(Sales(spark, tmp_path).grouped())
    assert text in str(refused.value)
    assert refused.value.hint


def test_windows_go_on_only_in_their_output_mode(spark, tmp_path) -> None:
    sales = Sales(spark, tmp_path)
    sales.add(5, 1)
    query = over(sales.grouped(), "tumbling")
    sales.run(query)
    with pytest.raises(SpillwayError) as refused:
        sales.run(query, "update")
    assert 'it had tumbling windows of 30 s in outputMode("append"), now' in str(refused.value)


@pytest.mark.full
def test_windows_of_a_join_are_those_of_spark(spark, tmp_path) -> None:
    sales = Sales(spark, tmp_path)
    fill(sales, batches=4, rows=60, keys=20)
    sales.close(400.0)
    returns = FileStream(spark, tmp_path / "returns", "k string, back timestamp")
    rng = np.random.default_rng(9)
    for batch in range(4):
        returns.add(
            [
                (f"k{key}", START + timedelta(seconds=15 * batch + 10 - second))
                for key, second in zip(*rng.integers(0, 9, (2, 40)).tolist(), strict=True)
            ]
        )
    # The join needs a partner for the last row, too: it moves the watermark of the windows.
    returns.add([("k99", START + timedelta(seconds=400))])
    joined = (
        sw.join(sold=sales.source.stream(), returned=returns.stream())
        .on("k")
        .within("30 seconds", time={"sold": "ts", "returned": "back"}, lateness="20 seconds")
        .select("sold.k", "sold.value", "greatest(sold.ts, returned.back) AS ts")
    )
    query = joined.group_by("k").window("10 seconds", time="ts", lateness="45 seconds")
    sales.run(query.agg(n=sw.count(), total=sw.sum("value")), memory="10MB")
    pairs = (
        sales.source.batch()
        .alias("s")
        .join(
            returns.batch().alias("r"),
            F.expr(
                "s.k = r.k AND s.ts < r.back + INTERVAL 30 SECONDS"
                " AND r.back < s.ts + INTERVAL 30 SECONDS"
            ),
        )
    )
    rows = pairs.selectExpr("s.k", "value", "greatest(ts, back) AS ts")
    whole = rows.groupBy("k", F.window("ts", "10 seconds"))
    wanted = whole.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    newest = F.lit(START + timedelta(seconds=355))
    assert_same_rows(sales.found(), wanted.where(F.col("window.end") <= newest))
    assert sales.found().count() > 20
