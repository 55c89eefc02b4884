"""Checks that the demonstration was exact: its result against a Spark batch query over the same input.

The check shares only the definition of the window with the operator. It computes from the input which
rows the stream had to drop. The watermark before batch b is the least over the banks of the largest time
in earlier batches, minus the lateness.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway_lab.workloads.banks import BANKS, KEYS, LATENESS_S, TIME, Banks

_SECOND_US = 1_000_000


@dataclass(frozen=True)
class Verdict:
    """What the batch query found."""

    expected_rows: int
    collected_rows: int
    #: Rows that only one of the two has, counted with multiplicity.
    differing_rows: int
    #: Rows of each bank that the stream had to drop.
    late: Mapping[str, int]


def check_result(spark: SparkSession, banks: Banks, batches: int, collected: DataFrame) -> Verdict:
    """Compares the output of the first `batches` batches with the batch query over their input."""
    offers = {bank: banks.numbered(spark, bank, 0, batches - 1) for bank in BANKS}
    punctual = on_time(spark, offers, batches)
    expected = joined(punctual, banks.window_s)
    sides = {"collected": collected, "expected": expected}
    tagged = [
        frame.select(*BANKS, *(F.lit(int(side == other)).alias(other) for other in sides))
        for side, frame in sides.items()
    ]
    counts = reduce(DataFrame.unionAll, tagged).groupBy(*BANKS).agg(*_sums(*sides))
    totals = counts.agg(
        *_sums(*sides),
        F.sum(F.abs(F.col("collected") - F.col("expected"))).alias("differing"),
    ).first()
    assert totals is not None
    return Verdict(
        expected_rows=totals["expected"] or 0,
        collected_rows=totals["collected"] or 0,
        differing_rows=totals["differing"] or 0,
        late={bank: batches * banks.rows - punctual[bank].count() for bank in BANKS},
    )


def joined(offers: Mapping[str, DataFrame], window_s: int) -> DataFrame:
    """QUERY 1 without its grouping, as a Spark batch query: one struct per bank."""
    structs = [
        frame.select(F.struct(*(c for c in frame.columns if c != "batch")).alias(bank))
        for bank, frame in offers.items()
    ]
    times = [F.unix_micros(F.col(f"{bank}.{TIME}")) for bank in offers]
    rows = structs[0]
    for at, (bank, frame) in enumerate(zip(BANKS[1:], structs[1:], strict=True), start=1):
        equal = [F.col(f"{BANKS[0]}.{key}") == F.col(f"{bank}.{key}") for key in KEYS]
        # Spans only grow, so a pair outside the window need not wait for the third bank.
        span = F.greatest(*times[: at + 1]) - F.least(*times[: at + 1])
        rows = rows.join(frame, reduce(lambda a, b: a & b, equal) & (span < window_s * _SECOND_US))
    return rows


def on_time(
    spark: SparkSession, offers: Mapping[str, DataFrame], batches: int
) -> dict[str, DataFrame]:
    """The numbered offers without those behind the watermark on arrival."""
    marks = watermarks([_largest_times(frame, batches) for frame in offers.values()])
    table = F.broadcast(spark.createDataFrame(list(enumerate(marks)), "batch bigint, mark bigint"))
    return {
        bank: frame.join(table, "batch")
        .where(F.col("mark").isNull() | (F.unix_micros(TIME) >= F.col("mark")))
        .drop("mark")
        for bank, frame in offers.items()
    }


def _largest_times(frame: DataFrame, batches: int) -> list[int]:
    found = frame.groupBy("batch").agg(F.max(F.unix_micros(TIME)).alias("newest")).collect()
    newest = {row["batch"]: row["newest"] for row in found}
    return list(accumulate((newest[batch] for batch in range(batches)), max))


def watermarks(largest: list[list[int]]) -> list[int | None]:
    """The watermark in force during each batch, None in the first."""
    slowest = [min(times) - LATENESS_S * _SECOND_US for times in zip(*largest, strict=True)]
    return [None, *slowest[:-1]]


def _sums(*columns: str) -> list[Column]:
    return [F.sum(column).alias(column) for column in columns]
