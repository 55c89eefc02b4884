"""Bytes of ranges of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spillway.rows.size import bytes_between

BATCH = pa.record_batch(
    {
        "number": pa.array([None if at % 3 == 0 else at for at in range(40)]),
        "flag": pa.array([at % 2 == 0 for at in range(40)]),
        "text": pa.array([None if at % 5 == 0 else "x" * at for at in range(40)]),
        "list": pa.array([list(range(at % 4)) for at in range(40)]),
    }
)


@given(st.lists(st.integers(0, 40), min_size=2).map(sorted))
def test_neighbouring_ranges_have_the_bytes_of_the_whole(bounds: list[int]) -> None:
    cut = np.array(bounds, np.int64)
    assert bytes_between(BATCH, cut).sum() == bytes_between(BATCH, cut[[0, -1]])[0]
