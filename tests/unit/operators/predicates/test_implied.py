"""What a condition over three streams says of two of them, and when it is asked."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import QueryError
from spillway.operators.equi.join import JoinOperator
from spillway.operators.input import StreamColumns
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.columns import Rows
from spillway.operators.predicates.conditions import predicate
from spillway.operators.predicates.predicate import Predicate, due, with_implied
from spillway.operators.predicates.probing import Measured
from spillway.operators.stats import OperatorStats
from spillway.operators.theta.sliced import SlicedJoin
from spillway.policies.ring.probing import MeasuredStream, orders_of, sources_of
from spillway.routing.slices import Slicing

NAMES = ("x", "y", "s", "t")
KINDS = ("double", "bigint", "string", "timestamp_ntz")
COLUMNS = {key: dict(zip(NAMES, KINDS, strict=True)) for key in "abc"}
CHAIN = "abs(a.x - b.x) < 0.01 and abs(b.x - c.x) < 0.01"
NAN, INF = float("nan"), float("inf")


def streams() -> list[StreamColumns]:
    return [StreamColumns(name, NAMES, (0, 1, 2, 3), (), 3, 1000) for name in "abc"]


def asked(one: Predicate, there: str, joins: str) -> list[tuple[str, ...]]:
    return [found.streams for found in due(with_implied([one]), there, joins)]


def test_bands_of_two_streams_are_asked_when_both_are_there() -> None:
    chain = bound(CHAIN, (), COLUMNS)
    assert asked(chain, "a", "b") == [("a", "b")]
    assert asked(chain, "c", "b") == [("b", "c")]
    assert asked(chain, "a", "c") == []
    assert asked(chain, "ab", "c") == [("b", "c"), ("a", "b", "c")]


def test_condition_over_two_streams_implies_nothing_else() -> None:
    assert bound("abs(a.x - b.x) < 0.01", (), COLUMNS).implied == ()
    assert bound(lambda a, b, c: a.x < b.x, (), COLUMNS).implied == ()


def test_prefilter_of_a_function_says_of_two_streams_what_it_does() -> None:
    whole = bound(predicate(lambda a, b, c: a.x < b.x, prefilter=CHAIN), (), COLUMNS)
    assert [one.streams for one in whole.implied] == [("a", "b"), ("b", "c")]


def test_streams_are_visited_in_the_order_that_bands_connect_them() -> None:
    join = SlicedJoin(streams(), [()] * 3, [bound(CHAIN, (), COLUMNS)], Slicing((100,) * 3, 16))
    known = [MeasuredStream(name, 1.0, 100.0) for name in "abc"]
    orders = orders_of(sources_of(known, join.predicates, Measured()))
    assert orders[0] == (1, 2)
    assert orders[2] == (1, 0)
    beside_keys = JoinOperator(streams(), predicates=[bound(CHAIN, (), COLUMNS)]).residual
    assert beside_keys.order(0, {1: 100.0, 2: 90.0}, {}) == (1, 2)


def test_only_what_bands_read_is_kept_for_them() -> None:
    [first, _] = bound(CHAIN, (), COLUMNS).implied
    assert first.reads("a", NAMES) == {"x"}
    assert first.reads("c", NAMES) == set()


def rows(**columns: pa.Array) -> dict[str, Rows]:
    return {
        name: Rows(name, ("v",), [column].__getitem__, None, len(column))
        for name, column in columns.items()
    }


def judged(text: str, kind: str, left: pa.Array, right: pa.Array) -> list[bool]:
    """What the first implied predicate says of all pairs of two columns."""
    one = bound(text, (), {name: {"v": kind} for name in "abc"}).implied[0]
    pairs = np.meshgrid(np.arange(len(left)), np.arange(len(right)), indexing="ij")
    mine, theirs = (pa.array(at.ravel()) for at in pairs)
    given = rows(a=left.take(mine), b=right.take(theirs))
    return one.passed(given, len(mine)).reshape(len(left), len(right)).tolist()


FLOATS = [1.5, NAN, None, -2.0, INF, -INF, 0.0, 1e308]


@pytest.mark.parametrize("text", ["abs(a.v - b.v) < 1", "a.v < b.v", "a.v >= 2 * b.v", "a.v = b.v"])
@pytest.mark.parametrize("kind", ["double", "float"])
def test_no_pair_is_left_out_for_which_the_band_holds(text: str, kind: str) -> None:
    values = pa.array(FLOATS, pa.float64() if kind == "double" else pa.float32())
    found = judged(f"{text} and b.v < c.v", kind, values, values)
    pairs = [(one, other) for one in range(len(values)) for other in range(len(values))]
    sides = (values.take(pa.array([pair[n] for pair in pairs])) for n in (0, 1))
    given = rows(**dict(zip("ab", sides, strict=True)))
    holding = bound(text, (), {name: {"v": kind} for name in "ab"}).passed(given, len(pairs))
    for (one, other), holds in zip(pairs, holding, strict=True):
        assert found[one][other] or not holds
        assert not found[one][other] or 2 not in (one, other), "a NULL is in no band"


def test_pairs_are_left_out_that_cannot_come_to_anything() -> None:
    numbers = pa.array([1.5, NAN, -2.0, 1.0])
    found = judged("abs(a.v - b.v) < 1 and b.v < c.v", "double", numbers, numbers)
    assert found == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]]
    begin = dt.datetime(2024, 1, 1)
    times = pa.array([begin + dt.timedelta(minutes=n) for n in (0, 3, 9)], pa.timestamp("us"))
    text = "a.v + interval 1 minute < b.v and b.v < a.v + interval 5 minutes and b.v < c.v"
    assert judged(text, "timestamp_ntz", times, times) == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]


def test_numbers_that_may_overflow_are_left_to_the_condition() -> None:
    huge = pa.array([2**63 - 1, 0])
    text = "a.v - b.v < 1 and b.v < c.v"
    assert all(map(all, judged(text, "bigint", huge, pa.array([-(2**63 - 1), 5]))))
    whole = bound(text, (), {name: {"v": "bigint"} for name in "abc"})
    one = pa.array([2**63 - 1]), pa.array([-(2**63 - 1)]), pa.array([0])
    with pytest.raises(QueryError, match="overflows"):
        whole.passed(rows(**dict(zip("abc", one, strict=True))), 1)


def test_guard_still_guards_what_is_behind_it() -> None:
    text = "b.v != 0 and a.v / b.v > c.v and abs(a.v - b.v) < 3"
    whole = bound(text, (), {name: {"v": "bigint"} for name in "abc"})
    [pair] = whole.implied
    some = {"a": [4, 1, 9], "b": [2, 0, 1], "c": [1, 1, 1]}
    given = rows(**{name: pa.array(values) for name, values in some.items()})
    assert pair.passed(given, 3).tolist() == [True, True, False]
    assert whole.passed(given, 3).tolist() == [True, False, False]


def test_stats_have_what_is_asked_of_two_streams_by_its_own_name() -> None:
    [first, second] = bound(CHAIN, (), COLUMNS, 4).implied
    assert first.label == f"4:{CHAIN}, of a and b"
    assert second.label == f"4:{CHAIN}, of b and c"
    stats = OperatorStats(4)
    stats.count_judged(first.label, 10, 1, 0.1)
    assert Measured(stats.selectivity).selectivity(first) == 0.1
