"""The synthetic streams: what a stream gives is what its batch twin says it gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.testing import assert_same_rows
from spillway_lab.demo.check import check_result, joined, on_time
from spillway_lab.workloads.banks import BANKS, LATE_ONE_IN, Banks
from spillway_lab.workloads.drift import FACTOR, Drift
from spillway_lab.workloads.pairs import PAYLOAD_CHARACTERS, Pairs


def two_batches(spark: SparkSession, stream: DataFrame, place: Path) -> DataFrame:
    """The rows of the first two batches, with a restart between them."""
    for _ in range(2):
        writer = stream.writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(place / "ck")).start(str(place / "out"))
        query.awaitTermination()
    return spark.read.parquet(str(place / "out"))


def test_stream_of_a_bank_is_its_batch_twin(spark: SparkSession, tmp_path: Path) -> None:
    banks = Banks(rows=70)
    streamed = two_batches(spark, banks.stream(spark, "bank2"), tmp_path)
    assert_same_rows(streamed, banks.batch(spark, "bank2", 0, 1))


def test_streams_of_pairs_are_their_batch_twins(spark: SparkSession, tmp_path: Path) -> None:
    pairs = Pairs(3, rows=70, batches=4, payload=True, times=True)
    streamed = two_batches(spark, pairs.stream(spark)["c"], tmp_path)
    assert_same_rows(streamed, pairs.batch(spark, 0, 1)["c"])


def test_streams_of_a_drift_are_their_batch_twins(spark: SparkSession, tmp_path: Path) -> None:
    drift = Drift(rows=70, change=1, partners=2.0)
    streamed = two_batches(spark, drift.stream(spark)["a"], tmp_path)
    assert_same_rows(streamed, drift.batch(spark, 0, 1)["a"])


def test_one_selectivity_of_a_drift_changes(spark: SparkSession) -> None:
    drift = Drift(rows=2000, change=4, partners=20.0)
    found = []
    for first in (0, 4):
        frames = drift.batch(spark, first, first + 3)
        pairs = {"ab": 0, "ac": 0, "bc": 0}
        for pair in pairs:
            one, other = (frames[name].select("k") for name in pair)
            pairs[pair] = one.join(other, "k").count()
        found.append(pairs)
    before, after = found
    assert FACTOR / 2 < after["ab"] / before["ab"] < FACTOR * 1.5
    for pair in ("ac", "bc"):
        assert 0.8 < after[pair] / before[pair] < 1.25
    assert before["bc"] < before["ab"] < before["ac"] < after["ab"] * 1.5


def test_keys_of_pairs_are_unique_and_find_partners_in_other_batches(spark: SparkSession) -> None:
    pairs = Pairs(2, rows=500, batches=8, payload=True)
    a, b = pairs.batch(spark, 0, 7).values()
    assert a.select("k").distinct().count() == 4000
    assert b.select("k").distinct().count() == 4000
    assert a.where(F.length("payload") == PAYLOAD_CHARACTERS).count() == 4000
    both = a.join(b.withColumnRenamed("v", "w"), "k")
    apart = both.select(F.abs(F.floor(F.col("v") / 500) - F.floor(F.col("w") / 500)).alias("n"))
    assert both.count() > 3000
    assert apart.distinct().count() == 8


def test_banks_find_a_few_partners_and_some_rows_are_late(spark: SparkSession) -> None:
    banks, batches = Banks(rows=1000), 40
    offers = {bank: banks.numbered(spark, bank, 0, batches - 1) for bank in BANKS}
    kept = on_time(spark, offers, batches)
    late = sum(offers[bank].count() - kept[bank].count() for bank in BANKS)
    rows = len(BANKS) * batches * banks.rows
    assert rows / LATE_ONE_IN / 2 < late < rows / LATE_ONE_IN * 2
    assert 0.3 * rows < joined(kept, banks.window_s).count() < 3 * rows


@pytest.mark.parametrize(("copies", "differing"), [(1, 0), (0, 1), (2, 1)])
def test_check_counts_every_missing_and_surplus_row(
    spark: SparkSession, copies: int, differing: int
) -> None:
    banks, batches = Banks(rows=200), 3
    offers = {bank: banks.numbered(spark, bank, 0, batches - 1) for bank in BANKS}
    rows = joined(on_time(spark, offers, batches), banks.window_s).collect()
    assert rows
    schema = joined(offers, banks.window_s).schema
    collected = spark.createDataFrame([*rows[1:], *rows[:1] * copies], schema)
    verdict = check_result(spark, banks, batches, collected)
    assert verdict.differing_rows == differing
    assert verdict.expected_rows == len(rows)
    assert verdict.collected_rows == len(rows) + copies - 1
