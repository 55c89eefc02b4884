"""SQL conditions: what they say of rows, what a sorted order answers of them, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import PlanError, QueryError
from spillway.operators.base import OperatorStats
from spillway.operators.columns import Rows
from spillway.operators.evaluation import holds
from spillway.operators.held import Held
from spillway.operators.predicates import Predicate, bound, judged, predicate, scalar
from spillway.operators.probing import Measured, in_order, together
from spillway.plan.bands import bands_of
from spillway.plan.expression import parse
from spillway.policies.probing import Stream, orders_of, sources_of

COLUMNS = {"a": ("x", "y", "s"), "b": ("x", "y", "s")}
A = {
    "x": [1, 2, None, -4, 7],
    "y": [0.5, float("nan"), 2.0, None, 0.0],
    "s": ["p", "q", "r", None, "p"],
}
B = {"x": [1, 5, 3, None, -7], "y": [2.0, 1.0, None, 4.0, 0.0], "s": ["p", "q", "x", "y", None]}


def rows(**streams) -> dict[str, Rows]:
    found = {}
    for name, columns in streams.items():
        arrays = [pa.array(values) for values in columns.values()]
        found[name] = Rows(name, list(columns), arrays.__getitem__, None, len(arrays[0]))
    return found


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("a.x = b.x", [1, 0, 0, 0, 0]),
        ("a.x <> b.x", [0, 1, 0, 0, 1]),
        ("not a.x = b.x", [0, 1, 0, 0, 1]),
        ("abs(a.x - b.x) < 4", [1, 1, 0, 0, 0]),
        ("a.x BETWEEN 1 AND 2 AND b.x >= 1", [1, 1, 0, 0, 0]),
        ("a.x not between 1 and 2", [0, 0, 0, 1, 1]),
        ("a.x in (2, 7)", [0, 1, 0, 0, 1]),
        ("a.x is null or a.x > 5", [0, 0, 1, 0, 1]),
        ("b.x is not null and not (a.x > 5)", [1, 1, 0, 0, 0]),
        ("a.x / b.y > 1", [0, 1, 0, 0, 0]),
        ("a.x % 3 = -1", [0, 0, 0, 1, 0]),
        ("coalesce(a.x, 0) + coalesce(b.x, 9) > 4", [0, 1, 0, 1, 0]),
        ("least(a.x, b.x) = 3 or greatest(a.y, 1) = 2", [0, 0, 1, 0, 0]),
        ("sqrt(power(a.x, 2)) = 4", [0, 0, 0, 1, 0]),
        ("a.s = b.s", [1, 1, 0, 0, 0]),
        ("upper(a.s) = 'P'", [1, 0, 0, 0, 1]),
        ("length(b.s) = 1 and a.s != 'p'", [0, 1, 1, 0, 0]),
        ("a.y < b.y", [1, 0, 0, 0, 0]),
        ("-a.x > 3", [0, 0, 0, 1, 0]),
        ("a.x > null or a.x = 7", [0, 0, 0, 0, 1]),
        ("true", [1, 1, 1, 1, 1]),
    ],
)
def test_condition_is_what_sql_says_of_it(condition: str, wanted: list[int]) -> None:
    assert holds(parse(condition), rows(a=A, b=B), 5).astype(int).tolist() == wanted


@pytest.mark.parametrize(
    ("condition", "bands"),
    [
        ("abs(a.x - b.x) < 3", 1),
        ("3 >= abs(b.x - a.x)", 1),
        ("a.x - b.x between 1 and 2", 1),
        ("a.x < b.y and a.y > 3", 1),
        ("2 * a.x + 1 <= b.y / 4 and b.x = a.y", 2),
        ("a.x < b.y or a.y > 3", 0),
        ("a.x * b.x < 3", 0),
        ("a.x - a.y < 3", 0),
        ("abs(a.x - b.x) > 3", 0),
    ],
)
def test_bands_hold_wherever_their_condition_does(condition: str, bands: int) -> None:
    found = bands_of(parse(condition))
    assert len(found) == bands
    rng = np.random.default_rng(3)
    for scale in (1.0, 1e-9, 1e12):
        values = {s: {c: (rng.normal(size=500) * scale).tolist() for c in "xy"} for s in "ab"}
        held = holds(parse(condition), rows(**values), 500)
        for band in found:
            for here, there in (("a", "b"), ("b", "a")):
                one = band.between(there, here)
                left = np.array(values[here][one.left.name])
                right = np.array(values[there][one.right.name])
                first, last = one.ranges(left)
                assert (held <= ((right >= first) & (right <= last))).all()


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("soundex(a.s) = 'x'", "the function soundex is not known"),
        ("x < b.x", "x names no stream"),
        ("a.x <=> b.x", "<=> is not known"),
        ("a.x < b.x < 3", "need parentheses"),
        ("case when a.x then b.x end", "CASE WHEN a.x THEN b.x END is not known"),
        ("power(a.x) < b.x", "cannot be read"),
        ("atan2(a.x) < b.x", "atan2"),
        ("least(a.x) < b.x", "does not take 1 arguments"),
        ("a.z < b.x", "stream a has no column z"),
        ("a.x < c.x", "names c.x, but it is over a"),
        ("a.x < 3", "is over one stream"),
    ],
)
def test_condition_that_is_not_known_is_refused_by_name(condition: str, said: str) -> None:
    with pytest.raises(PlanError) as refused:
        bound(condition, (), COLUMNS)
    assert said in str(refused.value)


def test_streams_that_do_not_fit_are_refused() -> None:
    for over in (("a",), ("a", "a"), ("a", "z")):
        with pytest.raises(PlanError, match="match"):
            bound(lambda a, b: a.x < b.x, over, COLUMNS)


def test_function_that_gives_no_booleans_is_named() -> None:
    def wrong(a, b):
        return a.x.sum()

    def fails(a, b):
        return a.x + b.s

    values = {"x": [1, 2], "s": ["p", "q"]}
    with pytest.raises(QueryError, match=r"the predicate 0:wrong gave int64 of shape \(\)"):
        bound(wrong, ("a", "b"), COLUMNS).passed(rows(a=values, b=values), 2)
    with pytest.raises(QueryError, match="the predicate 0:fails failed"):
        bound(fails, ("a", "b"), COLUMNS).passed(rows(a=values, b=values), 2)
    with pytest.raises(PlanError, match="stream a has no column q"):
        bound(lambda a, b: a.q < b.x, ("a", "b"), COLUMNS).passed(rows(a=values, b=values), 2)


def test_pair_that_is_null_in_what_a_function_read_does_not_match() -> None:
    found = bound(lambda a, b: a.x != b.x, ("a", "b"), COLUMNS).passed(rows(a=A, b=B), 5)
    assert found.tolist() == [False, True, False, False, True]


def test_scalar_function_warns_and_sees_one_row_of_each_stream() -> None:
    with pytest.warns(UserWarning, match="is called for every candidate pair"):
        test = scalar(lambda a, b: a.x is not None and a["s"] == b.s)
    found = bound(test, ("a", "b"), COLUMNS).passed(rows(a=A, b=B), 5)
    assert found.tolist() == [True, True, False, False, False]


def test_prefilter_keeps_pairs_from_the_function_and_is_counted_with_it() -> None:
    seen = []

    def test(a, b):
        seen.append(len(a))
        return a.x > 0

    one = bound(predicate(test, prefilter="a.x < b.x"), ("a", "b"), COLUMNS)
    values = rows(a={"x": [1, 5, -2, 7]}, b={"x": [2, 1, 3, 9]})
    stats = OperatorStats(1)

    def some(keep):
        at = np.arange(4) if keep is None else keep
        taken = {n: Rows(n, ["x"], lambda c, n=n: values[n].arrow("x"), at, len(at)) for n in "ab"}
        return taken, len(at)

    assert judged(one, some, 4, 40, stats).tolist() == [0, 3]
    assert seen == [3]
    assert stats.selectivity["match 0:test"] == (40.0, 2.0)


def test_columns_of_lists_and_bytes_are_matrices() -> None:
    columns = [
        pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2)).slice(1),
        pa.array([b"ab", b"cd", b"ef"]).slice(1),
        pa.array([[1.0], [2.0], [3.0]]).slice(1),
        pa.array([b"a", b"bc"]),
    ]
    found = Rows("a", ["f", "b", "l", "r"], columns.__getitem__, np.array([1, 0, 1]), 3)
    assert found.f.tolist() == [[5, 6], [3, 4], [5, 6]]
    assert found.matrix("f").tolist() == found.f.tolist()
    assert found.matrix("b").tolist() == [list(b"ef"), list(b"cd"), list(b"ef")]
    assert found.matrix("l").tolist() == [[3.0], [2.0], [3.0]]
    with pytest.raises(PlanError, match=r"a\.r is no column of strings or lists of one length"):
        found.matrix("r")


def paired(label: str, *streams: str, cost: float | None = None) -> Predicate:
    return Predicate(label, streams, lambda a, b: a.x < b.x, cost_us=cost)


def probe_orders(names, rows, predicates, measured=None):
    streams = [Stream(name, 1.0, count) for name, count in zip(names, rows, strict=True)]
    return orders_of(sources_of(streams, predicates, measured or Measured()))


def test_streams_that_a_predicate_connects_are_visited_first() -> None:
    chain = [paired("ab", "a", "b"), paired("bc", "b", "c")]
    assert probe_orders("abc", [100.0] * 3, chain) == ((1, 2), (0, 2), (1, 0))


def test_selective_and_cheap_predicates_come_first() -> None:
    star = [paired("ab", "a", "b"), paired("ac", "a", "c")]
    counts = {"match ab": (1000.0, 100.0), "match ac": (1000.0, 10.0)}
    assert probe_orders("abc", [100.0] * 3, star, Measured(counts))[0] == (2, 1)
    counts = {"match ab": (1000.0, 1.0), "match ac": (1000.0, 1.0)}
    counts |= {"cost ab": (1000.0, 1e-5), "cost ac": (1000.0, 1.0)}
    measured = together([counts, {"0>1": (1.0, 1.0)}])
    assert probe_orders("abc", [100.0] * 3, star, measured)[0] == (1, 2)
    assert [one.label for one in in_order(star, measured)] == ["ab", "ac"]


def test_many_streams_get_an_order_without_trying_all() -> None:
    names = "abcdefgh"
    chain = [paired(x + y, x, y) for x, y in itertools.pairwise(names)]
    assert probe_orders(names, [10.0] * 8, chain)[0] == (1, 2, 3, 4, 5, 6, 7)


def test_rows_beyond_the_bound_wait_in_a_file_and_keep_their_order(tmp_path) -> None:
    batches = [pa.record_batch({"x": [at] * 10}) for at in range(6)]
    held = Held(200, tmp_path / "disk")
    for batch in batches[:4]:
        held.add(batch)
    assert [b.column(0)[0].as_py() for b in held.then(batches[4:])] == list(range(6))
