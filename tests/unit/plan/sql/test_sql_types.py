"""The types of SQL conditions: what they make of values, what they refuse, and where they fail."""

from __future__ import annotations

import datetime as dt
import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import PlanError, QueryError
from spillway.operators.input import StreamColumns
from spillway.operators.predicates import arithmetic
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.columns import Rows
from spillway.operators.predicates.conditions import scalar
from spillway.operators.predicates.evaluation import holds
from spillway.operators.stats import OperatorStats
from spillway.operators.theta.banded import in_all, in_band, ordered
from spillway.operators.theta.combinations import combinations
from spillway.operators.theta.search import Search
from spillway.operators.theta.visit import Visit
from spillway.plan.sql.bands import Band, answered, bands_of
from spillway.plan.sql.expression import Column
from spillway.routing.slices import Slicing
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData

NEW_YEAR = dt.datetime(2024, 1, 1)
VALUES = {
    "t": ("tinyint", pa.array([100, 1, None], pa.int8())),
    "i": ("int", pa.array([3, 1, None], pa.int32())),
    "l": ("bigint", pa.array([5, None, 0], pa.int64())),
    "h": ("bigint", pa.array([2**63 - 1, 7, -(2**63)], pa.int64())),
    "f": ("float", pa.array([0.1, 0.3, None], pa.float32())),
    "y": ("double", pa.array([0.0, -1.0, float("nan")])),
    "m": (
        "decimal(10,2)",
        pa.array([Decimal("1.50"), Decimal("2.50"), None], pa.decimal128(10, 2)),
    ),
    "w": ("decimal(38,2)", pa.array([Decimal("1.50"), None, None], pa.decimal128(38, 2))),
    "s": ("string", pa.array(["Straße", "q", None])),
    "d": ("date", pa.array([dt.date(2024, 1, 1), dt.date(2024, 1, 2), None])),
    "ts": ("timestamp", pa.array([NEW_YEAR, None, NEW_YEAR], pa.timestamp("us", "UTC"))),
    "n": ("timestamp_ntz", pa.array([NEW_YEAR, None, NEW_YEAR], pa.timestamp("us"))),
    "v": ("array<int>", pa.array([[1], None, []], pa.list_(pa.int32()))),
}
KINDS = {name: kind for name, (kind, _) in VALUES.items()}
STREAMS = {"a": KINDS, "b": KINDS}


def held(text: str, zone: str = "UTC") -> list[bool | None]:
    """True, false or NULL for each row."""
    columns = [column for _, column in VALUES.values()]
    rows = {name: Rows(name, list(VALUES), columns.__getitem__, None, 3) for name in "ab"}
    true, false = (
        holds(bound(one, ("a", "b"), STREAMS, zone=zone).test, rows, 3)
        for one in (text, f"not ({text})")
    )
    return [True if t else False if f else None for t, f in zip(true, false, strict=True)]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        # NULL beside a decimal
        ("a.m > b.l", [False, None, None]),
        ("coalesce(b.l, a.m) > 3", [True, False, False]),
        ("coalesce(a.m, b.l) > 1", [True, True, False]),
        # Logarithms
        ("ln(a.y) < 3", [None, None, False]),
        ("log10(a.i) >= 0", [True, True, None]),
        # Decimals are exact, and are double beside floating point numbers
        ("a.f <= 0.1", [False, False, None]),
        ("a.i * 0.1 <= 0.3", [True, True, None]),
        ("a.i * 1e-1 <= 0.3", [False, True, None]),
        ("a.m - b.m < 1", [True, True, None]),
        ("abs(-a.m) in (1.5, 3)", [True, False, None]),
        ("least(a.m, b.i) = 1.50", [True, False, None]),
        # Text is a time beside one
        ("a.d = '2024-01-01'", [True, False, None]),
        ("a.d >= DATE'2024-01-02'", [False, True, None]),
        ("a.ts = '2024-01-01 00:00:00'", [True, None, True]),
        ("a.ts < '2024-01-01T01:00:00+01:00'", [False, None, False]),
        ("a.n in ('2024-01-01', '2025-01-01')", [True, None, True]),
        ("a.ts < b.ts + INTERVAL 5 MINUTES", [True, None, True]),
        ("a.n > b.n - INTERVAL '2' DAY", [True, None, True]),
        # NaN is the largest number
        ("a.y > 1e300", [False, False, True]),
        ("a.y = b.y and not (a.y < b.y)", [True, True, True]),
        ("greatest(a.y, 1) > 2", [False, False, True]),
        # What is not looked at does not fail
        ("a.l != 0 and b.i / a.l > 0", [True, None, False]),
        ("a.l = 0 or b.i % a.l = 3", [True, None, True]),
        ("upper(a.s) = 'STRASSE'", [True, False, None]),
        ("a.v is null", [False, True, False]),
        ("a.i > null", [None, None, None]),
        ("a.t + 100 > 150", [True, False, None]),
        ("a.h > 9223372036854775806", [True, False, False]),
    ],
)
def test_value_is_what_spark_makes_of_it(condition: str, wanted: list[bool | None]) -> None:
    assert held(condition) == wanted


