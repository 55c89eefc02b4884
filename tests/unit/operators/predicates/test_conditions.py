"""SQL conditions: what they say of rows, what a sorted order answers of them, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spillway.errors import PlanError, QueryError
from spillway.metrics.counts import Judged, Probed, Spent
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.columns import Rows
from spillway.operators.predicates.conditions import predicate, scalar
from spillway.operators.predicates.evaluation import holds
from spillway.operators.predicates.predicate import Predicate, judged
from spillway.operators.predicates.probing import Measured, in_order, together
from spillway.operators.stats import OperatorStats
from spillway.operators.theta.banded import in_band, ordered
from spillway.plan.sql.bands import Band, answered, bands_of
from spillway.plan.sql.expression import Column, parse
from spillway.plan.sql.kinds import kind_of
from spillway.plan.sql.nodes import SqlCondition
from spillway.plan.sql.typed import typed
from spillway.policies.ring.probing import MeasuredStream, orders_of, sources_of
from spillway.slot.held import Held
from spillway.state.runs.run import RunData

SIDE = {"x": "bigint", "y": "double", "s": "string"}
COLUMNS = {"a": SIDE, "b": SIDE}
DOUBLES = {"a": {"x": "double", "y": "double"}, "b": {"x": "double", "y": "double"}}
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


def said(text: str, columns=COLUMNS, zone: str = "UTC") -> SqlCondition:
    """A condition, understood; it may be over one stream."""
    kinds = {Column(s, c): kind_of(k) for s, side in columns.items() for c, k in side.items()}
    return typed(text, parse(text), kinds, zone)


def band_of(text: str, columns=COLUMNS) -> Band:
    [band] = bands_of(said(text, columns).root)
    return band


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
        ("b.y != 0 and a.x / b.y > 1", [0, 1, 0, 0, 0]),
        ("a.x % 3 = -1", [0, 0, 0, 1, 0]),
        ("coalesce(a.x, 0) + coalesce(b.x, 9) > 4", [0, 1, 0, 1, 0]),
        ("least(a.x, b.x) = 3 or greatest(a.y, 1) = 2", [0, 0, 1, 0, 0]),
        ("sqrt(power(a.x, 2)) = 4", [0, 0, 0, 1, 0]),
        ("a.s = b.s", [1, 1, 0, 0, 0]),
        ("upper(a.s) = 'P'", [1, 0, 0, 0, 1]),
        ("length(b.s) = 1 and a.s != 'p'", [0, 1, 1, 0, 0]),
        ("a.y < b.y", [1, 0, 0, 0, 0]),
        ("a.y > b.y", [0, 1, 0, 0, 0]),
        ("-a.x > 3", [0, 0, 0, 1, 0]),
        ("-(-a.x) > - -5", [0, 0, 0, 0, 1]),
        ("log(a.x) = ln(a.x) and log10(a.x) = 0", [1, 0, 0, 0, 0]),
        ("nvl(a.x, 3) = 3 or mod(a.x, 4) = 2", [0, 1, 1, 0, 0]),
        ("a.x > null or a.x = 7", [0, 0, 0, 0, 1]),
        ("true", [1, 1, 1, 1, 1]),
    ],
)
def test_condition_is_what_sql_says_of_it(condition: str, wanted: list[int]) -> None:
    assert holds(said(condition), rows(a=A, b=B), 5).astype(int).tolist() == wanted


@pytest.mark.parametrize(
    ("condition", "bands"),
    [
        ("abs(a.x - b.x) < 3", 1),
        ("3 >= abs(b.x - a.x)", 1),
        ("a.x - b.x between 1 and 2", 1),
        ("a.x < b.y and a.y > 3", 1),
        ("2 * a.x + 1 <= b.y / 4 and b.x = a.y", 2),
        # What cancels leaves its rounding behind.
        ("a.x < b.x + 1e9 * b.x - 1e9 * b.x", 1),
        ("a.x - 1e12 * (a.x / 1e3) + 1e9 * a.x >= b.x", 1),
        ("abs(1e10 * a.x - (1e10 - 1) * a.x - b.x) < 1e-7", 1),
        # Nothing but rounding is left.
        ("a.x <= 0.1D * b.x + 0.2D * b.x - 0.3D * b.x", 1),
        ("a.x < b.y or a.y > 3", 0),
        ("a.x * b.x < 3", 0),
        ("a.x - a.y < 3", 0),
        ("abs(a.x - b.x) > 3", 0),
    ],
)
def test_bands_hold_wherever_their_condition_does(condition: str, bands: int) -> None:
    condition = said(condition, DOUBLES)
    found = bands_of(condition.root)
    assert len(found) == bands
    rng = np.random.default_rng(3)
    for scale, apart in itertools.product((1.0, 1e-9, 1e12), (None, 0.0, 1e-15, 1e-7)):
        values = {s: {c: (rng.normal(size=500) * scale).tolist() for c in "xy"} for s in "ab"}
        if apart is not None:
            near = 1 + apart * rng.normal(size=500)
            values["b"] = {c: (np.array(values["a"][c]) * near).tolist() for c in "xy"}
        held = holds(condition, rows(**values), 500)
        for band in found:
            for here, there in (("a", "b"), ("b", "a")):
                one = band.between(there, here)
                left = np.array(values[here][one.left.name])
                right = np.array(values[there][one.right.name])
                (first, last), _ = one.ranges(left)
                assert (held <= ((right >= first) & (right <= last))).all()


@pytest.mark.parametrize(
    ("condition", "whole"),
    [
        ("abs(a.x - b.x) < 3", True),
        ("3 >= abs(b.x - a.x)", True),
        ("a.x - b.x between 1 and 2", True),
        ("2 * a.x + 1 <= b.x / 4", True),
        ("a.x < b.x", True),
        ("-a.x >= b.x - 1", True),
        # Nothing between the ends, more than one order, or a necessary condition only.
        ("a.x = b.x", False),
        ("abs(a.x - b.x) = 3", False),
        ("a.x < b.x and a.y > 3", False),
        ("a.x < b.x + 1e9 * b.x - 1e9 * b.x", False),
    ],
)
def test_band_that_answers_its_condition_says_the_same_between_its_ends(
    condition: str, whole: bool
) -> None:
    understood = said(condition, DOUBLES)
    assert answered(understood.root) == whole
    if not whole:
        return
    band = band_of(condition, DOUBLES)
    rng = np.random.default_rng(4)
    odd = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-310, 1e300, -1e300, 3.0, 1.0])
    for scale in (1.0, 1e-9, 1e12):
        pairs = np.concatenate([rng.normal(size=300) * scale, np.round(rng.normal(size=300)), odd])
        a, b = (side.ravel() for side in np.meshgrid(pairs, pairs))
        held = holds(understood, rows(a={"x": a.tolist()}, b={"x": b.tolist()}), len(a))
        values = {"a": a, "b": b}
        none = np.isnan(a) | np.isnan(b)
        if band.ordered:
            assert not held[none].any()
        for here, there in (("a", "b"), ("b", "a")):
            ends = band.between(there, here).ranges(values[here][~none])
            may, must = np.zeros((2, len(held)), bool)
            for mask, (first, last) in zip((may, must), ends, strict=True):
                mask[~none] = (values[there][~none] >= first) & (values[there][~none] <= last)
            assert (held <= may | none).all()
            assert (must <= held).all()
            assert must.sum() > 0 or scale > 1


def run_of(column: pa.Array) -> RunData:
    return RunData(pa.record_batch({"_h": pa.array(range(len(column)), pa.uint32()), "c0": column}))


@pytest.mark.parametrize("size", [1, 2**51, 2**62])
def test_whole_numbers_that_are_no_floating_point_numbers_are_compared_as_they_are(size) -> None:
    band = band_of("a.x < b.x").between("b", "a")
    found = in_band(run_of(pa.array([size, size + 1])), 0, ordered(pa.array([size])), band)
    begin, end = found.sure
    assert (end - begin).tolist() == [1 if size == 1 else 0]
    assert (found.wide[1] - found.wide[0]).tolist() == [2]


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("soundex(a.s) = 'x'", "the function soundex is not supported"),
        ("x < b.x", "x does not name a stream"),
        ("a.x <=> b.x", "<=> is not supported"),
        ("a.x < b.x < 3", "comparisons of conditions need parentheses"),
        ("a.q = b.q < b.x", "comparisons of conditions need parentheses"),
        ("a.x between b.x and b.y = a.q", "comparisons of conditions need parentheses"),
        ("a.q = not b.q", "comparisons of conditions need parentheses"),
        ("log(a.`10`, b.x) > 1", "the function log does not take 2 arguments"),
        ("log(10, b.x) > a.x", "the function log does not take 2 arguments"),
        ("case when a.x then b.x end", "CASE WHEN a.x THEN b.x END is not supported"),
        ("power(a.x) < b.x", "the function power does not take 1 arguments"),
        ("atan2(a.x) < b.x", "the function atan2 does not take 1 arguments"),
        ("a.x < b.x <", "cannot be parsed"),
        ("least(a.x) < b.x", "does not take 1 arguments"),
        ("a.z < b.x", "stream a has no column z"),
        ("a.x < c.x", "names c.x, but it is over a"),
        ("a.x < 3", "names only one stream"),
    ],
)
def test_condition_that_is_not_known_is_refused_by_name(condition: str, why: str) -> None:
    with pytest.raises(PlanError) as refused:
        bound(condition, (), COLUMNS)
    assert why in str(refused.value)


class Written:
    """As Spark's Column: neither text nor a function."""

    def __repr__(self) -> str:
        return "Column<'(a.x < b.x)'>"


