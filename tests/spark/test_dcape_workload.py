"""The streams of DCAPE 3.1: rates, classes and skew are what they are said to be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.errors import SettingsError
from spillway.routing.groups import group_of
from spillway.testing import assert_same_rows
from spillway_lab.workloads.dcape import Dcape
from tier import few


def two_batches(spark: SparkSession, stream: DataFrame, place: Path) -> DataFrame:
    """The rows of the first two batches, with a restart between them."""
    for _ in range(2):
        writer = stream.writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(place / "ck")).start(str(place / "out"))
        query.awaitTermination()
    return spark.read.parquet(str(place / "out"))


def with_groups(rows: DataFrame, groups: int) -> tuple[list[int], list[int]]:
    """The keys, and their groups as the operator computes them."""
    hashed = rows.select("k", F.shiftright(F.xxhash64("k"), 32).cast("int").alias("h")).collect()
    found = group_of(np.array([row["h"] for row in hashed], np.int32).view(np.uint32), groups)
    return [row["k"] for row in hashed], found.tolist()


@pytest.mark.parametrize("skew", few([1, 10], 1))
def test_stream_is_its_batch_twin(spark: SparkSession, tmp_path: Path, skew: int) -> None:
    dcape = Dcape(
        rows=(70, 50, 90), tuple_range=240, join_rates=(4, 2), groups=16, skew=skew, skew_batches=1
    )
    streams, batches = dcape.stream(spark), dcape.batch(spark, 0, 1)
    assert list(streams) == ["a", "b", "c"]
    assert dict(streams["b"].dtypes) == {"k": "bigint", "v": "bigint", "payload": "string"}
    assert_same_rows(two_batches(spark, streams["b"], tmp_path), batches["b"])
    assert batches["b"].count() == 100


def test_every_value_is_seen_once_more_per_rate_and_range(spark: SparkSession) -> None:
    dcape = Dcape(streams=4, rows=300, tuple_range=600, join_rates=(3,), groups=8, payload=7)
    for last, times in ((1, 3), (3, 6)):
        for rows in dcape.batch(spark, 0, last).values():
            counts = Counter(row["k"] for row in rows.collect())
            assert len(counts) == 200
            assert set(counts.values()) == {times}
            assert rows.where(F.length("payload") == 7).count() == (last + 1) * 300
    first = [
        [row["k"] for row in rows.orderBy("v").take(20)]
        for rows in dcape.batch(spark, 0, 0).values()
    ]
    assert len({tuple(keys) for keys in first}) == 4


@pytest.mark.parametrize("spread", ["interleaved", "contiguous"])
def test_classes_land_in_their_groups_with_their_rates(spark: SparkSession, spread: str) -> None:
    dcape = Dcape(rows=600, tuple_range=1200, join_rates=(4, 2, 1), groups=12, spread=spread)
    wanted = [g % 3 if spread == "interleaved" else g // 4 for g in range(12)]
    for rows in dcape.batch(spark, 0, 1).values():
        keys, groups = with_groups(rows, 12)
        rates: dict[int, set[int]] = {}
        for (group, _), times in Counter(zip(groups, keys, strict=True)).items():
            rates.setdefault(wanted[group], set()).add(times)
        assert rates == {0: {4}, 1: {2}, 2: {1}}
        assert Counter(wanted[group] for group in groups) == {0: 400, 1: 400, 2: 400}


@pytest.mark.full
def test_skew_alternates_between_the_halves_and_values_stay_even(spark: SparkSession) -> None:
    dcape = Dcape(
        streams=2, rows=440, tuple_range=1760, join_rates=(2, 1), groups=16, skew=10, skew_batches=2
    )
    for batch in range(8):
        _, groups = with_groups(dcape.batch(spark, batch, batch)["b"], 16)
        shares = Counter(group // 8 for group in groups)
        busy = batch // 2 % 2
        assert shares == {busy: 400, 1 - busy: 40}
    # Two phases of each kind are a whole number of ranges: every value has been seen at its rate.
    keys, groups = with_groups(dcape.batch(spark, 0, 7)["a"], 16)
    seen = Counter(zip(keys, (group % 2 for group in groups), strict=True))
    assert {kind: {n for (_, of), n in seen.items() if of == kind} for kind in (0, 1)} == {
        0: {4},
        1: {2},
    }


@pytest.mark.parametrize(
    ("rows", "skew_batches"), [(7, 1), (45, 2), (31, 3)], ids=["tiny", "rest", "odd"]
)
def test_skewed_cells_count_their_rows_without_a_gap(
    spark: SparkSession, rows: int, skew_batches: int
) -> None:
    dcape = Dcape(rows=rows, join_rates=(2, 1), skew=4, skew_batches=skew_batches)
    cell, at = dcape._in_cell(F.col("id"), rows)
    numbers: dict[int, list[int]] = {}
    for row in spark.range(rows * 11).select("id", cell.alias("c"), at.alias("n")).collect():
        numbers.setdefault(row["c"], []).append(row["n"])
    assert all(found == list(range(len(found))) for found in numbers.values())
    assert set(numbers) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"streams": 1}, "streams=1 must be a whole number of at least 2 and at most 26"),
        ({"rows": 0}, "rows=0 must be a whole number of at least 1"),
        ({"rows": (5, 5)}, "rows has 2 numbers, but there are 3 streams"),
        ({"spread": "mixed"}, "spread='mixed' is not one of"),
        ({"join_rates": ()}, "must be positive rates"),
        ({"join_rates": (1, -1)}, "must be positive rates"),
        ({"join_rates": (1, 2, 3), "groups": 5, "skew": 10}, "too few for 3 join rates in two"),
        ({"join_rates": (9,), "tuple_range": 4}, "needs a tuple range of more than 4 rows"),
        ({"payload": -1}, "payload=-1"),
    ],
)
def test_wrong_arguments_are_refused_with_a_hint(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message.replace("(", r"\(")) as raised:
        Dcape(**wrong)
    assert raised.value.hint
