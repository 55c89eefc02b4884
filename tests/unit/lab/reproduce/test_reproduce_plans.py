"""PLANS' figures: verdicts follow from the points, and runs are those that the setup says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spillway.metrics.events import DuplicationAsked, Event, GroupsDeleted
from spillway_lab.reproduce.flux.figures import PLANS, document
from spillway_lab.reproduce.page import rendered
from spillway_lab.reproduce.plans.moves import (
    CALIBRATED,
    FAST,
    ONE_WINDOW,
    RATES,
    WINDOWS_S,
    lengths,
)
from spillway_lab.reproduce.plans.optimisation import CHANGE_S, HERE, OTHERS, lines
from spillway_lab.simulator.cluster.simulation import Result
from spillway_lab.simulator.join.scenario import JoinScenario


def made(
    results: float = 0.0,
    tuples: float = 0.0,
    journal: Sequence[tuple[float, Event]] = (),
    violations: tuple[str, ...] = (),
) -> Result:
    """A run that ends with so many results, and has so many tuples after the change."""
    seconds = (CHANGE_S, CHANGE_S + 30)
    series = {"second": seconds, "results": (0.0, results), "tuples": (0.0, tuples)}
    totals = {"results": results, "results_due": 500.0, "moves": 1, "reshapes": 2}
    return Result(JoinScenario(), series, totals, violations, tuple(journal))


def four(
    moves: str, values: Sequence[float], name: str = "results"
) -> dict[str, dict[float, Result]]:
    places = (0.0, *OTHERS)
    return {
        line: {x: made(**{name: value}) for x in places}
        for line, value in zip(lines(moves), values, strict=True)
    }


@pytest.mark.parametrize("moves", ["ptlb", "mslb"])
@pytest.mark.parametrize(
    ("values", "holds"),
    [
        ((100, 200, 200, 330), True),
        ((100, 160, 200, 330), False),
        ((100, 200, 160, 330), False),
        ((100, 200, 200, 290), False),
    ],
)
def test_plans_7_asks_for_twice_alone_and_three_times_together(moves, values, holds):
    figure = PLANS["plans-7" if moves == "ptlb" else "plans-7-mslb"]
    found = document(figure, four(moves, values))
    assert found["holds"] is holds
    assert found["measured"]["vs_none"][lines(moves)[3]] == values[3] / 100
    assert found["measured"]["all_vs_none"] == 5.0
    assert f"{lines(moves)[3]} {values[3] / 100:.2f} x" in figure.words(found["measured"])
    assert list(found["measured"]["other_settings"]) == [name for name, _ in OTHERS.values()]


@pytest.mark.parametrize(
    ("values", "holds"), [((9, 5, 9, 4), True), ((9, 5, 9, 5), True), ((9, 5, 9, 6), False)]
)
def test_plans_8_asks_for_the_fewest_tuples_with_both(values, holds):
    found = document(PLANS["plans-8"], four("ptlb", values, "tuples"))
    assert found["holds"] is holds
    assert found["measured"]["mean_tuples"] == dict(zip(lines("ptlb"), values, strict=True))


@pytest.mark.parametrize(("ptlb", "holds"), [(101.0, True), (100.0, False), (99.0, False)])
def test_plans_13_asks_for_more_results_by_a_parallel_track(ptlb, holds):
    runs = {"PTLB": {0: made(ptlb)}, "MSLB": {0: made(100.0), HERE: made(50.0)}}
    found = document(PLANS["plans-13"], runs)
    assert found["holds"] is holds
    assert found["measured"]["where_calibrated"] == ptlb / 50


def swept(shown: int, leads: dict[int, Sequence[float]]) -> dict[str, dict[float, Result]]:
    """Runs in which MSLB has so many times the results of PTLB, which has twice those of None."""
    runs: dict[str, dict[float, Result]] = {}
    for rate, by_window in leads.items():
        end = "" if rate == shown else f", {rate}"
        pairs = list(zip(WINDOWS_S, by_window, strict=True))
        runs[f"None{end}"] = {w: made(100.0) for w, _ in pairs}
        runs[f"PTLB{end}"] = {w: made(200.0) for w, _ in pairs}
        runs[f"MSLB{end}"] = {w: made(200.0 * lead) for w, lead in pairs}
    return {**runs, CALIBRATED: {w: made(100.0) for w in WINDOWS_S}}


@pytest.mark.parametrize(
    ("lower", "leads", "holds"),
    [
        ((1, 1, 1, 1.1), (1, 1.1, 1.1, 1.2), True),
        ((1, 1, 1, 1.3), (1, 1.0, 1.0, 1.2), False),
        ((1, 1, 1, 1.1), (1.2, 1.1, 1.1, 1.1), False),
        ((1, 1, 1, 1.1), (0.9, 1.2, 1.2, 1.3), False),
    ],
)
def test_plans_10_asks_for_a_lead_that_grows_with_window_and_rate(lower, leads, holds):
    found = document(PLANS["plans-10"], swept(40, {30: lower, 40: leads}))
    assert found["holds"] is holds
    assert list(found["series"]) == ["None", "PTLB", "MSLB"]
    assert found["series"]["PTLB"]["y"] == [2.0] * 4
    assert list(found["measured"]["mean_lead_by_rate"]) == ["30", "40"]
    assert set(found["measured"]["calibrated_vs_ptlb"].values()) == {0.5}


def lasting(windows: float, mslb: float) -> dict[str, dict[float, Result]]:
    def run(seconds: float) -> Result:
        asked = DuplicationAsked(1, 0, (1,), 0, 0.0, "", 0, 1)
        ended = GroupsDeleted(2, 0, (1,), 0, 0.0, "", 0, 1)
        return made(journal=[(50.0, asked), (50.0 + seconds, ended)])

    return {
        "PTLB": {w: run(windows * w) for w in WINDOWS_S},
        "MSLB": {w: run(mslb) for w in WINDOWS_S},
        CALIBRATED: {w: run(3 * mslb) for w in WINDOWS_S},
        ONE_WINDOW: {w: run(w) for w in WINDOWS_S},
        FAST: {w: run(2 * w) for w in WINDOWS_S},
    }


@pytest.mark.parametrize(
    ("windows", "mslb", "holds"), [(2.0, 5.0, True), (1.0, 5.0, False), (2.0, 20.0, False)]
)
def test_plans_12_asks_for_two_windows_and_much_less(windows, mslb, holds):
    runs = lasting(windows, mslb)
    assert lengths(runs["MSLB"][15.0]) == [mslb]
    assert document(PLANS["plans-12"], runs)["holds"] is holds


def test_a_length_is_that_of_the_run_where_no_move_has_ended():
    lines = ("PTLB", "MSLB", CALIBRATED, ONE_WINDOW, FAST)
    runs = {line: {w: made() for w in WINDOWS_S} for line in lines}
    found = document(PLANS["plans-12"], runs)
    assert found["series"]["PTLB"]["y"] == [300.0] * 4
    assert not found["holds"]


def test_no_claim_holds_where_a_check_failed():
    mslb = {0: made(100.0), HERE: made(100.0)}
    runs = {"PTLB": {0: made(101.0, violations=("5 s: wrong",))}, "MSLB": mslb}
    found = document(PLANS["plans-13"], runs)
    assert found["holds"] is False
    assert "a check of a run failed" in rendered([found])


@pytest.mark.parametrize("name", PLANS)
def test_every_run_has_four_slots_and_the_skew_of_the_paper(name):
    runs = [next(iter(by_x.values())) for by_x in PLANS[name].runs().values()]
    assert all(isinstance(one, JoinScenario) for one in runs)
    assert {one.shares for one in runs} == {(0.625, 0.125, 0.125, 0.125)}
    assert {one.groups for one in runs} == {100}


def test_rates_and_windows_are_those_of_the_paper():
    runs = PLANS["plans-11"].runs()
    assert {one.rates for by_x in runs.values() for one in by_x.values()} == {
        ((0.0, (float(rate),) * 3),) for rate in RATES
    }
    assert {tuple(by_x) for by_x in runs.values()} == {(15.0, 30.0, 45.0, 60.0)}
    [(_, first), (since, later)] = PLANS["plans-7"].runs()["None"][0].rates
    assert (first, since, later) == ((100.0,) * 3, 30.0, (100.0, 5.0, 5.0))
