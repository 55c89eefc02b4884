"""PSP's figures: verdicts follow from the points, and no Spark is started for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spillway.cli.main import app
from spillway_lab.reproduce import figures as reproduce
from spillway_lab.reproduce.flux.figures import document
from spillway_lab.reproduce.page import load, rendered
from spillway_lab.reproduce.psp import figures as reproduce_psp
from spillway_lab.reproduce.psp.figures import PSP_FIGURES
from spillway_lab.reproduce.psp.rate import AGGRESSIVE, FIXED, PASSIVE, SMOOTHED
from spillway_lab.reproduce.psp.ring import SELECTIVITIES, SETTING, TRIED, line, tried
from spillway_lab.reproduce.psp.rivals import COPIES, SEGMENTS_S, copies, segment
from spillway_lab.reproduce.psp.terms import LENGTHS, PSP, Setting, ring, rows_of_windows
from spillway_lab.simulator.ring.scenario import RingScenario
from spillway_lab.simulator.ring.simulation import RingResult

ROOT = Path(__file__).parents[4]
Lines = Mapping[str, Mapping[float, RingResult]]


def made(response_s: float = 0.0, rows: float = 0.0, **series: list[float]) -> RingResult:
    """A run with given numbers."""
    points = max((len(values) for values in series.values()), default=1)
    seconds = tuple((at + 1) * 600.0 / points for at in range(points))
    known = {name: tuple(values) for name, values in series.items()}
    return RingResult(
        RingScenario(),
        {"second": seconds, "slots": (9.0,) * points, **known},
        {"response_s": response_s, "rows": rows, "moves": 0},
        (),
    )


def held(name: str, results: Lines) -> bool:
    return bool(document(PSP_FIGURES[name], results)["holds"])


def rings(times: Callable[[float, int], float]) -> Lines:
    return {line(s): {n: made(response_s=times(s, n)) for n in LENGTHS} for s in SELECTIVITIES}


def valley(best: int, slope: float = 0.05) -> Callable[[int], float]:
    return lambda n: 1 + slope * abs(n - best)


@pytest.mark.parametrize(
    ("times", "holds"),
    [
        (lambda s, n: (1 + s) * valley({0.05: 16, 0.1: 15, 0.5: 14}[s])(n), True),
        (lambda s, n: (1 + s) * valley({0.05: 9, 0.1: 11, 0.5: 14}[s], 0.01)(n), False),
        (lambda s, n: (1 + s) * valley(14)(n), False),
        (lambda s, n: (1 + s) * valley(19)(n), False),
        (lambda s, n: (2 - s) * valley(14)(n), False),
    ],
    ids=[
        "as in the paper",
        "smaller is shorter",
        "all the same",
        "never too long",
        "smaller is slower",
    ],
)
def test_psp_8a_asks_for_a_best_length(times: Callable[[float, int], float], holds: bool) -> None:
    assert held("psp-8a", rings(times)) is holds


def others(best: Callable[[Setting, float], int], late: float = 0.0) -> Lines:
    """Runs of all other settings, with given best lengths, and so many rows that wait in the end."""
    lines = {}
    for setting in TRIED:
        for s in SELECTIVITIES:
            times = valley(best(setting, s))
            some = {n: made(response_s=times(n)) for n in LENGTHS}
            waiting = {n: {**one.totals, "rows_waiting": late} for n, one in some.items()}
            lines[tried(setting, s)] = {
                n: replace(one, totals=waiting[n]) for n, one in some.items()
            }
    return {name: by_n for name, by_n in lines.items() if name not in map(line, SELECTIVITIES)}


def with_waiting(lines: Lines) -> Lines:
    return {
        name: {
            n: replace(one, totals={**one.totals, "rows_waiting": 0.0}) for n, one in by_n.items()
        }
        for name, by_n in lines.items()
    }


def test_psp_8a_tells_of_other_settings_and_is_judged_by_its_own_lines() -> None:
    same = with_waiting(rings(lambda s, n: (1 + s) * valley(13)(n)))
    shorter = others(lambda one, s: 8 if one.network == "shared" and s < 0.5 else 7)
    found = document(PSP_FIGURES["psp-8a"], same, shorter)
    assert not found["holds"]
    assert list(found["series"]) == [line(s) for s in SELECTIVITIES]
    told = found["measured"]["tried"]
    assert [one["network"] for one in told if one["longer_with_smaller_selectivity"]] == [
        "shared"
    ] * 6
    assert told[TRIED.index(SETTING)]["best_slots"] == {"0.05": 13, "0.1": 13, "0.5": 13}
    page = rendered([found])
    assert (
        "in 0 of 6 where they go packet by packet, in 0 of 6 where they go whole over links, "
        "in 6 of 6 where they go whole over one network"
    ) in page
    assert "| whole over one network | 5,000 | 4 | 8 | 8 | 7 | yes |" in page


def test_rings_that_fall_behind_count_for_nothing() -> None:
    same = with_waiting(rings(lambda s, n: (1 + s) * valley(13)(n)))
    behind = others(lambda _, s: 8 if s < 0.5 else 7, late=151.0)
    page = rendered([document(PSP_FIGURES["psp-8a"], same, behind)])
    assert "in 0 of 1 where they go packet by packet, in 0 of 0 where" in page
    assert "| whole over links | 20,000 | 4 | 8 | 8 | 7 | no |" in page


def test_check_that_failed_in_a_run_without_a_line_counts() -> None:
    lines = with_waiting(rings(lambda s, n: (1 + s) * valley(15 if s < 0.5 else 14)(n)))
    hidden = dict(others(lambda _, s: 8))
    name, by_n = next(iter(hidden.items()))
    hidden[name] = {**by_n, 4: replace(by_n[4], violations=("a row missed its window",))}
    assert document(PSP_FIGURES["psp-8a"], lines)["holds"]
    assert not document(PSP_FIGURES["psp-8a"], lines, hidden)["holds"]


def test_setting_of_the_lines_is_the_ring_of_all_figures() -> None:
    assert SETTING in TRIED
    assert SETTING.ring(9, 0.5) == ring(9, 0.5)
    small = Setting("small", "links", 4).ring(9)
    assert (small.pair_s, small.row_bytes, small.link_s) == pytest.approx((15e-6, 15_000, 120e-6))
    hidden = PSP_FIGURES["psp-8a"].others()
    assert len(hidden) == (len(TRIED) - 1) * len(SELECTIVITIES)


@pytest.mark.parametrize(("part", "holds"), [(1.01, True), (1.1, False), (0.9, False)])
def test_psp_8b_asks_for_the_rows_of_the_windows(part: float, holds: bool) -> None:
    rows = rows_of_windows(RingScenario())
    assert rows == pytest.approx(1500 * (1 - 5 / 600))
    lines = {line(s): {n: made(rows=rows * part) for n in LENGTHS} for s in SELECTIVITIES}
    assert held("psp-8b", lines) is holds


def atr(times: Callable[[int, int], float], psp: float, name: str) -> Lines:
    lines = {segment(t): {n: made(**{name: times(t, n)}) for n in LENGTHS} for t in SEGMENTS_S}
    return {**lines, PSP: {n: made(**{name: psp}) for n in LENGTHS}}


@pytest.mark.parametrize(
    ("times", "psp", "holds"),
    [
        (lambda t, n: float(t), 1.0, True),
        (lambda t, n: t / n, 0.1, False),
        (lambda t, n: 100.0 - t, 1.0, False),
        (lambda t, n: float(t), 11.0, False),
    ],
    ids=["as in the paper", "falls with slots", "longer segments are faster", "psp is slower"],
)
def test_psp_8c_asks_slots_to_be_of_no_use(
    times: Callable[[int, int], float], psp: float, holds: bool
) -> None:
    assert held("psp-8c", atr(times, psp, "response_s")) is holds


@pytest.mark.parametrize(
    ("rows", "holds"),
    [
        (lambda t, n: 1000.0 * n, True),
        (lambda t, n: 1000.0 + n, False),
        (lambda t, n: 1000.0 * n if n != 9 else 100.0, False),
    ],
    ids=["grows", "hardly grows", "falls once"],
)
def test_psp_8d_asks_for_state_that_grows(rows: Callable[[int, int], float], holds: bool) -> None:
    assert held("psp-8d", atr(rows, 99.0, "rows")) is holds


def ctr(values: Callable[[int, int], float], name: str) -> Lines:
    lines = {
        copies(c): {n: made(**{name: values(c, n)}) for n in LENGTHS if n >= 2 * c} for c in COPIES
    }
    return {**lines, PSP: {n: made(**{name: 1.0}) for n in LENGTHS}}


@pytest.mark.parametrize(
    ("times", "holds"),
    [
        (lambda c, n: c / n, True),
        (lambda c, n: 1 / (n // c), True),
        (lambda c, n: c * n, False),
        (lambda c, n: 1 / (c * n), False),
        (lambda c, n: 1.0, False),
    ],
    ids=["smooth", "in steps", "rises with slots", "copies help", "all the same"],
)
def test_psp_8e_asks_for_slots_that_help_and_copies_that_do_not(
    times: Callable[[int, int], float], holds: bool
) -> None:
    assert held("psp-8e", ctr(times, "response_s")) is holds


@pytest.mark.parametrize(
    ("rows", "holds"),
    [
        (lambda c, n: 1500.0 * c, True),
        (lambda c, n: 1500.0 * n, False),
        (lambda c, n: 1500.0, False),
    ],
    ids=["by copies", "by slots", "always the same"],
)
def test_psp_8f_asks_for_state_by_copies_alone(
    rows: Callable[[int, int], float], holds: bool
) -> None:
    assert held("psp-8f", ctr(rows, "rows")) is holds


def run(before: float, after: list[float]) -> RingResult:
    """60 points of 10 s: before 300 s, right after it, and then."""
    rest = [after[at * len(after) // 27] for at in range(27)]
    response = [before] * 30 + [1.0] * 3 + rest
    base = made(rows=1.0, fullest_rows=[1.0] * 60)
    series = {**base.series, "response_s": tuple(response)}
    return RingResult(base.scenario, series, base.totals, ())


@pytest.mark.parametrize(
    ("after", "holds"), [(0.02, True), (0.03, False)], ids=["steady again", "too slow"]
)
def test_psp_8g_asks_for_a_quick_return(after: float, holds: bool) -> None:
    good, other = run(0.005, [0.02]), run(0.005, [after])
    assert held("psp-8g", {PASSIVE: {0: good}, AGGRESSIVE: {0: other}}) is holds


@pytest.mark.parametrize(
    ("after", "holds"),
    [([1.0, 2.0, 3.0], True), ([3.0, 2.0, 1.0], False), ([0.1, 0.2, 0.3], False)],
    ids=["grows", "recovers", "hardly grows"],
)
def test_psp_8h_asks_for_a_response_that_grows(after: list[float], holds: bool) -> None:
    lines = {FIXED: {0: run(0.005, after)}, SMOOTHED: {0: run(0.005, [1.0, 2.0, 3.0])}}
    assert held("psp-8h", lines) is holds


def test_no_claim_holds_where_a_check_failed() -> None:
    lines = dict(rings(lambda s, n: (1 + s) * valley(15 if s < 0.5 else 14)(n)))
    assert held("psp-8a", lines)
    good = lines[line(0.1)][4]
    wrong = RingResult(good.scenario, good.series, good.totals, ("a row missed its window",))
    lines[line(0.1)] = {**lines[line(0.1)], 4: wrong}
    found = document(PSP_FIGURES["psp-8a"], lines)
    assert found["holds"] is False
    page = rendered([found])
    assert "# PSP, simulated" in page
    assert "a check of a run failed" in page


def test_measured_documents_have_the_texts_of_today() -> None:
    documents = {found["figure"]: found for found in load(ROOT / "bench" / "reproduction")}
    for name, figure in PSP_FIGURES.items():
        found = documents[name]
        assert (found["claim"], found["paper"]) == (figure.claim, figure.paper)
        assert list(found["series"]) == list(figure.runs())
        assert found["measured"]["violations"] == []


def test_spark_is_not_needed_for_psp(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(reproduce, "require_java", refuse)
    monkeypatch.setattr(reproduce, "_documents", refuse)
    monkeypatch.setattr(reproduce_psp, "simulate_ring", lambda _: made(rows=1000.0))
    with pytest.raises(SystemExit) as ended:
        app(["reproduce", "psp-8b", "--json"])
    out, err = capsys.readouterr()
    assert ended.value.code == 1
    assert json.loads(out)["figure"] == "psp-8b"
    assert "simulating psp-8b: selectivity 0.05, 4" in err
