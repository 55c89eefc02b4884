"""The bank streams of QUERY 1 in DCAPE, section 1: offers to sell currency, from three banks.

    brokerName string, price decimal, offerCurrency string, offer int, timestamp timestamp

The query joins the banks on (offerCurrency, offer) within a window. Spark hashes row numbers into
columns. The rate sets the number of distinct offers: a row has on average one partner per other bank in
the window before it.

Rows arrive up to `DISORDER_MS` out of order, within the lateness. One in `LATE_ONE_IN` arrives later and
must be dropped and counted, unless there is no watermark yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway_lab.workloads.rate import Rate

BANKS = ("bank1", "bank2", "bank3")
KEYS = ("offerCurrency", "offer")
TIME = "timestamp"
LATENESS_S = 3
DISORDER_MS = 2_000
LATE_ONE_IN = 1_000
_LATE_BY_MS = 30_000
_SECOND_MS = 1_000

# fmt: off
_CURRENCIES = (
    "AUD", "BRL", "CAD", "CHF", "CNY", "EUR", "GBP", "INR", "JPY", "MXN",
    "NOK", "NZD", "PLN", "SEK", "SGD", "THB", "TRY", "USD", "VND", "ZAR",
)
_BROKERS = (
    "Alder", "Birch", "Cedar", "Douglas", "Elm", "Fir", "Ginkgo", "Hazel", "Ilex", "Juniper",
)
# fmt: on


@dataclass(frozen=True)
class Banks:
    """Three banks of `rows` offers per batch each; a batch is one second of event time."""

    rows: int = 10_000
    window_s: int = 20

    @property
    def rate(self) -> Rate:
        """The source of every bank."""
        return Rate(self.rows, advance_ms=_SECOND_MS)

    @property
    def offers(self) -> int:
        """Distinct offers per currency: this many give one partner per bank and window."""
        return max(1, self.rows * self.window_s // len(_CURRENCIES))

    def stream(self, spark: SparkSession, bank: str) -> DataFrame:
        """One bank as a streaming DataFrame."""
        return self._offers(self.rate.stream(spark), bank)

    def batch(self, spark: SparkSession, bank: str, first: int, last: int) -> DataFrame:
        """The offers of batches `first` to `last`, inclusive."""
        return self._offers(self.rate.batch(spark, first, last), bank)

    def numbered(self, spark: SparkSession, bank: str, first: int, last: int) -> DataFrame:
        """The same offers, with their batch number in the column `batch`."""
        number = self.rate.batch_of(F.col("value")).alias("batch")
        return self._offers(self.rate.batch(spark, first, last), bank, number)

    def _offers(self, rows: DataFrame, bank: str, *more: Column) -> DataFrame:
        draw = _drawn_for(bank)
        broker = draw("broker", len(_BROKERS))
        # Each broker has its own price level, so that the answer differs by broker.
        price_cents = F.lit(95_00) + broker * 7 + draw("price", 10_00)
        held_up_ms = F.when(draw("late", LATE_ONE_IN) == 0, F.lit(_LATE_BY_MS)).otherwise(F.lit(0))
        time_ms = (
            F.unix_millis(F.col("timestamp"))
            + draw("time", DISORDER_MS + _SECOND_MS)
            - F.lit(DISORDER_MS)
            - held_up_ms
        )
        return rows.select(
            _one_of(_BROKERS, broker).alias("brokerName"),
            (price_cents.cast("decimal(10,0)") / F.lit(100)).cast("decimal(12,2)").alias("price"),
            _one_of(_CURRENCIES, draw("currency", len(_CURRENCIES))).alias("offerCurrency"),
            (draw("offer", self.offers) + 1).cast("int").alias("offer"),
            F.timestamp_millis(time_ms).alias(TIME),
            *more,
        )


def _drawn_for(bank: str) -> Callable[[str, int], Column]:
    """A function (what, number of choices) that draws a pseudo-random choice for each row."""

    def draw(what: str, below: int) -> Column:
        return F.pmod(F.xxhash64(F.col("value"), F.lit(f"{bank}.{what}")), F.lit(below))

    return draw


def _one_of(names: tuple[str, ...], choice: Column) -> Column:
    return F.element_at(F.array(*map(F.lit, names)), (choice + 1).cast("int"))
