"""What may run beside the batches, from when they come."""

from __future__ import annotations

import pytest

from spillway.spark.runtime.moves.pace import LOAD_BYTES, MOST_BYTES, Loads, Pace

MB = 10**6


def paced(*batches: tuple[float, float]) -> Pace:
    """The pace after batches that began and ended at these times."""
    pace = Pace()
    for began, ended in batches:
        pace.begin_batch(began)
        pace.end_batch(ended)
    return pace


@pytest.fixture
def loads() -> Loads:
    return Loads(fixed_s=0.25, bytes_per_s=100 * MB)


def test_nothing_is_known_before_the_second_batch(loads: Loads) -> None:
    for pace in (Pace(), paced((0, 1))):
        assert pace.room_s(1.5) is None
        assert loads.allowed(pace, 1.5, 1) == LOAD_BYTES


def test_load_is_cut_to_fit_before_the_next_batch(loads: Loads) -> None:
    pace = paced((0, 0.5), (2, 2.5))
    # The next comes at 4, and Spark is at work on it 0.15 s before.
    assert pace.room_s(3.0) == pytest.approx(0.85)
    assert loads.allowed(pace, 3.0, MB) == pytest.approx(60 * MB)
    assert paced((0, 0.5), (60, 60.5)).room_s(61) == pytest.approx(58.85)
    assert loads.allowed(paced((0, 0.5), (60, 60.5)), 61, MB) == MOST_BYTES


def test_batch_that_runs_is_given_way_to(loads: Loads) -> None:
    pace = paced((0, 0.5), (2, 2.5))
    pace.begin_batch(4.0)
    assert loads.allowed(pace, 4.1, MB) == 0


def test_one_load_goes_after_every_batch_though_it_does_not_fit(loads: Loads) -> None:
    pace = paced((0, 1.7), (2, 3.7))
    assert loads.allowed(pace, 3.7, 50 * MB) == 50 * MB
    loads.batches = pace.batches
    assert loads.allowed(pace, 3.8, 50 * MB) == 0
    pace.begin_batch(4.0)
    pace.end_batch(5.7)
    assert loads.allowed(pace, 5.7, 50 * MB) == 50 * MB


def test_stream_without_gaps_shares_the_cores_with_one_load_a_batch(loads: Loads) -> None:
    pace = paced((0, 1.0), (1.01, 2.0))
    assert pace.gapless
    pace.begin_batch(2.01)
    assert pace.gapless
    assert loads.allowed(pace, 2.1, 5 * MB) == 5 * MB
    loads.batches = pace.batches
    assert loads.allowed(pace, 2.2, 5 * MB) == 0


def test_batch_that_does_not_come_is_not_waited_for_long(loads: Loads) -> None:
    pace = paced((0, 0.5), (2, 2.5))
    loads.batches = pace.batches
    assert loads.allowed(pace, 4.5, MB) == 0
    assert loads.allowed(pace, 6.5, MB) == LOAD_BYTES


def test_rate_of_loads_is_learned(loads: Loads) -> None:
    for _ in range(40):
        loads.learn(20 * MB, 0.65)
    assert loads.bytes_per_s == pytest.approx(50 * MB, rel=0.01)
    # A load that took less than its fixed part is no reason to believe in any rate.
    loads.learn(20 * MB, 0.1)
    assert loads.bytes_per_s < 250 * MB
