"""Arrow batches are bounded in bytes wherever their number of rows is not bound enough."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spillway.metrics.record import SlotRecord
from spillway.spark.runtime.exchange.arrow import (
    FIXED_ROWS,
    KEPT_WIDTHS,
    VARIED_ROWS,
    ArrowBatches,
    fixed_width,
)

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


class _Session:
    """Only what is asked of a session: its settings."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.conf: Any = self

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value

    def unset(self, key: str) -> None:
        self.settings.pop(key, None)


def _record(width: int, *, state: int = 0) -> SlotRecord:
    """A record of rows of this width; `state` is the width of the rows that the slot keeps."""
    size = (1000 * state,)
    return SlotRecord(
        0, 0, "m", (9,), (0,), 0, (None,), (1000,), size, (1,), "w", input_row_bytes=width
    )


@pytest.mark.parametrize("kind", [LongType(), DecimalType(38, 2), DateType(), TimestampType()])
def test_values_of_fixed_width(kind: DataType) -> None:
    assert fixed_width(kind)
    assert fixed_width(StructType([StructField("a", kind), StructField("b", BooleanType())]))


@pytest.mark.parametrize(
    "kind", [StringType(), BinaryType(), ArrayType(LongType()), MapType(LongType(), LongType())]
)
def test_values_of_varied_width(kind: DataType) -> None:
    assert not fixed_width(kind)
    assert not fixed_width(StructType([StructField("a", LongType()), StructField("b", kind)]))


def test_fixed_columns_need_no_bound_on_bytes() -> None:
    session: Any = _Session()
    ArrowBatches([LongType()]).prepare(session)
    assert session.settings == {_ROWS: str(FIXED_ROWS), _BYTES: str(2**31 - 1)}


def test_varied_columns_lose_the_bound_once_rows_are_known_to_be_narrow() -> None:
    session: Any = _Session()
    batches = ArrowBatches([LongType(), StringType()])
    batches.prepare(session)
    assert session.settings == {_ROWS: str(VARIED_ROWS)}
    batches.learn([_record(0)])
    batches.prepare(session)
    assert _BYTES not in session.settings
    batches.learn([_record(60)])
    batches.prepare(session)
    assert session.settings[_BYTES] == str(2**31 - 1)


def test_varied_columns_get_the_bound_back_when_rows_are_wide() -> None:
    session: Any = _Session()
    batches = ArrowBatches([StringType()])
    for width in (60, 100_000):
        batches.learn([_record(width)])
        batches.prepare(session)
    assert _BYTES not in session.settings


def test_width_of_the_state_says_nothing_about_the_input() -> None:
    """A dedup keeps keys and a group-by keeps sums, however wide the rows are."""
    session: Any = _Session()
    batches = ArrowBatches([StringType()])
    batches.learn([_record(131_000, state=28)])
    batches.prepare(session)
    assert _BYTES not in session.settings


def test_widest_batch_of_any_slot_decides_for_a_while() -> None:
    session: Any = _Session()
    batches = ArrowBatches([StringType()])
    batches.learn([_record(60), _record(100_000), _record(0)])
    for _ in range(KEPT_WIDTHS - 1):
        batches.learn([_record(60)])
    batches.prepare(session)
    assert _BYTES not in session.settings
    batches.learn([_record(60)])
    batches.prepare(session)
    assert session.settings[_BYTES] == str(2**31 - 1)
