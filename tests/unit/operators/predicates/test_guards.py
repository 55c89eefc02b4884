"""Conditions that can fail: which these are, and that earlier conditions guard them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import QueryError
from spillway.metrics.counts import Counts, Judged, Spent
from spillway.operators.equi.join import JoinOperator
from spillway.operators.input import StreamColumns
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.conditions import predicate
from spillway.operators.predicates.predicate import Predicate
from spillway.operators.predicates.probing import Measured, in_order
from spillway.operators.stats import OperatorStats
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData

NAMES = ("k", "x", "y", "m", "ts", "s")
TYPES = ("bigint", "bigint", "double", "decimal(10,2)", "timestamp", "string")
COLUMNS = {key: dict(zip(NAMES, TYPES, strict=True)) for key in "ab"}


def made(*conditions) -> list[Predicate]:
    return [bound(one, ("a", "b"), COLUMNS, number) for number, one in enumerate(conditions)]


def measured(predicates: list[Predicate], *costs_us: float) -> Counts:
    """All pass half of their pairs, at different costs."""
    found: Counts = {}
    for one, cost_us in zip(predicates, costs_us, strict=True):
        found |= {Judged(one.label): (1e6, 5e5), Spent(one.label): (1e6, cost_us)}
    return found


@pytest.mark.parametrize(
    ("condition", "fails"),
    [
        ("a.x < b.x and a.s != b.s or a.y is null", False),
        ("a.y - 2 * b.y < abs(a.y)", False),
        ("a.m + b.m * 2 < 3", False),
        ("a.x / 2 > b.y % 3", False),
        ("a.y / 0 > b.y", True),
        ("a.y / b.y > 2", True),
        ("a.s = b.s and a.x % b.x = 0", True),
        ("a.x + 1 > b.x", True),
        ("abs(a.x) > b.x", True),
        ("-a.x > b.x", True),
        ("floor(a.y) > b.x", True),
        ("floor(a.x) > b.x", False),
        ("a.ts > b.ts + interval 5 minutes", True),
        (lambda a, b: a.x < b.x, True),
        (predicate("a.x < b.x", prefilter="a.y / b.y > 1"), True),
        (predicate("a.x < b.x", prefilter="a.y < b.y"), False),
    ],
)
def test_condition_that_can_fail_is_known(condition, fails: bool) -> None:
    assert made(condition)[0].can_fail == fails


GUARD, QUOTIENT = "a.x != b.x", "1 / (a.x - b.x) > 0"


def test_guard_comes_before_what_it_guards_whatever_both_cost() -> None:
    both = made(GUARD, QUOTIENT)
    assert in_order(both, Measured(measured(both, 100.0, 1.0))) == both


def test_condition_that_cannot_fail_moves_ahead_of_all_others() -> None:
    some = made(QUOTIENT, lambda a, b: a.x < b.x, GUARD)
    found = in_order(some, Measured(measured(some, 3.0, 1.0, 2.0)))
    assert [some.index(one) for one in found] == [2, 0, 1]


def test_any_order_of_costs_keeps_earlier_conditions_before_those_that_can_fail() -> None:
    some = made("a.x < b.x", "a.x + 1 > b.x", "a.y < b.y", lambda a, b: a.x > 3, "a.s != b.s")
    orders = set()
    for costs in permutations((1.0, 2.0, 3.0, 4.0, 5.0)):
        found = [some.index(one) for one in in_order(some, Measured(measured(some, *costs)))]
        orders.add(tuple(found))
        assert found.index(0) < found.index(1)
        assert max(found.index(at) for at in (0, 1, 2)) < found.index(3)
    assert len(orders) > 10


def rows(values: list[int]) -> RunData:
    count = len(values)
    columns = [
        pa.array(np.zeros(count, np.uint32)),
        pa.array(np.zeros(count, np.int64)),
        pa.array(values, pa.int64()),
    ]
    return RunData(pa.RecordBatch.from_arrays(columns, names=["_h", "c0", "c1"]))


def joined(*conditions: str, costs_us: tuple[float, ...]) -> int:
    """The results of equal keys, where measurements would have the conditions in another order."""
    streams = [StreamColumns(name, NAMES[:2], (0, 1), (0,)) for name in "ab"]
    predicates = made(*conditions)
    join = JoinOperator(streams, predicates=predicates)
    old = [[], [Segment(rows([1, 2, 3]), 0, 3)]]
    known = measured(predicates, *costs_us)
    found = join.terms(old, [rows([2, 3, 9]), rows([])], OperatorStats(16), known)
    return sum(batch.num_rows for batch in found)


def test_division_in_a_later_condition_does_not_fail_where_an_earlier_one_does_not_hold() -> None:
    assert joined(GUARD, QUOTIENT, costs_us=(100.0, 1.0)) == 6
    with pytest.raises(QueryError, match="divides by zero"):
        joined(QUOTIENT, "a.x != 77", costs_us=(1.0, 100.0))


THREE = dict.fromkeys("abc", COLUMNS["a"])


def joined_three(*conditions: object, **values: list[int]) -> int:
    """The results of new rows of stream a, which look into b first and then into c."""
    streams = [StreamColumns(name, NAMES[:2], (0, 1), (0,)) for name in "abc"]
    predicates = [
        bound(one, ("a", "b") if callable(one) else (), THREE, at)
        for at, one in enumerate(conditions)
    ]
    join = JoinOperator(streams, predicates=predicates)
    old = [[], *([Segment(rows(values[n]), 0, len(values[n]))] for n in "bc")]
    found = join.terms(old, [rows(values["a"]), rows([]), rows([])], OperatorStats(16), {})
    return sum(batch.num_rows for batch in found)


def test_guard_over_more_streams_comes_before_what_it_guards() -> None:
    """Streams a and b join before c, which the guard needs."""
    guard, division = "a.x != b.x or c.x < 0", "1 / (a.x - b.x) > 0"
    values = {"a": [5], "b": [5, 3, 9], "c": [1, 2, 3, 4, 5]}
    assert joined_three(guard, division, **values) == 5
    with pytest.raises(QueryError, match="divides by zero"):
        joined_three(division, guard, **values)
    # Where the guard holds, the division still fails.
    with pytest.raises(QueryError, match="divides by zero"):
        joined_three(guard, division, a=[5], b=[5], c=[-1])


def test_function_fails_only_where_guards_over_other_streams_hold() -> None:
    def careful(a, b):
        if (b.x == 77).any():
            raise ValueError("never 77")
        return a.x > b.x

    guard = "b.x != 77 and c.x > 0"
    values = {"a": [5], "b": [3, 77, 4, 8], "c": [1, -1]}
    assert joined_three(guard, careful, **values) == 2
    with pytest.raises(QueryError, match="never 77"):
        joined_three(careful, guard, **values)


def test_pairs_far_from_one_that_fails_are_filtered_early() -> None:
    """One pair in thousands fails; only its neighbours travel on to the next stream."""
    seen: list[int] = []

    def careful(a, b):
        seen.append(len(b.x))
        if (b.x == 77).any():
            raise ValueError("never 77")
        return a.x == b.x

    b = [*range(100, 4100), 77, *range(4100, 8200)]
    assert joined_three("b.x != 77 or c.x < 0", careful, a=[4101], b=b, c=[1]) == 1
    # Asked again, it sees few.
    assert seen[0] == len(b)
    assert seen[-1] <= 128