@pytest.mark.parametrize("test", [None, 3, Written()])
def test_condition_that_is_neither_text_nor_a_function_is_refused(test) -> None:
    for attempt in (lambda: bound(test, (), COLUMNS), lambda: predicate(test)):
        with pytest.raises(PlanError) as refused:
            attempt()
        assert str(refused.value) == (
            f"a condition must be SQL text or a function, not {test!r}\n"
            '  hint: for example match("a.x < b.x") or match(lambda a, b: a.x < b.x); where() takes '
            "Columns, and filters results"
        )


def test_prefilter_that_is_no_text_is_refused() -> None:
    with pytest.raises(
        PlanError, match=r"prefilter=3 must be a SQL string\n  hint: for example prefilter="
    ):
        predicate(min, prefilter=3)


@pytest.mark.parametrize("cost", [0, -1.5, "3", True, float("nan"), float("inf")])
def test_cost_that_is_no_time_is_refused(cost) -> None:
    with pytest.raises(PlanError) as refused:
        predicate(min, cost=cost)
    assert refused.value.message == f"cost={cost!r} must be a positive number of microseconds"
    assert refused.value.hint == (
        "leave cost out: the query measures the cost of a pair while it runs"
    )


def test_streams_in_a_list_are_refused_with_the_way_to_name_them() -> None:
    with pytest.raises(PlanError) as refused:
        bound(min, (["a", "b"],), COLUMNS)
    assert str(refused.value) == (
        "match(..., ['a', 'b']): streams must be names, as strings\n"
        '  hint: list the names: match(..., "a", "b")'
    )


