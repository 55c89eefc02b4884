"""Aggregates of one group: types, NULLs, what is refused."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import PlanError, QueryError
from spillway.kernels.grouping import by_group
from spillway.operators.grouping.aggregates import Aggregate
from spillway.operators.grouping.partials import GatheredRows
from spillway.operators.grouping.windows import PythonAggregate, Windows, over_windows

NAN = float("nan")
DOUBLE = pa.float64()


def aggregated(function: str, column: pa.Array, split: int = 1) -> pa.Array:
    """The aggregate of one group, of two parts that are then combined."""
    one = Aggregate("a", function, 0, column.type, fraction=0.5)
    rows = GatheredRows(
        pa.RecordBatch.from_arrays([column], ["x"]), np.arange(len(column), dtype=np.int32)
    )
    two = by_group((np.arange(len(column)) >= split).astype(np.int32), 2)
    whole = by_group(np.zeros(2, np.int32), 1)
    return one.result([p.combined(p.of_rows(rows, two), whole) for p in one.partials()])


@pytest.mark.parametrize(
    ("function", "kind", "values", "wanted"),
    [
        ("count", pa.string(), ["a", None, "b"], 2),
        ("sum", pa.int32(), [2**31 - 1, None, 2**31 - 1], 2**32 - 2),
        ("sum", pa.int64(), [None, None], None),
        ("sum", pa.float32(), [0.5, 1.25], 1.75),
        ("sum", pa.decimal128(38, 2), [Decimal("0.10"), Decimal("-0.30")], Decimal("-0.20")),
        ("sum", pa.decimal128(5, 2), [None, None], None),
        ("avg", pa.int64(), [1, None, 2], 1.5),
        ("avg", pa.int64(), [2**62, 2**62, 2**62], 2.0**62),
        ("avg", pa.float64(), [None, None], None),
        ("avg", pa.decimal128(5, 2), [Decimal("0.01"), Decimal("0.00")], Decimal("0.005000")),
        ("avg", pa.decimal128(5, 0), [Decimal(1), Decimal(1), Decimal(0)], Decimal("0.6667")),
        ("avg", pa.decimal128(5, 0), [Decimal(-1), Decimal(-1), Decimal(0)], Decimal("-0.6667")),
        ("min", pa.string(), ["b", None, "a"], "a"),
        ("max", pa.string(), ["b", None, "a"], "b"),
        ("min", pa.float64(), [NAN, 3.0, None], 3.0),
        ("max", pa.decimal128(9, 1), [Decimal("2.5"), Decimal("10.0")], Decimal("10.0")),
        ("min", pa.int64(), [None, None], None),
        ("variance", pa.int64(), [1, 2, 3, None], 1.0),
        ("stddev", pa.int64(), [1, 3], 2**0.5),
        ("stddev", pa.int64(), [1, None], None),
        ("approx_quantile", pa.int32(), [4, None, 2], 2.0),
        ("approx_quantile", pa.int32(), [None, None], None),
        ("first", pa.string(), [None, "a"], None),
        ("last", pa.string(), [None, "a"], "a"),
    ],
)
def test_result_is_what_spark_gives(function, kind, values, wanted) -> None:
    column = pa.array(values, kind)
    result = aggregated(function, column)
    assert result.type == Aggregate("a", function, 0, kind).result_type
    assert result.to_pylist() == [wanted]


def test_largest_of_floats_is_nan_where_one_is() -> None:
    [found] = aggregated("max", pa.array([1.0, NAN, 2.0])).to_pylist()
    assert found != found


@pytest.mark.parametrize(
    ("kind", "function", "wanted"),
    [
        (pa.decimal128(5, 2), "sum", pa.decimal128(15, 2)),
        (pa.decimal128(35, 2), "sum", pa.decimal128(38, 2)),
        (pa.decimal128(5, 2), "avg", pa.decimal128(9, 6)),
        (pa.decimal128(38, 18), "avg", pa.decimal128(38, 18)),
        (pa.int8(), "sum", pa.int64()),
        (pa.float32(), "sum", pa.float64()),
        (pa.int8(), "avg", pa.float64()),
        (pa.date32(), "max", pa.date32()),
    ],
    ids=str,
)
def test_types_of_results_are_sparks(kind, function, wanted) -> None:
    assert Aggregate("a", function, 0, kind).result_type == wanted


@pytest.mark.parametrize("split", [1, 2])
def test_sum_of_integers_that_does_not_fit_is_refused(split: int) -> None:
    with pytest.raises(QueryError) as caught:
        aggregated("sum", pa.array([2**63 - 1, 1]), split)
    assert str(caught.value) == (
        "the sum a does not fit into bigint\n"
        "  detail: the values of a group add up to more than the result type can hold\n"
        "  hint: cast the column to decimal(38,0) or double before the sum"
    )


@pytest.mark.parametrize("rows", [2, 3])
def test_sum_of_decimals_that_does_not_fit_is_refused(rows: int) -> None:
    # Two do not fit 38 digits, three do not fit 128 bits either.
    with pytest.raises(QueryError, match=r"the sum a does not fit into decimal\(38,0\)"):
        aggregated("sum", pa.array([Decimal("9" * 38)] * rows, pa.decimal128(38, 0)))


def test_aggregates_that_cannot_be_are_refused() -> None:
    with pytest.raises(PlanError) as unknown:
        Aggregate("m", "median", 0, pa.int64())
    assert "aggregate m: 'median' is not an aggregate function" in str(unknown.value)
    assert "use one of count, sum" in str(unknown.value)
    with pytest.raises(PlanError) as bare:
        Aggregate("m", "max")
    assert (
        'aggregate m: max needs a column\n  hint: pass a column, for example max("price")'
        in str(bare.value)
    )
    with pytest.raises(PlanError) as words:
        Aggregate("m", "avg", 0, pa.string())
    assert str(words.value) == (
        "aggregate m: avg needs a numeric column, but its type is string\n"
        "  hint: cast the column, or use count, min, max, first or last"
    )


def test_quantile_outside_of_what_there_is_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        Aggregate("p", "approx_quantile", 0, pa.int64(), fraction=1.5)
    assert str(caught.value) == (
        "aggregate p: a quantile must be between 0 and 1, not 1.5\n"
        "  hint: use for example 0.5 for the median"
    )


def windows_of(function, kind: pa.DataType = DOUBLE) -> pa.Array:
    """What a function gives for the windows [5, 6] and [6, 7, 8]."""
    rows = GatheredRows(
        pa.RecordBatch.from_arrays([pa.array([5, 6, 7, 8])], ["x"]), np.zeros(4, np.int32)
    )
    one = PythonAggregate("mine", function, (("x", 0),), kind)
    bounds = np.array([0, 1]), np.array([2, 4])
    [found] = over_windows([one], rows, Windows(*bounds, np.zeros(2, np.bool_)))
    return found


def test_function_of_the_user_gets_columns_and_the_offsets_of_windows() -> None:
    seen = []

    def mean(columns, offsets):
        seen.append((columns["x"].to_pylist(), offsets.tolist()))
        return np.add.reduceat(columns["x"].to_numpy(), offsets[:-1]) / np.diff(offsets)

    assert windows_of(mean).to_pylist() == [5.5, 7.0]
    assert seen == [([5, 6, 6, 7, 8], [0, 2, 5])]


def test_function_that_does_not_return_a_value_per_window_is_refused() -> None:
    with pytest.raises(QueryError) as short:
        windows_of(lambda columns, offsets: [1.0])
    assert str(short.value) == (
        "the function of aggregate mine did not return one double per window\n"
        "  detail: it got 2 windows and returned 1 values\n"
        "  hint: return one value for each window offsets[w]:offsets[w + 1], in the same order"
    )
    with pytest.raises(QueryError, match="did not return one int64 per window"):
        windows_of(lambda columns, offsets: ["a", "b"], pa.int64())


def test_values_without_an_order_are_refused() -> None:
    with pytest.raises(PlanError) as caught:
        aggregated("min", pa.array([{"a": 1}, {"a": 2}]))
    assert str(caught.value) == (
        "values of type struct<a: int64> have no order\n"
        "  hint: leave the column out, or select its fields as separate columns"
    )