def test_text_is_a_timestamp_in_the_zone_of_the_session() -> None:
    assert held("a.ts = '2023-12-31 19:00:00'", "America/New_York") == [True, None, True]
    # One that the clock leaves out is an hour later.
    assert held("a.ts < '2024-03-10 02:30:00'", "America/New_York") == [True, None, True]


@pytest.mark.parametrize(
    "condition",
    [
        "abs(3 - a.h) < 3",
        "a.h + 1 > 0",
        "a.h * 2 > 0",
        "-1 * a.h > 0",
        "-a.h > 0",
        "abs(a.h) > 0",
        "a.t * b.t > 0",
        "a.h / b.l > 0",
        "a.y % 0 > 0",
        "a.i > 9 and a.h + 1 > 0 or a.h - 1 < 0",
    ],
)
def test_what_spark_raises_is_raised(condition: str) -> None:
    with pytest.raises(QueryError) as failed:
        held(condition)
    assert str(failed.value) == (
        f"the condition {condition!r} overflows, or divides by zero\n"
        "  detail: as in Spark's ANSI mode, a number out of the range of its type is an error\n"
        "  hint: cast the columns to a wider type or to double in their streams, or guard it: "
        "b.x != 0 and a.x / b.x > 2"
    )


def test_floor_beyond_64_bits_is_what_the_release_of_spark_makes_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From Spark 4.3 on it is an error; before, the largest or smallest number."""
    monkeypatch.setattr(arithmetic, "whole_numbers_overflow", lambda: False)
    assert set(held("floor(a.i * 0 + 1e300) = 9223372036854775807")) <= {True, None}
    assert set(held("ceil(a.i * 0 - 1e300) < -9223372036854775807")) <= {True, None}
    monkeypatch.setattr(arithmetic, "whole_numbers_overflow", lambda: True)
    for name in ("floor", "ceil"):
        with pytest.raises(QueryError, match="overflows, or divides by zero"):
            held(f"{name}(a.y + 1e300) > 0")


@pytest.mark.parametrize(
    ("condition", "why", "hint"),
    [
        ("a.s = 3", "= does not take a.s (string) and 3 (int)", "cast the column in its stream"),
        ("a.i in (1, '3')", "in does not take a.i (int) and 1 (int) and '3' (string)", "quotes"),
        ("a.d = b.ts", "= does not take a.d (date) and b.ts (timestamp)", "cast the column"),
        (
            "a.ts < b.n",
            "< does not take a.ts (timestamp) and b.n (timestamp_ntz)",
            "cast the column",
        ),
        ("a.d > '2024-13-01'", "'2024-13-01' is not a valid date", "write it as 'yyyy-mm-dd'"),
        ("a.d > '2024-01-01 00:00'", "is not a valid date", "write it as 'yyyy-mm-dd'"),
        ("a.ts > 'soon'", "'soon' is not a valid timestamp", "write it as 'yyyy-mm-dd hh:mm:ss'"),
        (
            "a.m / 2 > 1",
            "/ does not take a.m (decimal(10,2)) and 2 (int)",
            "cast the column to double",
        ),
        ("a.w * b.w > 1", "* does not take a.w (decimal(38,2))", "38 digits"),
        ("a.v = b.v", "= does not take a.v (array<int>)", "cast the column"),
        (
            "a.i and b.i > 1",
            "and takes conditions, not a.i (int)",
            "compare it with a value",
        ),
        ("a.i + b.i", "it is of type int, not boolean", "compare it with a value"),
        ("lower(a.i) = 'x'", "lower does not take a.i (int)", "cast the column"),
        ("sqrt(a.s) > 1", "sqrt does not take a.s (string)", "cast the column"),
        ("a.ts - b.ts < 3", "- does not take a.ts (timestamp) and b.ts (timestamp)", "cast"),
        ("a.d + INTERVAL 1 DAY > b.d", "+ does not take a.d (date)", "b.ts + INTERVAL 5 MINUTES"),
        (
            "a.ts > b.ts - INTERVAL 1 MONTH",
            "INTERVAL '1' MONTH is not supported",
            "Python function",
        ),
        ("a.i > cast(b.s as int)", "is not supported", "Python function"),
    ],
)
def test_types_that_do_not_fit_are_refused_by_name(condition: str, why: str, hint: str) -> None:
    with pytest.raises(PlanError) as refused:
        bound(condition, ("a", "b"), STREAMS)
    assert refused.value.message.startswith(f"the condition {condition!r} cannot be used: ")
    assert why in refused.value.message
    assert hint in (refused.value.hint or "")


def test_days_are_no_intervals_where_they_differ_in_length() -> None:
    text = "a.ts > b.ts - INTERVAL 2 DAYS"
    assert held(text) == [True, None, True]
    with pytest.raises(PlanError, match="- does not take"):
        bound(text, (), STREAMS, zone="Europe/Vienna")


def bands(text: str) -> tuple[Band, ...]:
    return bands_of(bound(text, (), STREAMS).test.root)


def run_of(column: pa.Array) -> RunData:
    return RunData(pa.record_batch({"_h": pa.array(range(len(column)), pa.uint32()), "c0": column}))


def test_times_have_bands() -> None:
    assert [(band.p, band.q, band.high) for band in bands("a.d < b.d")] == [(1.0, -1.0, 0.0)]
    [band] = bands("a.ts between b.ts - INTERVAL 1 HOUR and b.ts")
    assert (band.low, band.high) == (-3.6e9, 0.0)
    times = pa.array([NEW_YEAR + dt.timedelta(minutes=m) for m in (0, 30, 120)], pa.timestamp("us"))
    found = in_band(run_of(times), 0, ordered(times), band.between("b", "a"))
    assert (found.wide[1] - found.wide[0]).tolist() == [2, 1, 1]
    assert not bands("a.m < b.m")
    assert not bands("a.s < b.s")


def test_ranges_of_one_column_are_intersected() -> None:
    condition = bound("a.y between b.y and b.f", (), STREAMS)
    assert answered(condition.test.root)
    low, high = (band.between("a", "b") for band in condition.bands)
    assert low.right == high.right == Column("a", "y")
    run = run_of(pa.array([5.0, 1.0, 3.0, None, 2.0]))
    mine = [pa.array([1.5, None, 4.0]), pa.array([3.5, 9.0, 1.0])]
    found = in_all(
        [in_band(run, 0, ordered(x), b) for x, b in zip(mine, (low, high), strict=True)], 3
    )
    assert found.which.tolist() == [0, 2]
    begin, end = found.wide
    assert [found.order[b:e].tolist() for b, e in zip(begin, end, strict=True)] == [[4, 2], []]
    assert [e - b for b, e in zip(*found.sure, strict=True)] == [2, 0]


def test_numbers_that_overflow_have_no_band_so_that_they_fail_however_pairs_are_found() -> None:
    [band] = bands("abs(a.h - b.h) < 3")
    large, small = (pa.array([sign * 2**62, 0]) for sign in (1, -1))
    assert in_band(run_of(small), 0, ordered(large), band.between("b", "a")) is None
    assert in_band(run_of(pa.array([5])), 0, ordered(pa.array([4])), band.between("b", "a"))
    [plain] = bands("a.h < b.h")
    assert in_band(run_of(small), 0, ordered(large), plain.between("b", "a"))


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("abs(a.x - b.x) < 3 and a.y < b.y", True),
        # What guards the other is looked at first.
        ("a.y < b.y and abs(a.x - b.x) < 3", False),
    ],
)
def test_part_that_overflows_fails_whatever_bands_other_parts_have(text: str, fails: bool) -> None:
    count = 40
    streams = [StreamColumns(name, ("x", "y", "t"), (0, 1, 2), (), 2, 1000) for name in "ab"]
    slicing = Slicing((100, 100), 16)
    # The last row of a and the first of b are too far apart, and a.y < b.y is false of them.
    sides = [[0] * (count - 1) + [2**63 - 1], [-(2**63 - 1)] + [0] * (count - 1)]
    runs = []
    for at, values in enumerate(sides):
        times = np.zeros(count, np.int64)
        arrays = [pa.array(slicing.places(at, times)), pa.array(values), pa.array(range(count))]
        arrays += [pa.array(times, pa.timestamp("us")), pa.array([0] * count, pa.int32())]
        runs.append(RunData(pa.record_batch(arrays, ["_h", "c0", "c1", "c2", "c3"]), 2))
    kinds = {name: {"x": "bigint", "y": "bigint", "t": "timestamp_ntz"} for name in "ab"}
    left = combinations(0, {0: runs[0].payload.columns[:3]}, streams)
    how = (1, [Segment(runs[1], 0, count)], 9999, [range(3)] * 2)
    step = Search(streams, slicing, [bound(text, (), kinds)], *how)
    visit = Visit(step, left, OperatorStats(16))
    if fails:
        with pytest.raises(QueryError, match="overflows"):
            list(visit.blocks())
    else:
        found = sum(len(block[1][0]) for block in visit.blocks())
        assert found == (count - 1) * (count - 2) // 2 + (count - 1)


def test_band_near_the_largest_numbers_does_not_warn() -> None:
    [band] = bands("10 * a.y - 10 * b.y < 1e308")
    huge = pa.array([1e308, -1e308, float("inf")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_band(run_of(huge), 0, ordered(huge), band.between("b", "a")) is None


def test_nan_is_a_candidate_where_it_may_match() -> None:
    numbers = pa.array([1.0, float("nan"), None])
    for text, wide, nan in (("a.y < b.y", [1, 1], [1, 1]), ("abs(a.y - b.y) < 9", [1, 0], [0, 0])):
        [band] = bands(text)
        found = in_band(run_of(numbers), 0, ordered(numbers), band.between("b", "a"))
        assert found.which.tolist() == [0, 1]
        assert (found.wide[1] - found.wide[0]).tolist() == wide
        assert [len(found.order) - found.unordered] * 2 == nan


def test_scalar_function_that_does_not_expect_null_is_told_of_it() -> None:
    with pytest.warns(UserWarning, match="every candidate pair"):
        test = scalar(lambda a, b: a.x < b.x)
    one = bound(test, ("a", "b"), {"a": {"x": "bigint"}, "b": {"x": "bigint"}})
    column = [pa.array([1, None])]
    rows = {name: Rows(name, ["x"], column.__getitem__, np.array([1]), 1) for name in "ab"}
    with pytest.raises(QueryError) as failed:
        one.passed(rows, 1)
    assert failed.value.hint == "a NULL is None: test for it first, `a.x is not None and ...`"
    rows = {name: Rows(name, ["x"], [pa.array([1])].__getitem__, None, 1) for name in "ab"}
    assert one.passed(rows, 1).tolist() == [False]
