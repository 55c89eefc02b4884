"""Bands are given up where Spark's own calculation can leave its type, and nowhere else."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from spillway.errors import QueryError
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.columns import Rows
from spillway.operators.predicates.evaluation import holds
from spillway.operators.theta.banded import in_band, ordered
from spillway.plan.sql.bands import Band, bands_of
from spillway.plan.sql.expression import Column, parse
from spillway.plan.sql.kinds import kind_of
from spillway.plan.sql.nodes import SqlCondition
from spillway.plan.sql.typed import typed
from spillway.state.runs.run import RunData

ARROW = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
}
NOW, LARGEST = 1_750_000_000, 2**31 - 1


def said(text: str, kind: str) -> SqlCondition:
    return typed(text, parse(text), {Column(stream, "x"): kind_of(kind) for stream in "ab"})


def band_of(text: str, kind: str) -> Band:
    [band] = bands_of(said(text, kind).root)
    return band.between("b", "a")


def pairs_found(text: str, kind: str, mine: list, theirs: list) -> int | None:
    """The pairs that the band of a condition leaves; None: it is not used."""
    left, right = (pa.array(values, ARROW[kind]) for values in (mine, theirs))
    run = RunData(pa.record_batch({"_h": pa.array(range(len(right)), pa.uint32()), "c0": right}))
    found = in_band(run, 0, ordered(left), band_of(text, kind))
    return None if found is None else int((found.wide[1] - found.wide[0]).sum())


def fails(text: str, kind: str, mine: list, theirs: list) -> bool:
    """Whether the condition is an error for one of the pairs."""
    pairs = zip(*itertools.product(mine, theirs), strict=True)
    arrays = {name: pa.array(side, ARROW[kind]) for name, side in zip("ab", pairs, strict=True)}
    count = len(arrays["a"])
    rows = {n: Rows(n, ["x"], [of].__getitem__, None, count) for n, of in arrays.items()}
    try:
        holds(said(text, kind), rows, count)
    except QueryError:
        return True
    return False


@pytest.mark.parametrize(
    ("text", "kind", "mine", "theirs", "pairs"),
    [
        ("abs(a.x - b.x) < 3", "int", [NOW, NOW + 60], [NOW + 1, NOW + 61, NOW + 900], 2),
        ("a.x - b.x between 0 and 5", "int", [NOW, NOW + 60], [NOW - 5, NOW + 57], 2),
        ("abs(a.x - b.x) < 3", "smallint", [20_000, 32_767], [32_766, 16_384], 1),
        ("abs(a.x - b.x) < 3", "tinyint", [64, 127, 100], [126, 65, 98], 3),
        # A column that is only compared may have any number.
        ("a.x < b.x + 3", "int", [LARGEST, 1, 2], [0, 7], 4),
        ("a.x < b.x", "bigint", [2**63 - 1, -(2**63)], [2**63 - 1, 0], 3),
        # What marks a missing value is as far from others as its type has room for.
        ("abs(a.x - b.x) < 3", "int", [LARGEST, 5], [0, 7, LARGEST], 2),
        ("a.x + 1 > b.x", "int", [NOW], [LARGEST, NOW], 1),
        # The sum on the right has 64 bits.
        ("abs(a.x - b.x) < 3 + 3000000000", "int", [NOW], [NOW + 1], 1),
        ("a.x / 4 < b.x / 4", "int", [LARGEST], [LARGEST, 0], 1),
    ],
)
def test_band_is_used_where_nothing_leaves_its_type(text, kind, mine, theirs, pairs) -> None:
    assert not fails(text, kind, mine, theirs)
    assert pairs_found(text, kind, mine, theirs) == pairs


@pytest.mark.parametrize(
    ("text", "kind", "mine", "theirs"),
    [
        ("abs(a.x - b.x) < 3", "int", [LARGEST, NOW], [NOW, -1]),
        ("a.x < b.x + 3", "int", [5], [0, LARGEST - 2]),
        ("abs(a.x - b.x) < 3", "smallint", [32_767], [-1, 3]),
        ("a.x + b.x > 3", "tinyint", [64], [64, 3]),
        ("abs(a.x - b.x) < 3", "int", [-(2**31)], [0]),
        ("-a.x < b.x", "int", [-(2**31)], [0]),
        ("2 * a.x - a.x < b.x", "int", [NOW], [0]),
        ("a.x < b.x + 2000000000 - 2000000000", "int", [0], [NOW]),
        ("abs(a.x - b.x) < 3", "bigint", [2**63 - 1], [-1]),
    ],
)
def test_no_band_is_used_where_the_condition_fails(text, kind, mine, theirs) -> None:
    assert fails(text, kind, mine, theirs)
    assert pairs_found(text, kind, mine, theirs) is None


def test_numbers_that_are_not_finite_decide_nothing() -> None:
    odd = [float("inf"), float("-inf"), float("nan"), None, 1.0]
    assert pairs_found("abs(a.x - b.x) < 3", "double", odd, [2.0, None, float("nan")]) is not None
    assert pairs_found("a.x - b.x < 3", "double", [1e308], [-1e308]) is None
    assert pairs_found("a.x - b.x < 3", "double", [1e308], [1e308]) == 1


@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int", "bigint"])
@pytest.mark.parametrize(
    "text",
    [
        "abs(a.x - b.x) < 3",
        "a.x + b.x > 9",
        "-a.x + 1 < b.x",
        "a.x - b.x < b.x",
        "3 * a.x < b.x - 7",
        "a.x < 100 - b.x + 100",
    ],
)
def test_pair_has_a_band_if_and_only_if_it_does_not_fail(text: str, kind: str) -> None:
    end = kind_of(kind).limit
    ends = [-end, -end + 1, 1 - end // 2, -2, 0, 1, end // 2 - 1, end // 2, end - 3, end - 1]
    found = bands_of(said(text, kind).root)
    for one, other in itertools.product(ends, ends):
        failed = fails(text, kind, [one], [other])
        for band in found:
            spans = [(float(value), float(value)) for value in (one, other)]
            if band.left.stream == "b":
                spans.reverse()
            # In 64 bits a band is given up a little before.
            assert band.overflows(*spans) == failed or (kind == "bigint" and not failed)


def test_implied_bands_are_judged_by_the_numbers_of_their_block() -> None:
    kinds = {name: {"v": "int"} for name in "abc"}
    near = bound("abs(a.v - b.v) < 3 and b.v < c.v", (), kinds).implied[0]

    def held(mine: list, theirs: list) -> list[bool]:
        arrays = {"a": pa.array(mine, pa.int32()), "b": pa.array(theirs, pa.int32())}
        rows = {n: Rows(n, ["v"], [of].__getitem__, None, len(mine)) for n, of in arrays.items()}
        return near.passed(rows, len(mine)).tolist()

    assert held([NOW, NOW, None], [NOW + 1, NOW + 9, NOW]) == [True, False, False]
    assert held([LARGEST, NOW], [NOW, NOW]) == [False, True]
    assert held([LARGEST, NOW], [-1, NOW + 9]) == [True, True]
    # What is NULL is no number.
    assert held([-(2**31)] * 2, [9 - 2**31, None]) == [False, False]
    assert held([None], [None]) == [False]
