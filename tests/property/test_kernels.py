"""Each kernel against its plain NumPy twin."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.kernels.checksum import checksum
from spillway.kernels.equality import equal_pairs
from spillway.kernels.order import (
    bucket_index,
    index_shape,
    order_by_hash,
    order_by_stream_and_hash,
)
from spillway.kernels.probe import (
    count_groups,
    expand,
    expand_within,
    match_ranges,
    match_sorted,
    narrowed,
)
from spillway.routing.groups import group_of
from tier import examples

# Few distinct values make ties and dense buckets; the extremes make overflow show.
HASHES = st.lists(
    st.one_of(
        st.integers(0, 7),
        st.integers(0, 2**32 - 1),
        st.sampled_from([0, 2**31 - 1, 2**31, 2**32 - 1]),
    ),
    max_size=300,
)


def as_hashes(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint32)


@given(HASHES)
def test_order_is_the_stable_sort(values: list[int]) -> None:
    h = as_hashes(values)
    assert order_by_hash(h).tolist() == np.argsort(h, kind="stable").tolist()


@given(HASHES, st.integers(1, 5), st.randoms(use_true_random=False))
def test_streams_are_split_and_each_sorted_stably(values, streams, random) -> None:
    h = as_hashes(values)
    stream = np.array([random.randrange(streams) for _ in values], np.int16)
    order, bounds = order_by_stream_and_hash(stream, h, streams)
    expected = np.lexsort((np.arange(len(h)), h, stream))
    assert order.tolist() == expected.tolist()
    assert np.diff(bounds).tolist() == [int((stream == s).sum()) for s in range(streams)]


@given(HASHES, HASHES, st.integers(0, 300), st.integers(0, 300))
def test_match_ranges_are_the_runs_of_equal_hashes(run, probe, a, b) -> None:
    h, x = np.sort(as_hashes(run)), as_hashes(probe + run[:3])
    begin, end = min(a, b, len(h)), min(max(a, b), len(h))
    base, shift = index_shape(h)
    first, present = bucket_index(h, base, shift)
    found = match_ranges(x, h, (first, present, base, shift), begin, end)
    assert np.array(found).T.tolist() == expected_ranges(h, x, begin, end)


@given(HASHES, HASHES, st.integers(0, 300), st.integers(0, 300))
def test_side_by_side_the_same_ranges_are_found(run, probe, a, b) -> None:
    h, x = np.sort(as_hashes(run)), np.sort(as_hashes(probe + run[:3]))
    begin, end = min(a, b, len(h)), min(max(a, b), len(h))
    found = match_sorted(x, h, begin, end)
    assert np.array(found).T.tolist() == expected_ranges(h, x, begin, end)


def expected_ranges(h: np.ndarray, x: np.ndarray, begin: int, end: int) -> list[list[int]]:
    expected = []
    for i, value in enumerate(x):
        lo, hi = np.searchsorted(h, value, "left"), np.searchsorted(h, value, "right")
        lo, hi = max(lo, begin), min(hi, end)
        if lo < hi:
            expected.append([i, int(lo), int(hi - lo)])
    return expected


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 20))
def test_expanding_in_pieces_gives_every_pair_once(counts, limit) -> None:
    which = np.arange(len(counts), dtype=np.int32)
    count = np.array(counts, np.int32)
    start = (np.arange(len(counts)) * 100).astype(np.int32)
    pairs, at, offset = [], 0, 0
    while at < len(counts):
        left, right, at, offset = expand(which, start, count, at, offset, limit)
        assert 0 < len(left) <= limit
        pairs += list(zip(left.tolist(), right.tolist(), strict=True))
    assert pairs == [(i, i * 100 + j) for i, c in enumerate(counts) for j in range(c)]


VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int32(): st.integers(-3, 3),
    pa.int16(): st.integers(-3, 3),
    pa.int8(): st.integers(-3, 3),
    pa.date32(): st.dates(),
    pa.decimal128(20, 3): st.decimals(-9999, 9999, places=3),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.large_string(): st.text(max_size=2),
    pa.bool_(): st.booleans(),
    pa.timestamp("us", "UTC"): st.integers(0, 5),
}


@settings(max_examples=examples(200))
@given(st.data())
def test_equal_pairs_agree_with_python(data) -> None:
    kind = data.draw(st.sampled_from(list(VALUES)))
    one, other = (data.draw(st.lists(VALUES[kind], min_size=1, max_size=20)) for _ in range(2))
    shift = data.draw(st.integers(0, 2))
    a, b = pa.array(one[:1] * shift + one, kind).slice(shift), pa.array(other, kind)
    ia, ib = (
        data.draw(st.lists(st.integers(0, len(x) - 1), min_size=5, max_size=5)) for x in (a, b)
    )
    got = equal_pairs(a, np.array(ia, np.int32), b, np.array(ib, np.int32))
    assert got.tolist() == [a[i].as_py() == b[j].as_py() for i, j in zip(ia, ib, strict=True)]


@given(st.binary(max_size=200), st.data())
def test_checksum_sees_every_changed_byte_and_length(content, data) -> None:
    whole = checksum(content)
    assert whole == checksum(bytearray(content))
    assert checksum(content + b"\0") != whole
    if content:
        at = data.draw(st.integers(0, len(content) - 1))
        flipped = bytearray(content)
        flipped[at] ^= data.draw(st.integers(1, 255))
        assert checksum(flipped) != whole
        assert checksum(content[:-1]) != whole


@given(st.data())
def test_expanded_within_are_the_wanted_pairs(data) -> None:
    rows = data.draw(st.integers(1, 30))
    small = st.integers(0, 9)
    times = np.array(data.draw(st.lists(small, min_size=rows, max_size=rows)), np.int64)
    marks = np.array(data.draw(st.lists(small, min_size=rows, max_size=rows)), np.int32)
    order = np.array(data.draw(st.permutations(range(rows))), np.int32)
    probes = data.draw(st.integers(1, 5))
    first = np.array(data.draw(st.lists(small, min_size=probes, max_size=probes)), np.int64)
    last = first + 3
    ranges = data.draw(st.lists(st.tuples(st.integers(0, probes - 1), st.integers(0, rows - 1))))
    which = np.array([w for w, _ in ranges], np.int64)
    start = np.array([s for _, s in ranges], np.int64)
    count = np.array([data.draw(st.integers(1, rows - s)) for _, s in ranges], np.int64)
    ordered, timed, marked = (data.draw(st.booleans()) for _ in range(3))
    before, limit = data.draw(small), data.draw(st.integers(1, 9))
    cuts = sorted(data.draw(st.sets(st.integers(0, rows), max_size=8)))
    pieces = list(zip(cuts[::2], cuts[1::2], strict=False))
    begins, ends = np.array(pieces, np.int64).reshape(-1, 2).T.copy()
    expected = [
        (w, row)
        for w, s, n in zip(which, start, count, strict=True)
        for row in (order[s : s + n] if ordered else range(s, s + n))
        if (not pieces or any(begin <= row < end for begin, end in pieces))
        and (not timed or first[w] <= times[row] <= last[w])
        and (not marked or marks[row] < before)
    ]
    found, at, offset, looked = [], 0, 0, 0
    while at < len(which):
        left, right, at, offset, seen = expand_within(
            (which, start, count),
            (
                order if ordered else order[:0], begins, ends,
                times if timed else times[:0], first, last,
                marks if marked else marks[:0], before,
            ),
            at, offset, limit,
        )  # fmt: skip
        assert len(left) <= limit
        found += zip(left, right, strict=True)
        looked += seen
    assert found == expected
    assert looked == count.sum()


@given(st.lists(st.integers(0, 9)), st.lists(st.tuples(*[st.integers(0, 9)] * 4)))
def test_narrowed_are_the_values_between(values, ranges) -> None:
    ordered = np.sort(np.array(values, np.float64))
    a, b, first, last = np.array(ranges, np.int64).reshape(-1, 4).T
    begin, end = np.minimum(a, len(ordered)), np.minimum(np.maximum(a, b), len(ordered))
    inner, outer = narrowed(ordered, begin, end, first.astype(float), last.astype(float))
    for at in range(len(a)):
        mine = ordered[begin[at] : end[at]]
        wanted = mine[(mine >= first[at]) & (mine <= last[at])]
        assert ordered[inner[at] : outer[at]].tolist() == wanted.tolist()


@given(HASHES, st.integers(1, 9))
def test_named_rows_are_counted_by_group(values, groups) -> None:
    h, counts = as_hashes(values), np.zeros(groups, np.int64)
    rows = np.arange(len(h), dtype=np.int64)[::2]
    count_groups(h, rows, counts)
    assert counts.tolist() == np.bincount(group_of(h[rows], groups), minlength=groups).tolist()
