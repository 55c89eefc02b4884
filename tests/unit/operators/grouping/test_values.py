"""Partials that keep values: however rows are split, their parts give what the whole gives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import PlanError, QueryError
from spillway.kernels.grouping import Grouping, by_group
from spillway.operators.grouping import values
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.folds import Fold, FoldAggregate
from spillway.operators.grouping.partials import GatheredRows

KEYS, ROWS = 7, 400
INT = pa.int64()


def drawn(seed: int) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    """Rows with a key, a value, a text and an order; and the batch of each."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 40, ROWS)
    columns = [
        pa.array(numbers, mask=rng.random(ROWS) < 0.2),
        pa.array([f"text {one}" for one in numbers]),
        pa.array(rng.integers(0, 30, ROWS), mask=rng.random(ROWS) < 0.2),
    ]
    names = ["x", "t", "o"]
    batches = np.sort(rng.integers(0, 5, ROWS)).astype(np.int32)
    return pa.RecordBatch.from_arrays(columns, names), rng.integers(0, KEYS, ROWS), batches


def grouped(keys: np.ndarray) -> Grouping:
    return by_group(keys.astype(np.int32), KEYS)


def in_parts(one: Aggregate | FoldAggregate, seed: int, parts: int) -> list[Any]:
    """The results of all keys, from parts that are combined in two steps."""
    rows, keys, batches = drawn(seed)
    part = np.random.default_rng(seed + 1).integers(0, parts, ROWS)
    found = []
    for number in range(parts):
        at = np.flatnonzero(part == number)
        some = GatheredRows(rows.take(pa.array(at)), batches[at])
        found.append([p.of_rows(some, grouped(keys[at])) for p in one.partials()])
    whole = found[0]
    for more in found[1:]:
        both = Grouping(
            np.arange(2 * KEYS, dtype=np.int32).reshape(2, KEYS).T.ravel().copy(),
            np.arange(0, 2 * KEYS + 1, 2),
        )
        whole = [
            p.combined([pa.concat_arrays(c) for c in zip(*columns, strict=True)], both)
            for p, columns in zip(one.partials(), zip(whole, more, strict=True), strict=True)
        ]
    return one.result(whole).to_pylist()


def by_key(seed: int) -> list[list[tuple[Any, ...]]]:
    """For each key, its rows: batch, value, text, order."""
    rows, keys, batches = drawn(seed)
    held: list[list[tuple[Any, ...]]] = [[] for _ in range(KEYS)]
    for key, batch, row in zip(keys.tolist(), batches.tolist(), rows.to_pylist(), strict=True):
        held[key].append((batch, row["x"], row["t"], row["o"]))
    return held


def distinct(rows: list[tuple[Any, ...]]) -> list[int]:
    return sorted({x for _, x, _, _ in rows if x is not None})


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_parts_give_what_the_whole_gives(seed: int, parts: int) -> None:
    wanted = by_key(seed)

    def found(function: str, column: int, **how: Any) -> list[Any]:
        kind = pa.string() if column == 1 else INT
        return in_parts(Aggregate("a", function, column, kind, **how), seed, parts)

    assert found("count_distinct", 0) == [len(distinct(rows)) for rows in wanted]
    assert found("collect_set", 0, limit=5) == [distinct(rows)[:5] for rows in wanted]
    assert found("collect_set", 1, limit=99) == [sorted({r[2] for r in rows}) for rows in wanted]
    assert found("approx_count_distinct", 0, limit=99) == [len(distinct(rows)) for rows in wanted]
    assert found("collect_list", 0, limit=9) == [
        [x for _, x in sorted((b, x) for b, x, _, _ in rows if x is not None)][:9]
        for rows in wanted
    ]
    ordered = [[(o, t) for _, _, t, o in rows if o is not None] for rows in wanted]
    assert found("min_by", 1, order=2) == [min(rows)[1] for rows in ordered]
    assert found("max_by", 1, order=2) == [
        min(t for o, t in rows if o == max(rows)[0]) for rows in ordered
    ]


