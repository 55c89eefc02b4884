"""The cost model of a ring, against numbers worked out by hand from PSP's equations.

Three streams of 50 rows a second and windows of 10 s, so 500 rows each; a row finds 0.1 partners in each
step; 30 µs for a pair, 10 µs for sending, 70 µs for a hop.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.policies.ring.model import (
    HopCosts,
    ProbeStep,
    Source,
    bandwidth,
    best_length,
    central_s,
    explained,
    forecast,
    least_length,
    output_rate,
    over_sources,
    overhead,
    response_s,
    ring_lengths,
    ring_s,
    utilisation,
)

STEP = ProbeStep("b", 500, 0.0002, 30e-6)
COSTS = HopCosts(send_s=10e-6, hop_s=70e-6)
ROWS = Source("a", 50, (STEP, replace(STEP, stream="c")))
JOIN = tuple(
    Source(name, 50, tuple(replace(STEP, stream=other) for other in "abc" if other != name))
    for name in "abc"
)


def test_equation_1_compares_every_pair_and_sends_all_round_the_ring() -> None:
    assert central_s(ROWS, COSTS) == pytest.approx(500 * 30e-6 * 1.1)
    assert ring_s(ROWS, COSTS, 10) == pytest.approx(16.5e-3 + 10e-6 * 10 * 1.1)
    inserted = replace(COSTS, insert_s=2e-6, purge_s=3e-6)
    assert central_s(ROWS, inserted) == pytest.approx(16.505e-3)


def test_equation_2_follows_from_equation_1() -> None:
    assert overhead(ROWS, COSTS, 10) == pytest.approx(10e-6 * 10 / (500 * 30e-6))
    whole = central_s(ROWS, COSTS) * (1 + overhead(ROWS, COSTS, 10))
    assert ring_s(ROWS, COSTS, 10) == pytest.approx(whole)


def test_equation_4_grows_with_every_slot_towards_a_bound() -> None:
    assert output_rate(ROWS, COSTS, 10, alone=2.0) == pytest.approx(2 * 10 / (1 + 1 / 150))
    rates = [output_rate(ROWS, COSTS, slots) for slots in range(1, 200)]
    assert rates == sorted(rates)
    assert rates[-1] < 500 * 30e-6 / 10e-6


@pytest.mark.parametrize(
    ("slots", "milliseconds"),
    [(8, 3.5 * 0.07 + 16.5 / 8 + 0.011), (9, 0.28 + 3 * 9 * 0.07), (10, 0.315 + 2.1)],
    ids=["work", "hops", "more hops"],
)
def test_equation_5_is_what_takes_longer_work_or_hops(slots: int, milliseconds: float) -> None:
    assert response_s(ROWS, COSTS, slots) == pytest.approx(milliseconds / 1e3)


def test_hops_that_take_no_time_have_no_best_length() -> None:
    assert best_length([ROWS], COSTS) == 9
    assert best_length([ROWS], replace(COSTS, hop_s=0.0), most=40) == 40


def test_more_work_wants_a_longer_ring() -> None:
    """So the best length grows with the selectivity, whatever figure 8(a) is said to show."""
    found = [replace(STEP, selectivity=part / 500) for part in (0.05, 0.1, 0.5)]
    lengths = [
        best_length([Source("a", 50, (step, replace(step, stream="c")))], COSTS) for step in found
    ]
    assert lengths == [9, 9, 10]


def test_equation_6_lets_a_row_travel_while_one_is_compared() -> None:
    assert bandwidth(ROWS, 10, row_bytes=30_000) == pytest.approx(30_000 / (30e-6 * 50))
    small = replace(ROWS, steps=(STEP, ProbeStep("c", 50, 0.1, 30e-6)))
    assert bandwidth(small, 10, row_bytes=30_000) == pytest.approx(200e6)


def test_utilisation_counts_the_rows_of_all_streams() -> None:
    assert utilisation(JOIN, COSTS, 10) == pytest.approx(150 * 16.61e-3 / 10)
    assert least_length(JOIN, COSTS, busy=0.8) == 4
    assert least_length(JOIN, COSTS, busy=1e-4, most=19) == 19


def test_rings_by_stream_are_no_slower_than_one_length_for_all() -> None:
    best = best_length(JOIN, COSTS)
    lengths = ring_lengths(JOIN, COSTS, most=40)
    assert lengths["a"] == best
    by_stream = over_sources(JOIN, lambda source: response_s(source, COSTS, lengths))
    assert by_stream <= over_sources(JOIN, lambda source: response_s(source, COSTS, best))


def test_lengths_by_stream_equal_one_length_where_they_are_equal() -> None:
    same = dict.fromkeys("abc", 7)
    assert response_s(ROWS, COSTS, same) == pytest.approx(response_s(ROWS, COSTS, 7))


def test_stream_with_a_larger_window_gets_a_longer_ring() -> None:
    rows = {"a": 50.0, "b": 5000.0}
    sources = tuple(
        Source(name, 50, (ProbeStep(other, rows[other], 1e-4, 30e-6),))
        for name, other in ("ab", "ba")
    )
    lengths = ring_lengths(sources, COSTS, most=100)
    assert lengths["a"] < lengths["b"]
    one = best_length(sources, COSTS)
    by_stream = over_sources(sources, lambda source: response_s(source, COSTS, lengths))
    assert by_stream <= over_sources(sources, lambda source: response_s(source, COSTS, one))


def test_forecast_has_all_the_model_says() -> None:
    found = forecast(JOIN, COSTS, 10, row_bytes=30_000)
    assert found.response_s == pytest.approx(2.415e-3)
    assert found.output == pytest.approx(10 / (1 + 1 / 150))
    assert found.bandwidth == pytest.approx(20e6)


def test_explanation_shows_the_length_in_use_the_best_one_and_the_orders() -> None:
    text = explained(JOIN, COSTS, 4, row_bytes=30_000)
    lines = text.splitlines()
    assert lines[0].split() == ["slots", "response", "ms", "output", "x", "busy", "link", "MB/s"]
    assert [line.split()[0] for line in lines[1:-1]] == ["1", "2", "4", "8", "9"]
    assert "    4        4.241      3.99    62%      8.000  in use" in lines
    assert lines[-2].endswith("best")
    assert lines[-1] == "probe orders: a -> b -> c; b -> a -> c; c -> a -> b"


def test_explanation_has_results_a_second_where_they_are_measured() -> None:
    lines = explained(JOIN, COSTS, 4, row_bytes=30_000, most_rate=1234.0).splitlines()
    assert lines[0].split()[4:6] == ["x", "results/s"]
    rates = {int(line.split()[0]): float(line.split()[3]) for line in lines[1:-1]}
    assert rates[4] == 1234
    for slots, rate in rates.items():
        alone = 1234 / output_rate(ROWS, COSTS, 4)
        assert rate == pytest.approx(output_rate(ROWS, COSTS, slots, alone), rel=1e-3)