def test_streams_that_do_not_fit_are_refused() -> None:
    few = "a condition needs two different streams or more"
    for over, why in ((("a",), few), (("a", "a"), few), (("a", "z"), "there is no stream z")):
        with pytest.raises(PlanError) as refused:
            bound(lambda a, b: a.x < b.x, over, COLUMNS)
        assert refused.value.message == f"match(..., {', '.join(map(repr, over))}): {why}"


def test_function_that_gives_no_booleans_is_named() -> None:
    def wrong(a, b):
        return a.x.sum()

    def fails(a, b):
        return a.x + b.s

    values = {"x": [1, 2], "s": ["p", "q"]}
    with pytest.raises(QueryError, match=r"the predicate wrong returned int64 of shape \(\)"):
        bound(wrong, ("a", "b"), COLUMNS).passed(rows(a=values, b=values), 2)
    with pytest.raises(QueryError, match="the predicate fails failed"):
        bound(fails, ("a", "b"), COLUMNS).passed(rows(a=values, b=values), 2)
    with pytest.raises(PlanError, match="stream a has no column q"):
        bound(lambda a, b: a.q < b.x, ("a", "b"), COLUMNS).passed(rows(a=values, b=values), 2)


def test_pair_that_is_null_in_what_a_function_read_does_not_match() -> None:
    found = bound(lambda a, b: a.x != b.x, ("a", "b"), COLUMNS).passed(rows(a=A, b=B), 5)
    assert found.tolist() == [False, True, False, False, True]


