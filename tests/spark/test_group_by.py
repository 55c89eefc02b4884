"""Group-by on Spark: every batch gives what Spark's batch query gives of all that has come."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway import GroupBy, PlanError, Query, QueryError
from spillway.testing import FileStream, assert_same_rows
from tier import LONGEST_S, few


class Trades:
    """A stream of trades, a query by symbol, and everything that it gave, by batch."""

    SCHEMA = "symbol string, venue int, price double, size bigint, fee decimal(10,2)"

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.source = FileStream(spark, root / "in", self.SCHEMA)
        #: Results of each batch; of rounds too, which have numbers above all of them.
        self.given: dict[int, DataFrame] = {}

    def add(self, rows: int, seed: int, symbols: int = 40) -> None:
        rng = np.random.default_rng(seed)
        names = [None, *(f"s{number}" for number in range(symbols))]
        picked = rng.integers(0, len(names), rows)
        self.source.add(
            [
                (
                    names[which],
                    int(which) % 3,
                    [float("nan"), -0.0, None][which % 3] if odd else float(number),
                    None if odd and which % 2 else int(number),
                    Decimal(int(number)) / 100,
                )
                for which, number, odd in zip(
                    picked.tolist(),
                    rng.integers(-1000, 1000, rows).tolist(),
                    (rng.random(rows) < 0.1).tolist(),
                    strict=True,
                )
            ]
        )

    def query(self) -> GroupBy:
        return (
            sw.stream(self.source.stream(), "trades")
            .group_by("symbol", "venue")
            .agg(
                trades=sw.count(),
                priced=sw.count("price"),
                total=sw.sum("size"),
                double=sw.sum("size * 2"),
                fees=sw.sum("fee"),
                mean_fee=sw.avg("fee"),
                mean=sw.avg("size"),
                low=sw.min("price"),
                high=sw.max("price"),
                name=sw.max("symbol"),
            )
        )

    def expected(self, files: int) -> DataFrame:
        """The batch query over the first files."""
        paths = [str(path) for path in self.source.files[:files]]
        rows = self.spark.read.schema(self.source.batch().schema).parquet(*paths)
        return rows.groupBy("symbol", "venue").agg(
            F.count("*").alias("trades"),
            F.count("price").alias("priced"),
            F.sum("size").alias("total"),
            F.sum(F.expr("size * 2")).alias("double"),
            F.sum("fee").alias("fees"),
            F.avg("fee").alias("mean_fee"),
            F.avg("size").alias("mean"),
            F.min("price").alias("low"),
            F.max("price").alias("high"),
            F.max("symbol").alias("name"),
        )

    def run(self, grouped: GroupBy, **adapt: Any) -> Query:
        def keep(rows: DataFrame, batch: int) -> None:
            self.given[batch] = self.spark.createDataFrame(rows.collect(), rows.schema)

        query = (
            grouped.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.root / "checkpoint"))
            .adapt(**({"slots": 2, "groups": 16} | adapt))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(LONGEST_S), "the query hangs"
        if (problem := query.exception()) is not None:
            raise problem
        return query

    def last_of_each_key(self) -> DataFrame:
        """What is known of each key when all is done: its newest results."""
        newest: dict[tuple[Any, ...], Any] = {}
        for batch in sorted(self.given):
            for row in self.given[batch].collect():
                newest[row["symbol"], row["venue"]] = row
        return self.spark.createDataFrame(list(newest.values()), self.expected(1).schema)


@pytest.fixture
def trades(spark: SparkSession, tmp_path: Path) -> Trades:
    return Trades(spark, tmp_path)


def test_every_batch_gives_the_aggregates_of_the_keys_it_touched(trades: Trades) -> None:
    for seed in range(4):
        trades.add(200, seed, symbols=150)
    trades.add(0, 9)
    trades.run(trades.query())
    for batch in range(4):
        there = trades.spark.read.parquet(str(trades.source.files[batch]))
        touched = there.select("symbol", "venue").distinct()
        whole = trades.expected(batch + 1).alias("w")
        same = [F.col(f"w.{key}").eqNullSafe(F.col(f"t.{key}")) for key in ("symbol", "venue")]
        expected = whole.join(touched.alias("t"), same, "left_semi")
        assert_same_rows(trades.given[batch], expected)
    assert trades.given[4].isEmpty()


def test_schema_is_what_spark_gives(trades: Trades) -> None:
    trades.add(1, 0)
    found = trades.query().schema
    assert {f.name: f.dataType for f in found} == {
        f.name: f.dataType for f in trades.expected(1).schema
    }


def test_restart_with_other_slots_goes_on_where_it_was(trades: Trades) -> None:
    for slots in (2, 3, 1):
        trades.add(300, slots)
        trades.run(trades.query(), slots=slots)
    assert_same_rows(trades.last_of_each_key(), trades.expected(3))


@pytest.mark.parametrize("strategy", few(["spill-only", "lazy-disk"], 1))
def test_too_little_memory_makes_results_late_but_not_wrong(trades: Trades, strategy: str) -> None:
    for seed in range(8):
        trades.add(400, seed, symbols=1500)
    query = trades.run(
        trades.query(), memory="40kB", strategy=strategy, relocation_batches=2, shares=(3, 1)
    )
    kinds = defaultdict(int)
    for event in query.events:
        kinds[type(event).__name__] += 1
    assert kinds["Spilled"] > 0
    assert_same_rows(trades.last_of_each_key(), trades.expected(8))


def test_where_and_select_are_applied_to_the_results(trades: Trades) -> None:
    trades.add(300, 0)
    shaped = trades.query().where("trades > 5").select("symbol", "trades * 10 AS many")
    trades.run(shaped)
    expected = trades.expected(1).where("trades > 5").selectExpr("symbol", "trades * 10 AS many")
    assert_same_rows(trades.given[0], expected)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda s: s.group_by(), "group_by() needs at least one key"),
        (lambda s: s.group_by("symbl"), "stream trades has no column 'symbl' to use as key"),
        (lambda s: s.group_by("symbol", "SYMBOL"), "group_by() names the key symbol twice"),
        (lambda s: s.group_by("symbol").agg(), "agg() needs at least one aggregate"),
        (lambda s: s.group_by("symbol").agg(x=3), "aggregate x is 3, not an aggregate function"),
        (
            lambda s: s.group_by("symbol").agg(x=sw.sum("sizes")),
            "aggregate x=sum(sizes) cannot be resolved",
        ),
        (
            lambda s: s.group_by("symbol").agg(Symbol=sw.count()),
            "aggregate Symbol has the same name",
        ),
    ],
)
def test_what_is_wrong_is_named_before_the_stream_starts(
    trades: Trades, wrong: Any, said: str
) -> None:
    trades.add(1, 0)
    with pytest.raises(PlanError) as problem:
        wrong(sw.stream(trades.source.stream(), "trades"))
    assert said in str(problem.value)


def test_output_mode_is_update(trades: Trades) -> None:
    trades.add(1, 0)
    writer = trades.query().writeStream
    assert writer.outputMode("update") is writer
    with pytest.raises(PlanError, match="is not valid for a group-by"):
        writer.outputMode("append")


def test_checkpoint_of_other_aggregates_is_refused(trades: Trades) -> None:
    trades.add(10, 0)
    trades.run(trades.query())
    other = sw.stream(trades.source.stream(), "trades").group_by("symbol").agg(n=sw.count())
    with pytest.raises(QueryError, match="belongs to another query"):
        trades.run(other)
