"""Quantile sketches: exact while few, close when many, however they were put together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.kernels.grouping import by_group
from spillway.kernels.sketch import K, sketch_quantile
from spillway.operators.grouping.partials import GatheredRows
from spillway.operators.grouping.sketches import Sketch, sketch_arrays

SKETCH = Sketch(0)


def sketches(values: np.ndarray, parts: int) -> list[pa.Array]:
    """The values in parts, a sketch of each."""
    rows = GatheredRows(
        pa.RecordBatch.from_arrays([pa.array(values)], ["x"]), np.zeros(0, np.int32)
    )
    number = (np.arange(len(values)) * parts // max(len(values), 1)).astype(np.int32)
    return SKETCH.of_rows(rows, by_group(number, parts))


def put_together(columns: list[pa.Array], how: str) -> list[pa.Array]:
    """Many sketches as one: all at once, two by two, or one after the other."""
    while len(columns[0]) > 1:
        n = len(columns[0])
        number = {
            "at once": np.zeros(n),
            "two by two": np.arange(n) // 2,
            "one by one": np.maximum(np.arange(n) - 1, 0),
        }[how].astype(np.int32)
        columns = SKETCH.combined(columns, by_group(number, int(number[-1]) + 1))
    return columns


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.integers(1, 5), st.floats(0, 1))
def test_few_values_give_exact_quantiles(values, parts, fraction) -> None:
    whole = put_together(sketches(np.array(values), parts), "two by two")
    [found] = sketch_quantile(*sketch_arrays(whole), fraction)
    assert found == sorted(values)[max(1, int(np.ceil(fraction * len(values)))) - 1]


@pytest.mark.parametrize("how", ["at once", "two by two", "one by one"])
@pytest.mark.parametrize("shape", ["sorted", "falling", "random", "sawtooth"])
def test_many_values_give_close_quantiles_however_they_were_put_together(how, shape) -> None:
    n = 50_000
    ranks = np.arange(n, dtype=np.float64)
    values = {
        "sorted": ranks,
        "falling": ranks[::-1].copy(),
        "random": np.random.default_rng(3).permutation(ranks),
        "sawtooth": ranks.reshape(100, -1).T.ravel().copy(),
    }[shape]
    whole = put_together(sketches(values, 200), how)
    assert whole[0].to_pylist() == [n]
    assert len(whole[1].values) <= 4 * K
    for fraction in (0.01, 0.1, 0.25, 0.5, 0.9, 0.99):
        [found] = sketch_quantile(*sketch_arrays(whole), fraction)
        assert abs(found - fraction * n) < 0.017 * n


def test_nulls_are_left_out_and_no_values_give_none() -> None:
    rows = GatheredRows(
        pa.RecordBatch.from_arrays([pa.array([None, 3, None, 1], pa.int64())], ["x"]),
        np.zeros(0, np.int32),
    )
    columns = SKETCH.of_rows(rows, by_group(np.array([0, 1, 0, 1], np.int32), 2))
    assert columns[0].to_pylist() == [0, 2]
    found = sketch_quantile(*sketch_arrays(columns), 1.0)
    assert np.isnan(found[0])
    assert found[1] == 3.0
