"""Rows with a NULL key or time: counted by stream, and never equal to anything."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spillway.kernels.equality import equal_pairs, same_keys
from spillway.operators.input import (
    MARKER,
    StreamColumns,
    null_number,
    null_rows,
    without_nulls,
)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16()])
def test_rows_with_a_null_are_counted_by_stream_and_taken_out(kind: pa.DataType) -> None:
    def batch(*streams: int) -> pa.RecordBatch:
        return pa.record_batch({"_stream": pa.array(streams, kind), "lane0": range(len(streams))})

    given = [
        batch(0, null_number(0), 1, null_number(2)),
        batch(null_number(2)),
        batch(1, 2),
        batch(MARKER),
    ]
    kept, counts = without_nulls(given, 3)
    assert counts.tolist() == [1, 0, 2]
    assert [one.column(0).to_pylist() for one in kept] == [[0, 1], [1, 2], [MARKER]]
    assert kept[0].column(1).to_pylist() == [0, 2]


def test_rows_that_match_nothing_come_with_their_values_unless_they_are_late() -> None:
    columns = StreamColumns("b", ("t", "v"), (0, 1), (1,), 0, 10, read=(1, 0))
    rows = [(0, 5, 0), (-3, 4, 1), (-3, 5, 2), (-3, None, 3), (-2, 9, 4), (-3, 6, None)]
    given = pa.RecordBatch.from_arrays(
        [
            pa.array([row[0] for row in rows], pa.int16()),
            pa.array([7] * len(rows), pa.int32()),
            pa.array([row[1] for row in rows], pa.timestamp("us")),
            pa.array([row[2] for row in rows]),
        ],
        names=["_stream", "_h", "lane0", "lane1"],
    )
    [found] = null_rows([given, given.slice(0, 1)], 1, columns, 5)
    assert found.column(0).to_pylist() == [2, 3, None]
    assert [t and t.microsecond for t in found.column(1).to_pylist()] == [5, None, 6]
    [everything] = null_rows([given], 1, columns, None)
    assert everything.num_rows == 4


ROWS = {
    "words": pa.array([7, None, None, 0], pa.int64()),
    "decimals": pa.array([7, None, None, 0], pa.int64()).cast(pa.decimal128(20, 0)),
    "bytes": pa.array(["x", None, None, ""]),
    "booleans": pa.array([True, None, None, False]),
}


@pytest.mark.parametrize("column", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("begin", [0, 1])
def test_null_key_equals_nothing_unless_null_is_a_value(column: pa.Array, begin: int) -> None:
    some = column.slice(begin)
    mine, theirs = (at.ravel().astype(np.int32) for at in np.meshgrid(*[range(len(some))] * 2))
    values = some.to_pylist()
    pairs = [(values[one], values[other]) for one, other in zip(mine, theirs, strict=True)]
    equal = equal_pairs(some, mine, some, theirs)
    assert equal.tolist() == [one is not None and one == other for one, other in pairs]
    same = same_keys([some], mine, [some], theirs)
    assert same.tolist() == [one == other for one, other in pairs]