def test_scalar_function_warns_and_sees_one_row_of_each_stream() -> None:
    with pytest.warns(UserWarning, match="runs once for every candidate pair"):
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
    assert stats.selectivity[Judged("0:test")] == (40.0, 2.0)


def test_columns_of_lists_and_bytes_are_matrices() -> None:
    columns = [
        pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2)).slice(1),
        pa.array([b"ab", b"cd", b"ef"]).slice(1),
        pa.array([[1.0], [2.0], [3.0]]).slice(1),
        pa.array([b"a", b"bc"]),
        pa.array([b"abc", b"def", b"ghi"], pa.binary(3)).slice(1),
    ]
    found = Rows("a", ["f", "b", "l", "r", "w"], columns.__getitem__, np.array([1, 0, 1]), 3)
    assert found.f.tolist() == [[5, 6], [3, 4], [5, 6]]
    assert found.matrix("f").tolist() == found.f.tolist()
    assert found.matrix("b").tolist() == [list(b"ef"), list(b"cd"), list(b"ef")]
    assert found.matrix("l").tolist() == [[3.0], [2.0], [3.0]]
    assert found.matrix("w").tolist() == [list(b"ghi"), list(b"def"), list(b"ghi")]
    with pytest.raises(PlanError, match=r"a\.r must hold values of equal length"):
        found.matrix("r")


IMAGES = {
    "binary": pa.binary(),
    "fixed bytes": pa.binary(2),
    "list": pa.list_(pa.int16()),
    "fixed list": pa.list_(pa.int16(), 2),
}


@pytest.mark.parametrize("kind", IMAGES.values(), ids=IMAGES.keys())
@pytest.mark.parametrize("gathered", [True, False])
def test_pair_with_a_null_image_does_not_match_and_others_do(kind, gathered: bool) -> None:
    binary = pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind)
    images = [b"no", b"ab", None, b"cd", None] if binary else [[9, 9], [1, 2], None, [3, 4], None]
    column = pa.array(images, kind).slice(1)

    def found(at):
        if gathered:
            return Rows("a", ["i"], [column].__getitem__, at.to_numpy(), len(at))
        return Rows("a", ["i"], [column.take(at)].__getitem__, None, len(at))

    def same(a, b):
        return (a.matrix("i") == b.matrix("i")).all(axis=1)

    one = bound(same, ("a", "b"), {"a": {"i": "binary"}, "b": {"i": "binary"}})
    left, right = pa.array([0, 1, 2, 0, 1, 2]), pa.array([0, 0, 2, 2, 1, 3])
    passed = one.passed({"a": found(left), "b": found(right)}, 6)
    assert passed.tolist() == [True, False, True, False, False, False]
    # Where no pair has an image, nothing tells how wide one is.
    nowhere = one.passed({"a": found(left), "b": found(pa.array([1, 3, 1, 3, 1, 3]))}, 6)
    assert nowhere.tolist() == [False] * 6
    # A NULL that no pair has changes nothing.
    clean = found(pa.array([2, 0]))
    assert clean.matrix("i").tolist() == [list(images[3]), list(images[1])]
    assert clean.valid() is None or clean.valid().all()


