"""What a slot counts of its input."""

from __future__ import annotations

import pyarrow as pa

from spillway.metrics.record import SlotRecord
from spillway.slot.meter import Tally


def batch(*values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["x"])


def test_widest_batch_of_the_input_is_measured() -> None:
    tally = Tally.none(1)
    given = [batch("ab", "cd"), batch(), batch("x" * 1000, "y" * 1000), batch("z")]
    assert list(tally.receive(given)) == given
    record = SlotRecord(0, 0, "m", (0,), (0,), 0, (None,), (0,), (0,), (0,), "w")
    assert 1000 <= tally.in_record(record).input_row_bytes < 1020
    assert Tally.none(1).in_record(record).input_row_bytes == 0
