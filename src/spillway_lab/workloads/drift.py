"""One fast stream and two slow ones; one selectivity changes. The input on which plans are compared.

    k bigint, v bigint, ts timestamp

Rows match on keys from a shared domain: one per pair of streams, and one for all three. If fractions
f and f' of two streams draw from a domain of n keys, their selectivity is f f' / n. From batch
`change` on, twenty times as many rows of a draw from its domain with b; before, these rows match
nothing. Spark hashes row numbers into keys.

Before the change a row of a finds few rows of b, so the cheapest plan probes b first. After it a row
of a finds many rows of b and of c. Then the best plan stores the combinations of b and c, which are
few because both are slow.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.errors import SettingsError
from spillway_lab.workloads.rate import Rate

NAMES = ("a", "b", "c")
#: The factor by which the selectivity of a and b changes.
FACTOR = 20
#: The domains; a domain's number is its place here.
DOMAINS = ("ab", "ac", "bc", "abc")
#: Of a thousand rows of each stream, how many draw from each domain after the change. The rest match
#: nothing.
_PARTS = {
    "a": {"ab": 400, "ac": 250, "abc": 50},
    "b": {"ab": 450, "bc": 500, "abc": 50},
    "c": {"ac": 450, "bc": 500, "abc": 50},
}
_WHOLE = 1000
#: Size of a domain's key range. Keys that match nothing lie above all domains.
_DOMAIN_SIZE = 1 << 40


@dataclass(frozen=True)
class Drift:
    """Three streams with windows of `window_batches`: a has `rows` rows a batch, b and c fewer."""

    rows: int
    #: The first batch in which a and b match more often.
    change: int
    window_batches: int = 4
    #: About how many rows of b, and of c, a row of a finds in a window after the change.
    partners: float = 20.0
    #: Rows of c that a row of b finds, as a fraction of `partners`.
    slow_partners: float = 0.3
    #: Rows of a for each row of b and of c.
    slower: int = 10
    advance_ms: int = 1000

    def __post_init__(self) -> None:
        if self.rows < self.slower or self.change < 0 or min(self.keys) < 1:
            raise SettingsError(
                f"{self.rows} rows a batch are too few for {self.partners} partners",
                hint="use more rows, or fewer partners",
            )

    @property
    def keys(self) -> tuple[int, ...]:
        """How many keys each domain has."""
        slow = self.rows // self.slower * self.window_batches

        def pair(one: str, other: str, partners: float) -> int:
            share = _PARTS[one][one + other] * _PARTS[other][one + other] / _WHOLE**2
            return int(share * slow / partners)

        # In the domain of all three, a row finds one row of b and one of c.
        return (
            pair("a", "b", self.partners),
            pair("a", "c", self.partners),
            pair("b", "c", self.partners * self.slow_partners),
            int(slow * _PARTS["b"]["abc"] / _WHOLE),
        )

    def rate(self, name: str) -> Rate:
        """The source of a stream."""
        rows = self.rows if name == "a" else self.rows // self.slower
        return Rate(rows, advance_ms=self.advance_ms)

    def stream(self, spark: SparkSession) -> dict[str, DataFrame]:
        """All streams, by name."""
        return {name: self._keyed(self.rate(name).stream(spark), name) for name in NAMES}

    def batch(self, spark: SparkSession, first: int, last: int) -> dict[str, DataFrame]:
        """The rows of batches `first` to `last`, inclusive."""
        return {
            name: self._keyed(self.rate(name).batch(spark, first, last), name) for name in NAMES
        }

    def _keyed(self, rows: DataFrame, name: str) -> DataFrame:
        value, place, rate = F.col("value"), F.lit(NAMES.index(name)), self.rate(name)
        drawn = F.pmod(F.xxhash64(value, place), F.lit(_WHOLE))
        chance = F.xxhash64(value, place + F.lit(len(NAMES)))
        # Most of a's rows in the domain shared with b draw from it only after the change.
        early = rate.batch_of(value) < F.lit(self.change)
        # No other stream has these keys.
        nothing = F.lit(_DOMAIN_SIZE * (len(DOMAINS) + NAMES.index(name))) + F.pmod(
            chance, F.lit(_DOMAIN_SIZE)
        )
        key: Column = nothing
        begin = 0
        for at, (domain, keys) in enumerate(zip(DOMAINS, self.keys, strict=True)):
            part = _PARTS[name].get(domain, 0)
            here = (drawn >= begin) & (drawn < begin + part)
            if (name, domain) == ("a", "ab"):
                here &= ~early | (drawn < begin + part // FACTOR)
            own = F.lit(at * _DOMAIN_SIZE) + F.pmod(chance, F.lit(keys))
            key = F.when(here, own).otherwise(key)
            begin += part
        # A batch spreads its rows evenly over its event time; none is late.
        within_ms = F.floor(F.pmod(value, F.lit(rate.rows)) * self.advance_ms / rate.rows)
        time_ms = F.unix_millis(F.col("timestamp")) + within_ms.cast("bigint")
        return rows.select(
            key.alias("k"), value.alias("v"), F.timestamp_millis(time_ms).alias("ts")
        )
