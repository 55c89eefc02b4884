"""Rows of many kilobytes: result blocks are bounded in bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scenario import Scenario

ROWS, WIDTH = 182, 66_000
#: 2.2 GB pass through the JVM, which takes minutes on a busy machine.
LONGEST_S = 580


@pytest.mark.full
def test_rows_of_66_kb_with_many_results_are_joined(spark: SparkSession, tmp_path: Path) -> None:
    """One key and 33,124 results of 2.2 GB: without a bound in bytes, a block of 32,768 fails."""
    scenario = Scenario(spark, tmp_path, a="k bigint, n bigint, t string", b="k bigint, n bigint")
    scenario.add(a=[(1, at, str(at % 10) * WIDTH) for at in range(ROWS)])
    scenario.add(b=[(1, at) for at in range(ROWS)])
    found: list[tuple[int, ...]] = []

    def count(results: DataFrame, _: int) -> None:
        row = results.agg(
            F.count("*"), F.sum(F.col("a.n") * 1000 + F.col("b.n")), F.sum(F.length("a.t"))
        ).first()
        assert row is not None
        if row[0]:
            found.append(tuple(row))

    query = scenario.start(scenario.join().on("k"), sink=count)
    assert query.awaitTermination(LONGEST_S), "the query hangs"
    numbers = sum(1000 * a + b for a in range(ROWS) for b in range(ROWS))
    assert found == [(ROWS**2, numbers, ROWS**2 * WIDTH)]
