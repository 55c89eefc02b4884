"""What is measured of predicates on sampled rows, and what a sample says of a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.operators.predicates import predicate as timed
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.conditions import predicate
from spillway.operators.predicates.predicate import Predicate
from spillway.operators.predicates.probing import GUESSED_SELECTIVITY
from spillway.operators.predicates.trial import BUDGET_S, MOST_PAIRS, tried
from spillway.policies.ring.probing import MeasuredStream

COLUMNS = {name: {"x": "bigint"} for name in "abc"}


class Clock:
    """Time that passes where a predicate says so."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(timed, "time", found)
    return found


def samples(**values: list[Any]) -> dict[str, pa.RecordBatch]:
    return {name: pa.record_batch({"x": pa.array(of)}) for name, of in values.items()}


def taking(clock: Clock, pair_s: float, once_s: float = 0.0) -> tuple[Predicate, list[int]]:
    """A predicate that takes so long for a pair, and more when it is first called."""
    called: list[int] = []

    def test(a: Any, b: Any) -> Any:
        clock.now += pair_s * len(a) + (0.0 if called else once_s)
        called.append(len(a))
        return a.x < b.x

    return bound(test, ("a", "b"), COLUMNS), called


def test_selectivity_is_that_of_pairs_of_the_samples(clock: Clock) -> None:
    equal = bound("a.x = b.x", (), COLUMNS)
    found = tried([equal], samples(a=list(range(10)), b=list(range(10))))
    assert found.selectivity(equal) == pytest.approx(0.1, abs=0.03)


def test_null_passes_nothing(clock: Clock) -> None:
    less = bound("a.x < b.x", (), COLUMNS)
    assert tried([less], samples(a=[1, None], b=[2, 2])).selectivity(less) == pytest.approx(
        0.5, abs=0.05
    )


def test_predicate_of_three_streams_with_a_prefilter_is_measured(clock: Clock) -> None:
    near = bound(predicate(lambda a, b, c: a.x + b.x == c.x, prefilter="a.x < b.x"), (), COLUMNS)
    found = tried([near], samples(a=[1, 9], b=[2], c=[3]))
    assert found.selectivity(near) == pytest.approx(0.5, abs=0.05)


def test_quick_predicate_is_called_for_many_pairs(clock: Clock) -> None:
    quick, called = taking(clock, 1e-6, once_s=5.0)
    found = tried([quick], samples(a=[1], b=[2]))
    assert called == [1, *(2**at for at in range(14))]
    assert called[-1] == MOST_PAIRS
    # Neither the first call nor what small blocks took is in it.
    assert found.cost_us(quick) == pytest.approx(1.0)
    assert found.selectivity(quick) == 1.0


def test_slow_predicates_share_a_second(clock: Clock) -> None:
    slow, called = taking(clock, 0.02)
    other, also_called = taking(clock, 0.02)
    tried([slow, other], samples(a=[1], b=[2]))
    assert called == also_called == [1, 1, 2, 4, 8]
    assert sum(called) * 0.02 <= BUDGET_S / 2


def test_very_slow_predicate_is_called_twice(clock: Clock) -> None:
    slow, called = taking(clock, 40.0)
    found = tried([slow], samples(a=[1], b=[2]))
    assert called == [1, 1]
    assert found.cost_us(slow) == pytest.approx(40e6)


def test_predicate_that_fails_is_not_measured() -> None:
    def failing(a: Any, b: Any) -> Any:
        raise ValueError("no")

    wrong, right = bound(failing, ("a", "b"), COLUMNS), bound("a.x < b.x", (), COLUMNS, 1)
    found = tried([wrong, right], samples(a=[1], b=[2]))
    assert found.selectivity(wrong) == GUESSED_SELECTIVITY
    assert found.selectivity(right) == 1.0


def test_rate_is_of_the_time_between_the_rows() -> None:
    assert MeasuredStream.sampled("a", 101, 50_000_000, 10_000_000) == MeasuredStream(
        "a", 2.0, 20.0
    )
    assert np.isfinite(MeasuredStream.sampled("a", 2, 1, 10_000_000).rate)


@pytest.mark.parametrize("rows", [1, 30])
def test_rows_of_one_time_are_taken_for_a_window(rows: int) -> None:
    assert MeasuredStream.sampled("a", rows, 0, 10_000_000) == MeasuredStream("a", rows / 10, rows)
