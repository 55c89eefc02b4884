"""Where a block of probing rows looks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spillway.operators.lookup import Spans, candidates
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import HASH_COLUMN, RunData

HASHES = st.lists(st.integers(0, 40), max_size=12).map(
    lambda some: np.array(sorted(some), np.uint32)
)


def run(h: np.ndarray) -> RunData:
    return RunData(pa.RecordBatch.from_arrays([pa.array(h)], names=[HASH_COLUMN]), None)


@given(st.lists(HASHES, max_size=4), HASHES, st.integers(1, 4))
def test_no_segment_that_has_a_hash_of_a_block_is_left_out(layers, probe, parts) -> None:
    segments = []
    for h in layers:
        edges = np.linspace(0, len(h), parts + 1).astype(int).tolist()
        data = run(h)
        segments += [Segment(data, a, b) for a, b in pairwise(edges)]
    near = Spans(segments).near(probe)
    assert near == sorted(set(near))
    for number, segment in enumerate(segments):
        if len(candidates(probe, segment)[0]):
            assert number in near


def test_a_block_of_few_hashes_looks_at_few_of_the_slices_of_a_run() -> None:
    data = run(np.arange(1000, dtype=np.uint32))
    spans = Spans([Segment(data, at, at + 10) for at in range(0, 1000, 10)])
    assert spans.near(np.array([205, 209], np.uint32)) == [20]
    assert spans.near(np.array([209, 211], np.uint32)) == [20, 21]
    assert spans.near(np.array([], np.uint32)) == []
