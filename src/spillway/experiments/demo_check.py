"""Whether the demonstration was exact: its result against a Spark batch query over the same input.

The check shares nothing with the operator but the definition of the window. It has to know which
rows the stream was right to drop, so it draws the watermark again from the input alone: before batch
b it is the least over the banks of the largest time in the batches before b, less the lateness.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.workloads.banks import BANKS, KEYS, LATENESS_S, TIME, Banks

_SECOND_US = 1_000_000


@dataclass(frozen=True)
class Verdict:
    """What the batch query found."""

    expected_rows: int
    collected_rows: int
    #: Rows that only one of the two has, each as often as it differs.
    differing_rows: int
    #: Rows of each bank that had to be dropped.
    late: Mapping[str, int]


def check_result(spark: SparkSession, banks: Banks, batches: int, collected: DataFrame) -> Verdict:
    """Compares what was collected in the first `batches` batches with the batch query over them."""
    offers = {bank: banks.numbered(spark, bank, 0, batches - 1) for bank in BANKS}
    on_time = _on_time(spark, offers, batches)
    expected = joined(on_time, banks.window_s)
    columns = list(BANKS)
    signed = (
        collected.select(*columns, F.lit(1).alias("sign"))
        .unionAll(expected.select(*columns, F.lit(-1).alias("sign")))
        .groupBy(*columns)
        .agg(
            F.sum("sign").alias("sum"),
            *(F.count_if(F.col("sign") == s).alias(n) for s, n in _SIDES),
        )
    )
    totals = signed.agg(
        *(F.sum(name).alias(name) for _, name in _SIDES),
        F.sum(F.abs("sum")).alias("differing"),
    ).first()
    assert totals is not None
    late = {bank: batches * banks.rows - on_time[bank].count() for bank in BANKS}
    return Verdict(
        totals["expected"] or 0, totals["collected"] or 0, totals["differing"] or 0, late
    )


_SIDES = ((1, "collected"), (-1, "expected"))


def joined(offers: Mapping[str, DataFrame], window_s: int) -> DataFrame:
    """QUERY 1 before its grouping, as a Spark batch query: one struct for each bank."""
    structs = [
        frame.select(F.struct(*(c for c in frame.columns if c != "batch")).alias(bank))
        for bank, frame in offers.items()
    ]
    times = [F.unix_micros(F.col(f"{bank}.{TIME}")) for bank in offers]
    rows = structs[0]
    for at, (bank, frame) in enumerate(zip(BANKS[1:], structs[1:], strict=True), start=1):
        equal = [F.col(f"{BANKS[0]}.{key}") == F.col(f"{bank}.{key}") for key in KEYS]
        # Spans only grow, so that a pair outside the window need not wait for the third bank.
        span = F.greatest(*times[: at + 1]) - F.least(*times[: at + 1])
        rows = rows.join(frame, reduce(lambda a, b: a & b, equal) & (span < window_s * _SECOND_US))
    return rows


def _on_time(
    spark: SparkSession, offers: Mapping[str, DataFrame], batches: int
) -> dict[str, DataFrame]:
    marks = _watermarks([_largest_times(frame, batches) for frame in offers.values()])
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


def _watermarks(largest: list[list[int]]) -> list[int | None]:
    """The watermark in force during each batch, None in the first."""
    slowest = [min(times) - LATENESS_S * _SECOND_US for times in zip(*largest, strict=True)]
    return [None, *slowest[:-1]]
