"""More than 2 GiB of text in one step: every row comes out.

Queries that reach it, found by reading what bounded each step before:

- a spill, cleanup or move of one group with more than 2 GiB in a column: steps went group by group
- a merge of layers with rows of very different widths: a step took its width from the first layer
- `last(k)` or `within(...)` over rows of 10 kB and more: 262,144 rows were gathered at once
- dedup, or a window, of one key with more than 2 GiB of rows in a batch
- rows that wait for a group in transit, more than 2 GiB of them
- one Arrow batch of Spark with nearly 2 GiB, after others of the same piece
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spillway.rows import bounds
from spillway.rows.cutting import cut_rows
from spillway.rows.joining import is_wide, joined
from spillway.state.runs.merging import merged

VALUE_BYTES = 100_000_000
ROWS = 28


@pytest.fixture(scope="module")
def parts() -> list[pa.RecordBatch]:
    """Runs of one row and one hash; all share the bytes of one text."""
    text = pa.array([b"x" * VALUE_BYTES], pa.binary())
    return [
        pa.RecordBatch.from_arrays(
            [pa.array([7], pa.uint32()), text, pa.array([at])], names=["_h", "c0", "c1"]
        )
        for at in range(ROWS)
    ]


@pytest.mark.full
def test_merge_of_more_than_two_gib_gives_every_row(parts: list[pa.RecordBatch]) -> None:
    found = []
    for piece in merged(parts):
        assert piece.nbytes <= bounds.JOINED_BYTES
        assert not is_wide(piece)
        found += piece.column(2).to_pylist()
    assert found == list(range(ROWS))


@pytest.mark.full
def test_batch_of_more_than_two_gib_is_wide_and_its_last_rows_can_be_cut_out(
    parts: list[pa.RecordBatch],
) -> None:
    whole = joined(parts)
    assert whole.num_rows == ROWS
    assert is_wide(whole)
    found = []
    for piece in cut_rows(whole):
        lengths = np.diff(np.frombuffer(piece.column(1).buffers()[1], np.int32)[:2])
        assert lengths.tolist() == [VALUE_BYTES]
        found += piece.column(2).to_pylist()
    assert found == list(range(ROWS))
