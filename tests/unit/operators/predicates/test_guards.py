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