def squares() -> FoldAggregate:
    def make(columns: Any, offsets: np.ndarray) -> dict[str, Any]:
        values = columns["x"].fill_null(0).to_numpy().astype(float) ** 2
        # An empty group has nothing to add up.
        return {"s": np.append(values, 0.0).cumsum()[offsets[1:] - 1] - before(values, offsets)}

    def before(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return np.append(0.0, values.cumsum())[offsets[:-1]]

    def merge(partials: Any, offsets: np.ndarray) -> dict[str, Any]:
        return {"s": np.add.reduceat(partials["s"].to_numpy(), offsets[:-1])}

    fold = Fold("a", make, merge, (("x", 0),), (("s", pa.float64()),))
    return FoldAggregate("a", fold, lambda partials: partials["s"], pa.float64())


def test_fold_of_a_user_merges_its_parts() -> None:
    wanted = [sum(float(x or 0) ** 2 for _, x, _, _ in rows) for rows in by_key(3)]
    assert in_parts(squares(), 3, 4) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("made", "detail"),
    [
        ({"other": [1.0]}, "it must return s, not other"),
        ({"s": [1.0, 2.0]}, "it got 1 groups and returned 2 values"),
        ({"s": ["a"]}, "Could not convert 'a'"),
    ],
)
def test_fold_that_returns_something_else_is_refused(made: dict[str, Any], detail: str) -> None:
    fold = Fold("a", lambda *_: made, lambda *_: made, (("x", 0),), (("s", pa.float64()),))
    rows = GatheredRows(pa.RecordBatch.from_arrays([pa.array([1])], ["x"]), np.zeros(1, np.int32))
    with pytest.raises(QueryError, match="the function make of aggregate a") as refused:
        fold.of_rows(rows, by_group(np.zeros(1, np.int32), 1))
    assert detail in str(refused.value.detail)


def test_key_with_too_many_bytes_of_values_stops_the_query(monkeypatch) -> None:
    monkeypatch.setattr(values, "MOST_BYTES", 100)
    column = pa.array([f"a long text, number {at}" for at in range(9)])
    rows = GatheredRows(pa.RecordBatch.from_arrays([column], ["x"]), np.zeros(9, np.int32))
    [partial] = Aggregate("users", "count_distinct", 0, pa.string()).partials()
    with pytest.raises(QueryError, match="the values of aggregate users need 225 bytes") as stopped:
        partial.of_rows(rows, by_group(np.zeros(9, np.int32), 1))
    assert "approx_count_distinct" in str(stopped.value.hint)


@pytest.mark.parametrize("many", [1000, 100_000])
def test_estimate_is_near_the_number_of_hashes(many: int) -> None:
    hashes = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, many)
    rows = GatheredRows(pa.RecordBatch.from_arrays([pa.array(hashes)], ["x"]), np.zeros(many))
    one = Aggregate("a", "approx_count_distinct", 0, INT, limit=2502)
    [found] = one.result(
        [p.of_rows(rows, by_group(np.zeros(many, np.int32), 1)) for p in one.partials()]
    )
    assert abs(found.as_py() - many) <= 0.08 * many
    assert many > 2502 or found.as_py() == many


@pytest.mark.parametrize(
    ("function", "wanted"),
    [("sum", timedelta(microseconds=5)), ("avg", timedelta(microseconds=3))],
)
def test_intervals_add_up_and_half_a_microsecond_rounds_up(function, wanted) -> None:
    kind = pa.duration("us")
    column = pa.array([timedelta(microseconds=2), None, timedelta(microseconds=3)], kind)
    rows = GatheredRows(pa.RecordBatch.from_arrays([column], ["x"]), np.zeros(3, np.int32))
    one = Aggregate("a", function, 0, kind)
    groups = by_group(np.zeros(3, np.int32), 1)
    result = one.result([p.of_rows(rows, groups) for p in one.partials()])
    assert (result.type, result.to_pylist()) == (one.result_type, [wanted])


def test_condition_of_numbers_is_refused() -> None:
    with pytest.raises(PlanError, match="bool_and needs a boolean column, but its type is int64"):
        Aggregate("all", "bool_and", 0, INT)
