"""Two streams of images with a number each, made in Spark: the input of the PSP benchmark.

    id bigint, x double, image binary, ts timestamp

An image repeats a hash of its scene's number; bytes of different scenes differ by 85 on average. The
numbers x are uniform in [0, 1), so a band's width sets its fraction of pairs.
spillway_lab/workloads/images.py has noisy images of all sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway_lab.workloads.rate import Rate

NAMES = ("a", "b")
#: Hexadecimal digits of the hash that an image repeats.
_DIGITS = 128


@dataclass(frozen=True)
class Scenes:
    """Two streams of `rows` rows a batch, with images of `pixels` RGB pixels; 0: without images."""

    rows: int
    pixels: int = 0
    scenes: int = 20
    advance_ms: int = 1000

    @property
    def rate(self) -> Rate:
        """The source of both streams."""
        return Rate(self.rows, advance_ms=self.advance_ms)

    def stream(self, spark: SparkSession) -> dict[str, DataFrame]:
        """Both streams, by name."""
        return {name: self._shown(self.rate.stream(spark), name) for name in NAMES}

    def batch(self, spark: SparkSession, first: int, last: int) -> dict[str, DataFrame]:
        """The rows of batches `first` to `last`, inclusive."""
        return {name: self._shown(self.rate.batch(spark, first, last), name) for name in NAMES}

    def _shown(self, rows: DataFrame, name: str) -> DataFrame:
        value, place = F.col("value"), F.lit(NAMES.index(name))
        chance = F.xxhash64(value, place)
        scene = F.pmod(chance, F.lit(self.scenes))
        within_ms = F.floor(F.pmod(value, F.lit(self.rows)) * self.advance_ms / self.rows)
        time_ms = F.unix_millis(F.col("timestamp")) + within_ms.cast("bigint")
        columns: list[Column] = [
            value.alias("id"),
            (F.pmod(F.xxhash64(value, place + F.lit(2)), F.lit(1 << 30)) / F.lit(1 << 30)).alias(
                "x"
            ),
        ]
        if self.pixels:
            digits = F.repeat(F.sha2(scene.cast("string"), 512), -(-6 * self.pixels // _DIGITS))
            columns.append(F.unhex(F.substring(digits, 1, 6 * self.pixels)).alias("image"))
        return rows.select(*columns, F.timestamp_millis(time_ms).alias("ts"))
