"""The inputs of the benchmark: n streams of unique keys in pseudo-random order.

    k bigint, v bigint [, payload string] [, ts timestamp]

Row r of stream i has the key r * odd_i modulo 2^m, the smallest power of two not below the rows of the
run. An odd factor permutes the numbers below 2^m, so keys are unique in a stream. Equal keys of two
streams can be as far apart as the run is long. Spark makes the input at almost no cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.errors import SettingsError
from spillway_lab.workloads.rate import Rate

NAMES = ("a", "b", "c")
PAYLOAD_CHARACTERS = 40
#: Odd, different in their lowest three bits, with set bits throughout.
_ODD = (2_654_435_761, 2_246_822_519, 3_266_489_917)
#: Products of a row number and a multiplier below 2^m stay within a bigint.
_MOST_BITS = 31
_ROWS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Pairs:
    """`streams` streams of `rows` rows a batch each, for a run of `batches` batches."""

    streams: int
    rows: int
    batches: int
    payload: bool = False
    times: bool = False
    #: Event time of one batch.
    advance_ms: int = 1000

    def __post_init__(self) -> None:
        if not 2 <= self.streams <= len(NAMES) or self.rows < 1 or self.batches < 1:
            raise SettingsError(
                f"cannot make {self.streams} streams of {self.rows} rows in {self.batches} batches",
                hint=f"use 2 to {len(NAMES)} streams, and at least one row and one batch",
            )
        if self.key_bits > _MOST_BITS:
            raise SettingsError(
                f"{self.rows} rows in each of {self.batches} batches are more than 2^{_MOST_BITS}",
                hint="use fewer rows or fewer batches",
            )

    @property
    def key_bits(self) -> int:
        """The m of the key domain 2^m.

        Example:
            >>> Pairs(streams=2, rows=200_000, batches=50).key_bits
            24
        """
        return max(3, (self.rows * self.batches - 1).bit_length())

    @property
    def rate(self) -> Rate:
        """The source of every stream."""
        return Rate(self.rows, advance_ms=self.advance_ms)

    def matches(self, batches: int) -> int:
        """The rows in the join of the first two streams after this many batches, by arithmetic.

        Row r of one stream has the key of row r * odd_a / odd_b of the other, modulo 2^m.

        Example:
            >>> Pairs(streams=2, rows=1, batches=16).matches(16)
            16
        """
        rows, size = self.rows * batches, 1 << self.key_bits
        factor = np.uint64(_ODD[0] * pow(_ODD[1], -1, size) % size)
        found = 0
        for begin in range(0, rows, _ROWS_AT_ONCE):
            mine = np.arange(begin, min(begin + _ROWS_AT_ONCE, rows), dtype=np.uint64)
            found += int(((mine * factor) % np.uint64(size) < rows).sum())
        return found

    def stream(self, spark: SparkSession) -> dict[str, DataFrame]:
        """All streams, by name."""
        return {
            name: self._keyed(self.rate.stream(spark), number)
            for number, name in enumerate(NAMES[: self.streams])
        }

    def batch(self, spark: SparkSession, first: int, last: int) -> dict[str, DataFrame]:
        """The rows of batches `first` to `last`, inclusive."""
        return {
            name: self._keyed(self.rate.batch(spark, first, last), number)
            for number, name in enumerate(NAMES[: self.streams])
        }

    def _keyed(self, rows: DataFrame, number: int) -> DataFrame:
        value = F.col("value")
        mask = (1 << self.key_bits) - 1
        columns = [(value * F.lit(_ODD[number] & mask)).bitwiseAND(F.lit(mask)).alias("k")]
        columns.append(value.alias("v"))
        if self.payload:
            text = F.rpad(
                value.cast("string"), PAYLOAD_CHARACTERS, "the quick brown fox jumps over "
            )
            columns.append(text.alias("payload"))
        if self.times:
            # A batch spreads its rows evenly over its event time; none is late.
            within_ms = F.floor(F.pmod(value, F.lit(self.rows)) * self.advance_ms / self.rows)
            time_ms = F.unix_millis(F.col("timestamp")) + within_ms.cast("bigint")
            columns.append(F.timestamp_millis(time_ms).alias("ts"))
        return rows.select(*columns)
