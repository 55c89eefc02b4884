"""Three streams of which one selectivity changes in the middle: the input of the benchmark of plans.

    k bigint, v bigint, ts timestamp

Rows of two streams match where they have keys of a domain that both draw from. There is one domain for
each pair of streams, and one for all three, so that each pair has the selectivity that is wanted: with f
and f' the parts of rows of two streams in a domain of n keys, it is f f' / n. From batch `change` on,
twenty times as many rows of stream a have keys of the domain it has with b; before, these rows match
nothing. The other pairs stay as they are. Keys are hashes of row numbers, made natively in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.errors import SettingsError
from spillway.workloads.rate import Rate

NAMES = ("a", "b", "c")
#: By how much the selectivity of a and b changes.
FACTOR = 20
#: For each domain, which is its place here, its keys as a multiple of those of the first.
DOMAINS = {"ab": 1, "ac": 2, "bc": 2, "abc": 4}
#: Of a thousand rows of each stream, how many draw from each domain after the change; others match
#: nothing.
_PARTS = {
    "a": {"ab": 400, "ac": 250, "abc": 50},
    "b": {"ab": 450, "bc": 500, "abc": 50},
    "c": {"ac": 450, "bc": 500, "abc": 50},
}
_WHOLE = 1000
#: Keys of one domain are below this, and those that match nothing above all domains.
_DOMAIN_SIZE = 1 << 40


@dataclass(frozen=True)
class Drift:
    """Three streams of `rows` rows a batch each, with windows of some batches."""

    rows: int
    #: The first batch in which a and b match more often.
    change: int
    window_batches: int = 4
    #: Rows of b that a row of a finds in a window after the change, about.
    partners: float = 10.0
    advance_ms: int = 1000

    def __post_init__(self) -> None:
        if self.rows < 1 or self.change < 0 or self.keys < 1:
            raise SettingsError(
                f"no input of {self.rows} rows a batch with {self.partners} partners",
                hint="use more rows, or fewer partners",
            )

    @property
    def keys(self) -> int:
        """Keys of the first domain."""
        share = _PARTS["a"]["ab"] * _PARTS["b"]["ab"] / _WHOLE**2
        return int(share * self.rows * self.window_batches / self.partners)

    @property
    def rate(self) -> Rate:
        """The source under every stream."""
        return Rate(self.rows, advance_ms=self.advance_ms)

    def stream(self, spark: SparkSession) -> dict[str, DataFrame]:
        """All streams, by name."""
        return {name: self._keyed(self.rate.stream(spark), name) for name in NAMES}

    def batch(self, spark: SparkSession, first: int, last: int) -> dict[str, DataFrame]:
        """The rows that the streams give in the batches `first` to `last`, both included."""
        return {name: self._keyed(self.rate.batch(spark, first, last), name) for name in NAMES}

    def _keyed(self, rows: DataFrame, name: str) -> DataFrame:
        value, place = F.col("value"), F.lit(NAMES.index(name))
        drawn = F.pmod(F.xxhash64(value, place), F.lit(_WHOLE))
        chance = F.xxhash64(value, place + F.lit(len(NAMES)))
        # Rows of a that are of the domain it has with b by their number, but not before the change.
        early = self.rate.batch_of(value) < F.lit(self.change)
        # No key of another stream is like these.
        nothing = F.lit(_DOMAIN_SIZE * (len(DOMAINS) + NAMES.index(name))) + F.pmod(
            chance, F.lit(_DOMAIN_SIZE)
        )
        key: Column = nothing
        begin = 0
        for at, (domain, times) in enumerate(DOMAINS.items()):
            part = _PARTS[name].get(domain, 0)
            here = (drawn >= begin) & (drawn < begin + part)
            if (name, domain) == ("a", "ab"):
                here &= ~early | (drawn < begin + part // FACTOR)
            own = F.lit(at * _DOMAIN_SIZE) + F.pmod(chance, F.lit(self.keys * times))
            key = F.when(here, own).otherwise(key)
            begin += part
        # Rows of a batch are spread evenly over its event time, none of them late.
        within_ms = F.floor(F.pmod(value, F.lit(self.rows)) * self.advance_ms / self.rows)
        time_ms = F.unix_millis(F.col("timestamp")) + within_ms.cast("bigint")
        return rows.select(
            key.alias("k"), value.alias("v"), F.timestamp_millis(time_ms).alias("ts")
        )