def test_list_with_a_null_in_it_does_not_match() -> None:
    for kind in (pa.list_(pa.int16()), pa.list_(pa.int16(), 2)):
        column = pa.array([[0, 0], [0, None], None, [5, 0]], kind)
        for some, wanted in ((column, [1, 0, 0, 1]), (column.slice(0, 2), [1, 0])):
            mine = Rows("a", ["i"], [some].__getitem__, None, len(some))
            assert mine.matrix("i").shape == (len(some), 2)
            assert mine.valid().tolist() == [bool(one) for one in wanted]


def test_fixed_lists_are_numpy_whether_a_row_is_null_or_not() -> None:
    column = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2))
    found = Rows("a", ["f"], [column].__getitem__, np.array([2, 1, 0]), 3)
    assert isinstance(found.f, np.ndarray)
    assert found.f.tolist() == [[3, 4], [0, 0], [1, 2]]
    assert found.valid().tolist() == [True, False, True]


@pytest.mark.parametrize("chunked", [False, True])
def test_null_that_a_function_gives_does_not_match(chunked: bool) -> None:
    def same(a, b):
        found = pc.equal(a.s, b.s)
        assert found.null_count
        return pa.chunked_array([found[:2], found[2:]]) if chunked else found

    given = rows(a={"s": ["p", "q", None, "r"]}, b={"s": ["p", None, "x", "s"]})
    assert bound(same, ("a", "b"), COLUMNS).passed(given, 4).tolist() == [True, False, False, False]


def test_function_that_gives_no_booleans_is_refused_whatever_it_gives() -> None:
    given = rows(a={"s": ["p", None]}, b={"s": ["p", "q"]})
    numbers = bound(lambda a, b: pa.array([1, None]), ("a", "b"), COLUMNS)
    with pytest.raises(QueryError, match="returned float64 of shape"):
        numbers.passed(given, 2)


@pytest.mark.parametrize(
    ("condition", "equal"),
    [
        ("a.s = b.s", ["a.s b.s"]),
        ("a.x < 3 and b.s = a.s", ["b.s a.s"]),
        (predicate(lambda a, b: a.x < b.x, prefilter="a.s = b.s"), ["a.s b.s"]),
        # A band of the same streams leaves few pairs.
        ("a.s = b.s and abs(a.x - b.x) < 3", []),
        ("a.x = b.x", []),
        ("a.s = 'p' and b.s = 'q' and a.s < b.s", []),
        ("a.s = b.s or a.x = b.x", []),
    ],
)
def test_equal_columns_that_no_order_finds_are_known(condition, equal: list[str]) -> None:
    found = bound(condition, ("a", "b"), COLUMNS).equalities
    assert [f"{p.stream}.{p.name} {q.stream}.{q.name}" for p, q in found] == equal


def paired(label: str, *streams: str, cost: float | None = None) -> Predicate:
    return Predicate(label, streams, lambda a, b: a.x < b.x, cost_us=cost)


def probe_orders(names, rows, predicates, measured=None):
    streams = [MeasuredStream(name, 1.0, count) for name, count in zip(names, rows, strict=True)]
    return orders_of(sources_of(streams, predicates, measured or Measured()))


def test_streams_that_a_predicate_connects_are_visited_first() -> None:
    chain = [paired("ab", "a", "b"), paired("bc", "b", "c")]
    assert probe_orders("abc", [100.0] * 3, chain) == ((1, 2), (0, 2), (1, 0))


def test_selective_and_cheap_predicates_come_first() -> None:
    star = [paired("ab", "a", "b"), paired("ac", "a", "c")]
    counts = {Judged("ab"): (1000.0, 100.0), Judged("ac"): (1000.0, 10.0)}
    assert probe_orders("abc", [100.0] * 3, star, Measured(counts))[0] == (2, 1)
    counts = {Judged("ab"): (1000.0, 1.0), Judged("ac"): (1000.0, 1.0)}
    counts |= {Spent("ab"): (1000.0, 1e-5), Spent("ac"): (1000.0, 1.0)}
    measured = together([counts, {Probed("0", "1"): (1.0, 1.0)}])
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
