"""A pool finds and gathers rows of many segments as if they were one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.operators.lookup import candidates
from spillway.operators.pool import Pool, Refs
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import HASH_COLUMN, RunData
from tier import examples

HASHES = st.lists(st.sampled_from([*range(40), 2**31, 2**32 - 1]), max_size=12).map(
    lambda some: np.array(sorted(some), np.uint32)
)
KINDS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int32(): st.integers(-3, 3),
    pa.int16(): st.integers(-3, 3),
    pa.int8(): st.integers(-3, 3),
    pa.float64(): st.floats(allow_nan=False).filter(lambda x: x != 0),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.integers(0, 5),
    pa.decimal128(20, 3): st.decimals(-9999, 9999, places=3),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.large_string(): st.text(max_size=2),
    pa.list_(pa.int32()): st.lists(st.integers(0, 3), max_size=2),
    pa.struct({"x": pa.int32()}): st.fixed_dictionaries({"x": st.integers(0, 2)}),
}


def run(h: np.ndarray, *columns: pa.Array) -> RunData:
    names = [HASH_COLUMN, *(f"c{at}" for at in range(len(columns)))]
    return RunData(pa.RecordBatch.from_arrays([pa.array(h), *columns], names=names))


def cut(data: RunData, parts: int) -> list[Segment]:
    edges = np.linspace(0, data.rows, parts + 1).astype(int).tolist()
    return [Segment(data, a, b) for a, b in pairwise(edges)]


@given(st.lists(HASHES, max_size=4), HASHES, st.integers(1, 4))
def test_no_segment_that_has_a_hash_of_a_block_is_left_out(layers, probe, parts) -> None:
    segments = [segment for h in layers for segment in cut(run(h), parts)]
    near = Pool(segments).near(probe)
    assert near == sorted(set(near))
    for number, segment in enumerate(segments):
        if len(candidates(probe, segment)[0]):
            assert number in near


def test_a_block_of_few_hashes_looks_at_few_of_the_slices_of_a_run() -> None:
    pool = Pool(cut(run(np.arange(1000, dtype=np.uint32)), 100))
    assert pool.near(np.array([205, 209], np.uint32)) == [20]
    assert pool.near(np.array([209, 211], np.uint32)) == [20, 21]
    assert pool.near(np.array([], np.uint32)) == []


@settings(max_examples=examples(300))
@given(st.lists(HASHES, max_size=6), HASHES, st.integers(1, 4))
def test_a_pool_finds_what_every_segment_has(layers, probe, parts) -> None:
    segments = [segment for h in layers for segment in cut(run(h), parts)]
    found = [
        one
        for ranges in Pool(segments).ranges(probe)
        for one in zip(*(column.tolist() for column in ranges), strict=True)
    ]
    expected = [
        (which, number, start, count)
        for number, segment in enumerate(segments)
        for which, start, count in zip(
            *(x.tolist() for x in candidates(probe, segment)), strict=True
        )
    ]
    assert found == expected


def values(data: st.DataObject, kind: pa.DataType, nulls: bool) -> pa.Array:
    one = st.one_of(st.none(), KINDS[kind]) if nulls else KINDS[kind]
    drawn = data.draw(st.lists(one, min_size=1, max_size=9))
    shift = data.draw(st.integers(0, min(2, len(drawn) - 1)))
    return pa.array(drawn, kind).slice(shift)


@settings(max_examples=examples(200))
@given(st.data(), st.booleans())
def test_gathered_and_compared_rows_are_those_of_their_segments(data, nulls) -> None:
    kind = data.draw(st.sampled_from(list(KINDS)))
    columns = [values(data, kind, nulls) for _ in range(data.draw(st.integers(1, 4)))]
    runs = [run(np.arange(len(column), dtype=np.uint32), column) for column in columns]
    empty = RunData(pa.RecordBatch.from_arrays([pa.array([], pa.uint32())], names=[HASH_COLUMN]))
    pool = Pool([Segment(empty, 0, 0), *(Segment(one, 0, one.rows) for one in runs)])
    places = [(at + 1, row) for at, column in enumerate(columns) for row in range(len(column))]
    chosen = data.draw(st.lists(st.sampled_from(places), max_size=12))
    refs = Refs(*np.array(chosen, np.int32).reshape(-1, 2).T)
    [gathered] = pool.gather(refs, [0])
    assert gathered.type == kind
    gathered.validate(full=True)
    wanted = [columns[at - 1][row].as_py() for at, row in chosen]
    assert gathered.to_pylist() == wanted

    if pa.types.is_nested(kind):
        return
    mine = values(data, kind, nulls)
    rows = data.draw(
        st.lists(st.integers(0, len(mine) - 1), min_size=len(chosen), max_size=len(chosen))
    )
    same = pool.equal(mine, np.array(rows, np.int32), 0, refs)
    assert same.tolist() == [
        mine[row].as_py() == other and other is not None
        for row, other in zip(rows, wanted, strict=True)
    ]


def test_segments_whose_strings_have_other_offsets_are_gathered_too() -> None:
    h = np.arange(2, dtype=np.uint32)
    runs = [run(h, pa.array(["a", "bb"], kind)) for kind in (pa.string(), pa.large_string())]
    pool = Pool([Segment(one, 0, 2) for one in runs])
    refs = Refs(np.array([1, 0, 1], np.int32), np.array([1, 0, 0], np.int32))
    [gathered] = pool.gather(refs, [0])
    assert gathered.to_pylist() == ["bb", "a", "a"]
    same = pool.equal(pa.array(["bb", "x"]), np.array([0, 0, 1], np.int32), 0, refs)
    assert same.tolist() == [True, False, False]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_no_rows_of_no_segments_are_gathered(kind) -> None:
    pool = Pool([Segment(run(np.arange(1, dtype=np.uint32), pa.array([None], kind)), 0, 1)])
    none = np.empty(0, np.int32)
    assert pool.gather(Refs(none, none), [0])[0].to_pylist() == []
    assert list(Pool([]).ranges(np.array([1], np.uint32))) == []
