"""Measures answer for two rows what these rows say, whatever the tile is."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import PlanError
from spillway.operators.predicates.measures import cosine_above, dot_above, nearer


def summed(one, other) -> float:
    total = 0.0
    for x, y in zip(one.tolist(), other.tolist(), strict=True):
        total += x * y
    return total


def unit(count: int, width: int, kind, seed: int):
    rows = np.random.default_rng(seed).standard_normal((count, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(kind)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 64, 512])
def test_product_at_the_limit_is_decided_by_the_definition(kind, width) -> None:
    left, right = unit(20, width, kind, 0), unit(30, width, kind, 1)
    # Every limit is the product of some pair, and so is rounding beside it.
    for i, j in [(0, 0), (3, 7), (19, 29)]:
        exact = summed(left[i], right[j])
        for limit in (exact, np.nextafter(exact, 2), np.nextafter(exact, -2)):
            wanted = [[summed(a, b) > limit for b in right] for a in left]
            assert dot_above(left, right, limit).tolist() == wanted


@pytest.mark.parametrize("measure", [dot_above, cosine_above])
def test_answer_for_two_rows_does_not_depend_on_the_tile(measure) -> None:
    left, right = unit(64, 48, np.float32, 2), unit(200, 48, np.float32, 3)
    limits = [summed(left[i], right[i]) for i in range(0, 60, 20)]
    for limit in limits:
        whole = measure(left, right, limit)
        for m, k in ((1, 1), (1, 200), (7, 3), (64, 1)):
            assert (measure(left[:m], right[:k], limit) == whole[:m, :k]).all()
            assert (measure(left[-m:], right[-k:], limit) == whole[-m:, -k:]).all()


def test_cosine_does_not_depend_on_the_lengths() -> None:
    left, right = unit(10, 16, np.float64, 4), unit(12, 16, np.float64, 5)
    wanted = cosine_above(left, right, 0.2)
    assert wanted.any()
    assert not wanted.all()
    assert (cosine_above(left * 1e150, right * 1e-150, 0.2) == wanted).all()
    assert (cosine_above((left * 1000).astype(np.int64), right, 0.2) == wanted).mean() > 0.95


def test_values_that_are_not_numbers_are_above_nothing() -> None:
    nan, inf = float("nan"), float("inf")
    left = np.array([[nan, 1.0], [inf, 1.0], [0.0, 0.0], [1.0, 1.0]], np.float32)
    right = np.array([[1.0, 1.0], [-1.0, 0.0]], np.float32)
    assert dot_above(left, right, 0.5).tolist() == [
        [False, False],
        [True, False],
        [False, False],
        [True, False],
    ]
    assert cosine_above(left, right, 0.5).tolist() == [[False, False]] * 3 + [[True, False]]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_matrices_have_empty_answers(shape) -> None:
    rows = np.zeros(shape, np.float32)
    for measure in (dot_above, cosine_above, nearer):
        assert measure(rows, rows, 0.5).shape == (shape[0], shape[0])
        assert not measure(rows, rows, 0.5).any()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.sampled_from([np.uint8, np.int64, np.float32]),
    st.integers(0, 1 << 30),
    st.sampled_from([0.0, -1.0, 1.0, 5.5, 30.0, 85.3, 254.9, 255.0, 256.0, 1e300]),
)
def test_difference_is_that_of_fractions(width, kind, seed, limit) -> None:
    rng = np.random.default_rng(seed)
    # Rows of different brightness: sums of parts exclude pairs.
    left, right = (
        (rng.integers(0, 256, (6, width)) // rng.integers(1, 60, (6, 1))).astype(kind)
        for _ in range(2)
    )
    found = nearer(left, right, limit)
    for i, j in np.ndindex(6, 6):
        pairs = zip(left[i].tolist(), right[j].tolist(), strict=True)
        total = sum(abs(Fraction(x) - Fraction(y)) for x, y in pairs)
        assert found[i, j] == (float(total) / width < limit)


def test_long_rows_are_left_early_and_rightly() -> None:
    rng = np.random.default_rng(7)
    left, right = (rng.integers(0, 256, (5, 15_000), np.uint8) for _ in range(2))
    right[0] = left[0]
    right[1, :14_000] = left[1, :14_000]
    means = np.abs(left[:, None].astype(int) - right[None]).mean(axis=2)
    for limit in (1.0, float(means[1, 1]), float(means[2, 2]), 84.0, 90.0):
        assert (nearer(left, right, limit) == (means < limit)).all()


def test_matrices_of_different_width_are_refused() -> None:
    with pytest.raises(PlanError, match=r"shapes \(2, 3\) and \(2, 4\) have no rows of equal"):
        dot_above(np.zeros((2, 3)), np.zeros((2, 4)), 0.5)
    with pytest.raises(PlanError, match="have no rows of equal length"):
        nearer(np.zeros(3), np.zeros((2, 3)), 0.5)
