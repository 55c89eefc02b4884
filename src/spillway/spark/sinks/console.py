"""The console sink: prints each batch to standard output, in the form of Spark's console sink."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spillway.errors import SettingsError
from spillway.spark.sinks.spec import SinkBatch, SinkSpec

_RULE = "-" * 43


class ConsoleSink:
    """Prints a header with the batch id, then the first rows.

    Options: `numRows` (20), and `truncate`: true (cells of 20 characters), false, or a width.
    """

    def __init__(self, spec: SinkSpec) -> None:
        self._rows = _count("numRows", spec.option("numRows") or "20")
        self._truncate = _truncation(spec.option("truncate") or "true")

    def open(self, schema: StructType) -> None:
        """Does nothing: any schema works."""

    def write(self, batch: SinkBatch) -> None:
        """Prints the batch. `show` alone would read only its first partitions."""
        print(f"{_RULE}\nBatch: {batch.number}\n{_RULE}", flush=True)
        first = batch.rows.where(_number_in_partition() <= self._rows).cache()
        try:
            first.count()
            first.show(self._rows, self._truncate)
        finally:
            first.unpersist()


def _number_in_partition() -> Column:
    """The number of a row in its partition, from 0: the lower 33 bits of Spark's increasing id."""
    return F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))


def _truncation(text: str) -> bool | int:
    spoken = {"true": True, "false": False}.get(text.strip().lower())
    return _count("truncate", text) if spoken is None else spoken


def _count(option: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise SettingsError(
            f"option {option} of the console sink must be a whole number, not {text!r}",
            hint=f'for example .option("{option}", 50)',
        )
    return int(text)
