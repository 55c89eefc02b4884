"""Grouping and reducing against plain Python twins."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.kernels import reduce
from spillway.kernels.grouping import Grouping, by_group, grouped
from spillway.kernels.ranking import NULL_KEY, sort_keys

KEYS = st.lists(st.one_of(st.none(), st.integers(0, 6)), max_size=60)
FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(KEYS, st.integers(1, 4))
def test_groups_are_the_rows_of_equal_keys_in_the_order_of_their_hashes(keys, per_hash) -> None:
    keys.sort(key=lambda key: -1 if key is None else key // per_hash)
    h = np.array([0 if key is None else key // per_hash for key in keys], np.uint32)
    groups = grouped(h, [pa.array(keys, pa.int64()), pa.array(map(str, keys), pa.string())])
    found = [
        groups.order[a:b].tolist()
        for a, b in zip(groups.starts[:-1], groups.starts[1:], strict=True)
    ]
    twin = defaultdict(list)
    for at, key in enumerate(keys):
        twin[key].append(at)
    assert sorted(found) == sorted(twin.values())
    assert groups.alone == (len(set(keys)) == len(keys))
    assert (np.diff(h[groups.order].astype(np.int64)) >= 0).all()


@given(KEYS, st.integers(1, 4))
def test_groups_of_rows_that_are_not_sorted_keep_the_order_they_are_given(keys, per_hash) -> None:
    h = np.array([0 if key is None else key // per_hash for key in keys], np.uint32)
    order = np.argsort(h, kind="stable").astype(np.int32)
    groups = grouped(h, [pa.array(keys, pa.int64())], order)
    twin = defaultdict(list)
    for at in order.tolist():
        twin[keys[at]].append(at)
    found = [groups.order[a:b].tolist() for a, b in itertools.pairwise(groups.starts)]
    assert sorted(found) == sorted(twin.values())
    assert (np.diff(h[groups.order].astype(np.int64)) >= 0).all()


@given(st.lists(st.integers(0, 5), max_size=40))
def test_rows_by_number_keep_their_order(numbers) -> None:
    groups = by_group(np.array(numbers, np.int32), 6)
    assert groups.order.tolist() == sorted(range(len(numbers)), key=lambda i: numbers[i])
    assert np.diff(groups.starts).tolist() == [numbers.count(g) for g in range(6)]


def parts(values: list, size: int = 3) -> tuple[Grouping, list[list]]:
    """Values in groups of some size, turned around."""
    order = np.arange(len(values), dtype=np.int32)[::-1].copy()
    starts = np.append(np.arange(0, len(values), size), len(values)).astype(np.int64)
    groups = Grouping(order, starts)
    return groups, [[values[i] for i in order[a:b]] for a, b in itertools.pairwise(starts)]


def arrays(values: list, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    valid = np.array([v is not None for v in values], np.bool_)
    filled = np.array([0 if v is None else v for v in values], dtype)
    return filled, valid if not valid.all() else np.zeros(0, np.bool_)


def present(group: list) -> list:
    return [value for value in group if value is not None]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**61), 2**61)), max_size=20))
def test_sums_and_counts_leave_nulls_out(values) -> None:
    groups, twin = parts(values)
    ints, valid = arrays(values, np.int64)
    sums, over = reduce.sum_ints(ints, valid, groups.order, groups.starts)
    assert (over, sums.tolist()) == (-1, [sum(present(g)) for g in twin])
    floats = reduce.sum_floats(ints.astype(float), valid, groups.order, groups.starts)
    assert floats.tolist() == pytest.approx([float(sum(present(g))) for g in twin], rel=1e-9)
    given_valid = np.array([v is not None for v in values], np.bool_)
    counts = reduce.count_valid(given_valid, groups.order, groups.starts)
    assert counts.tolist() == [len(present(g)) for g in twin]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12))
def test_sum_that_leaves_64_bits_on_the_way_is_found(values) -> None:
    groups, twin = parts(values)
    _, over = reduce.sum_ints(*arrays(values, np.int64), groups.order, groups.starts)

    def leaves(group: list) -> bool:
        return any(not -(2**63) <= sum(group[:n]) < 2**63 for n in range(len(group) + 1))

    assert over == next((at for at, group in enumerate(twin) if leaves(group)), -1)


@given(st.lists(st.integers(-(10**36), 10**36), max_size=12))
def test_wide_sums_are_exact(values) -> None:
    groups, twin = parts(values)
    words = np.frombuffer(b"".join(v.to_bytes(16, "little", signed=True) for v in values), np.int64)
    sums, over = reduce.sum_wide(words, np.zeros(0, np.bool_), groups.order, groups.starts)
    raw = sums.tobytes()
    found = [
        int.from_bytes(raw[at : at + 16], "little", signed=True) for at in range(0, len(raw), 16)
    ]
    assert (over, found) == (-1, [sum(g) for g in twin])


@given(st.lists(st.one_of(st.none(), FLOATS), max_size=20))
def test_least_value_is_sqls_with_nan_above_all_numbers(values) -> None:
    groups, twin = parts(values)
    keys = sort_keys(pa.array(values, pa.float64()))
    valid = np.array([v is not None for v in values], np.bool_)
    for sign, pick in ((keys, min), (~keys, max)):
        at = reduce.least(sign, valid, groups.order, groups.starts)
        for row, group in zip(at.tolist(), twin, strict=True):
            want = pick(present(group), key=sql_key, default=None)
            got = None if row < 0 else values[row]
            assert (got is None) == (want is None)
            assert got is None or sql_key(got) == sql_key(want)


def sql_key(value: float) -> tuple:
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["b", "", None, "ab", "b"]),
        (pa.binary(), [b"\xff", b"a", None, b""]),
        (pa.decimal128(20, 2), [Decimal("1.20"), Decimal("-3.00"), None, Decimal("10.00")]),
        (pa.bool_(), [True, None, False]),
        (pa.date32(), [5, None, -3]),
        (pa.timestamp("us"), [5, None, -3]),
        (pa.int8(), [5, None, -3]),
    ],
    ids=str,
)
def test_keys_compare_as_the_values_do_and_null_comes_first(kind, values) -> None:
    keys = sort_keys(pa.array(values, kind)).tolist()
    order = sorted(
        range(len(values)), key=lambda i: (values[i] is not None, values[i] or type(values[i])())
    )
    assert [values[i] for i in sorted(range(len(values)), key=lambda i: keys[i])] == [
        values[i] for i in order
    ]


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=20))
def test_first_of_three_keys_is_the_least_tuple(rows) -> None:
    groups, twin = parts(rows)
    a, b, c = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    at = reduce.first_of_three(a, b, c, groups.order, groups.starts)
    assert [rows[i] for i in at] == [min(g) for g in twin]


@given(st.lists(st.one_of(st.none(), st.integers(-1000, 1000)), max_size=24), st.integers(1, 5))
def test_moments_of_parts_are_those_of_the_whole(values, size) -> None:
    groups, _ = parts(values, size)
    shifted = [None if v is None else v + 1e8 for v in values]
    floats, valid = arrays(shifted, np.float64)
    found = reduce.moments(floats, valid, groups.order, groups.starts)
    whole = by_group(np.zeros(len(groups), np.int32), 1)
    count, mean, m2 = reduce.combine_moments(*found, whole.order, whole.starts)
    x = [Fraction(v) for v in shifted if v is not None]
    assert count[0] == len(x)
    if x:
        center = sum(x) / len(x)
        assert mean[0] == pytest.approx(float(center), rel=1e-12)
        assert m2[0] == pytest.approx(float(sum((v - center) ** 2 for v in x)), rel=1e-6, abs=1e-3)


def test_column_without_a_type_has_the_key_of_null() -> None:
    assert set(sort_keys(pa.nulls(3)).tolist()) == {NULL_KEY}
