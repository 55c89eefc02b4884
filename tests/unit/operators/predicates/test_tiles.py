"""Tiles: a function of two matrices of rows answers for all their pairs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import spillway as sw
from spillway.errors import PlanError, QueryError
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.columns import Rows
from spillway.operators.predicates.predicate import judged
from spillway.operators.predicates.trial import tried
from spillway.operators.stats import OperatorStats

COLUMNS = {name: {"x": "double", "v": "array<float>", "s": "binary"} for name in "abc"}
NAMES = ("x", "v", "s")


def side(stream: str, x, v=None, s=None, at=None) -> Rows:
    v = [[1.0, 2.0]] * len(x) if v is None else v
    s = [b"ab"] * len(x) if s is None else s
    arrays = [pa.array(x, pa.float64()), pa.array(v, pa.list_(pa.float32())), pa.array(s)]
    places = None if at is None else np.asarray(at)
    return Rows(stream, NAMES, arrays.__getitem__, places, len(x) if at is None else len(at))


def cross(left: int, right: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.arange(left * right)
    return pairs // right, pairs % right


def passing(test, a: Rows, b: Rows, prefilter=None):
    """The pairs of rows at equal places that pass."""
    condition = sw.predicate(sw.tiles(test), prefilter=prefilter) if prefilter else sw.tiles(test)
    one = bound(condition, ("a", "b"), COLUMNS)

    def rows(at):
        if at is None:
            return {"a": a, "b": b}, len(a)
        some = [
            Rows(r._stream, NAMES, r._column, r._at[at], len(at))  # the pairs at these places
            for r in (a, b)
        ]
        return dict(zip("ab", some, strict=True)), len(at)

    kept = judged(one, rows, len(a), len(a), OperatorStats(1))
    return list(range(len(a))) if kept is None else kept.tolist()


def test_every_pair_gets_the_answer_of_its_two_rows() -> None:
    x, y = [1.0, 5.0, 3.0], [2.0, 4.0]
    left, right = cross(3, 2)
    seen = []

    def lower(a, b):
        seen.append((len(a), len(b)))
        return a.x[:, None] < b.x

    found = passing(lower, side("a", x, at=left), side("b", y, at=right))
    assert found == [n for n in range(6) if x[n // 2] < y[n % 2]]
    assert seen == [(3, 2)]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rows_are_matrices_of_the_type_of_the_column(kind) -> None:
    v = [[1.0, 0.0], [0.6, 0.8]]
    left, right = cross(2, 2)

    def close(a, b):
        assert a.matrix("v").dtype == np.float32
        assert not a.matrix("v").flags.owndata
        return a.matrix("v").astype(kind) @ b.matrix("v").astype(kind).T > 0.9

    assert passing(close, side("a", [0, 0], v, at=left), side("b", [0, 0], v, at=right)) == [0, 3]


def test_rows_with_null_leave_the_tile_before_the_function_sees_them() -> None:
    v = [[1.0, 2.0], None, [3.0, None], [1.0, 2.0]]
    left, right = cross(4, 4)

    def equal(a, b):
        one, other = a.matrix("v"), b.matrix("v")
        assert not np.isnan(a.x).any() or len(a) == 1
        return (one[:, None] == other[None]).all(axis=2) & (a.x[:, None] == b.x)

    a = side("a", [1.0, 1.0, 1.0, None], v, at=left)
    b = side("b", [1.0, None, 1.0, 1.0], v, at=right)
    assert passing(equal, a, b) == [0, 3]


def test_tile_of_nulls_is_empty_and_the_function_is_not_asked_about_it() -> None:
    left, right = cross(2, 2)

    def never(a, b):
        a.matrix("v")
        raise AssertionError("no rows are left")

    rows = side("a", [1.0, 2.0], [None, None], at=left), side("b", [1.0, 2.0], at=right)
    assert passing(never, *rows) == []


def test_nan_is_a_number_to_numpy() -> None:
    left, right = cross(2, 1)
    rows = side("a", [float("nan"), 1.0], at=left), side("b", [float("nan")], at=right)
    assert passing(lambda a, b: ~(a.x[:, None] < b.x), *rows) == [0, 1]


def test_rows_of_different_length_are_refused_by_name() -> None:
    left, right = cross(2, 1)
    rows = side("a", [1.0, 2.0], [[1.0], [1.0, 2.0]], at=left), side("b", [1.0], at=right)

    def ragged(a, b):
        return np.ones((len(a.matrix("v")), len(b)), np.bool_)

    # One row alone has one length, so single pairs pass.
    assert passing(ragged, *rows) == [0, 1]
    with pytest.raises(PlanError, match=r"a\.v must hold values of equal length"):
        passing(lambda a, b: ragged(a, b) & _fail_alone(a), *rows)


def _fail_alone(a):
    if len(a) == 1:
        raise PlanError("a.v must hold values of equal length")
    return True


def test_a_pair_that_is_no_candidate_cannot_make_the_query_fail() -> None:
    x = np.arange(50.0)
    left, right = cross(50, 50)
    candidates = left != right
    asked = []

    def picky(a, b):
        asked.append(len(a) * len(b))
        if (a.x[:, None] == b.x).any():
            raise ZeroDivisionError("equal")
        return 1 / (a.x[:, None] - b.x) > 0.05

    a, b = side("a", x, at=left[candidates]), side("b", x, at=right[candidates])
    found = passing(picky, a, b)
    difference = x[left[candidates]] - x[right[candidates]]
    assert found == np.flatnonzero(1 / difference > 0.05).tolist()
    with pytest.raises(QueryError) as failed:
        passing(picky, side("a", x, at=left), side("b", x, at=right))
    assert "picky over tiles of a and b failed: ZeroDivisionError: equal" in failed.value.message


@pytest.mark.parametrize(
    ("test", "what"),
    [
        (lambda a, b: a.x[:, None] - b.x, r"returned float64 of shape \(2, 3\), not booleans"),
        (lambda a, b: a.x > 1, r"returned bool of shape \(2,\), not booleans of shape \(2, 3\)"),
        (lambda a, b: (a.x[:, None] < b.x).T, r"returned bool of shape \(3, 2\)"),
        (lambda a, b: None, r"returned object of shape \(\)"),
    ],
)
def test_wrong_mask_is_refused_with_the_streams(test, what) -> None:
    left, right = cross(2, 3)
    rows = side("a", [1.0, 2.0], at=left), side("b", [1.0, 2.0, 3.0], at=right)
    with pytest.raises(QueryError, match=what) as failed:
        passing(test, *rows)
    assert "<lambda> over tiles of a and b" in failed.value.message
    assert failed.value.hint == (
        "return one boolean for each row of a and row of b, for example a.x[:, None] < b.x[None, :]"
    )


def test_scattered_pairs_are_asked_in_small_tiles() -> None:
    count, areas = 5000, []

    def equal(a, b):
        areas.append(len(a) * len(b))
        return a.x[:, None] == b.x

    order = np.random.default_rng(0).permutation(count)
    x = np.arange(float(count))
    found = passing(equal, side("a", x, at=np.arange(count)), side("b", x, at=order))
    assert found == np.flatnonzero(order == np.arange(count)).tolist()
    assert max(areas) <= 4096
    assert sum(areas) <= 64 * count


def test_tiles_are_over_two_streams() -> None:
    one = sw.tiles(lambda a, b: a.x[:, None] < b.x)
    with pytest.raises(PlanError, match="are over 3 streams: a, b, c; a tile has two") as failed:
        bound(one, (), COLUMNS)
    assert failed.value.hint == 'name the two streams: match(..., "a", "b")'


def test_trial_asks_about_tiles() -> None:
    areas = []

    def lower(a, b):
        areas.append(len(a) * len(b))
        return a.x[:, None] < b.x

    one = bound(sw.tiles(lower), ("a", "b"), COLUMNS)
    table = pa.record_batch([pa.array(np.arange(500.0))], ["x"])
    measured = tried([one], {"a": table, "b": table})
    assert max(areas) > 4000
    assert 0.3 < measured.selectivity(one) < 0.7
