"""FLUX's figures: verdicts follow from the points, and no Spark is started for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spillway.cli.main import app
from spillway_lab.reproduce import figures as reproduce
from spillway_lab.reproduce.flux import figures as reproduce_flux
from spillway_lab.reproduce.flux.exchange import BUFFERS, EXCHANGE, FLUX, UNLOADED
from spillway_lab.reproduce.flux.figures import FLUX as FLUX_FIGURES
from spillway_lab.reproduce.flux.figures import SIMULATED, document
from spillway_lab.reproduce.flux.load import DELTAS_MS, LOADED, allowed
from spillway_lab.reproduce.flux.memory import PERTURBED
from spillway_lab.reproduce.flux.tuning import AUTO, FAST, HEAVY, parts
from spillway_lab.reproduce.page import load, rendered
from spillway_lab.simulator.cluster.scenario import Scenario
from spillway_lab.simulator.cluster.series import NAMES
from spillway_lab.simulator.cluster.simulation import Result

ROOT = Path(__file__).parents[4]


def made(seconds: float = 4.0, **series: list[float]) -> Result:
    """A run with given series; the others are 0."""
    points = max((len(values) for values in series.values()), default=1)
    zeros = dict.fromkeys(NAMES, [0.0] * points)
    known = {**zeros, "second": [(at + 1) * seconds / points for at in range(points)], **series}
    rows = known["rows_per_s"]
    return Result(
        Scenario(seconds=seconds),
        {name: tuple(values) for name, values in known.items()},
        {"rows_per_s": sum(rows) / len(rows), "moves": 3, "spills": 0},
        (),
    )


def steady(rows: float, **more: Any) -> Result:
    return made(rows_per_s=[rows], **more)


def held(name: str, results: Mapping[str, Mapping[float, Result]]) -> bool:
    return bool(document(SIMULATED[name], results)["holds"])


def swept(flux: list[float], exchange: list[float]) -> dict[str, dict[float, Result]]:
    lines = {FLUX: flux, EXCHANGE: exchange, UNLOADED: [100.0] * len(BUFFERS)}
    return {
        line: {x: steady(y) for x, y in zip(BUFFERS, values, strict=True)}
        for line, values in lines.items()
    }


@pytest.mark.parametrize(
    ("flux", "exchange", "holds"),
    [
        ([50, 60, 70, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 65, 69, 80], True),
        ([50, 60, 70, 80, 90, 94, 94, 94], [50, 50, 52, 55, 60, 65, 69, 80], False),
        ([50, 60, 70, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 66, 69, 80], False),
        ([50, 60, 55, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 65, 69, 80], False),
        ([70, 75, 76, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 65, 69, 80], False),
        ([50, 51, 70, 80, 90, 96, 97, 98], [50, 52, 52, 55, 60, 65, 69, 80], False),
    ],
    ids=["as it should", "never near", "exchange too", "falls", "no loss at all", "beaten"],
)
def test_flux_3_asks_flux_to_be_near_where_exchange_is_not(
    flux: list[float], exchange: list[float], holds: bool
) -> None:
    assert held("flux-3", swept(flux, exchange)) is holds


def test_no_claim_holds_where_a_check_failed() -> None:
    runs = swept([50, 60, 70, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 65, 69, 80])
    good = runs[FLUX][0]
    runs[FLUX][0] = Result(good.scenario, good.series, good.totals, ("1 s, rows: lost",))
    found = document(SIMULATED["flux-3"], runs)
    assert found["holds"] is False
    assert "a check of a run failed" in rendered([found])


def test_section_has_claim_numbers_verdict_and_plot() -> None:
    runs = swept([50, 60, 70, 80, 90, 96, 97, 98], [50, 50, 52, 55, 60, 65, 69, 80])
    page = rendered([document(SIMULATED["flux-3"], runs)])
    for text in (
        "# FLUX, simulated",
        SIMULATED["flux-3"].claim,
        "with 512 rows of buffer Flux has 0.96, Exchange 0.65",
        "The claim holds; no check failed.",
        "| 512 | 96 | 65 | 100 |",
        "(figures/flux-3.png)",
    ):
        assert text in page


def test_measured_documents_have_the_texts_of_today_and_verdicts_of_their_data() -> None:
    for found in load(ROOT / "bench" / "reproduction"):
        if found["figure"] not in SIMULATED:
            continue
        figure = SIMULATED[found["figure"]]
        assert (found["claim"], found["paper"]) == (figure.claim, figure.paper)
        assert list(found) == ["figure", "claim", "paper", "series", "measured", "holds"]
        assert list(found["series"]) == [one for one in figure.runs() if one in found["series"]]
        assert found["measured"]["exact"] is (found["measured"]["violations"] == [])


def test_spark_is_not_needed_for_a_simulated_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(reproduce, "require_java", refuse)
    monkeypatch.setattr(reproduce, "_documents", refuse)
    monkeypatch.setattr(reproduce_flux, "simulate", lambda _: steady(100.0))
    with pytest.raises(SystemExit) as ended:
        app(["reproduce", "flux-3", "--json"])
    out, err = capsys.readouterr()
    assert ended.value.code == 1
    assert json.loads(out)["figure"] == "flux-3"
    assert "simulating flux-3: Flux, 32" in err


def over_time(**lines: list[float]) -> dict[str, dict[float, Result]]:
    """Lines over time, a point a second."""
    return {
        line.replace("_", " "): {0: made(float(len(rows)), rows_per_s=rows)}
        for line, rows in lines.items()
    }


@pytest.mark.parametrize(
    ("static", "balanced", "holds"),
    [
        ([100, 100, 44] + [44] * 27, [100, 100, 50] + [98] * 27, True),
        ([100, 100, 44] + [44] * 27, [100, 100] + [50] * 16 + [98] * 12, False),
        ([100, 100, 70] + [70] * 27, [100, 100, 50] + [98] * 27, False),
        ([100, 100, 44] + [44] * 27, [100, 100, 50] + [80] * 27, False),
        ([100] * 30, [100] * 30, False),
    ],
    ids=["as it should", "too late", "no sudden fall", "not restored", "never felt"],
)
def test_flux_7_asks_for_a_fall_and_a_quick_return(
    static: list[float], balanced: list[float], holds: bool
) -> None:
    lines = over_time(unloaded=[100] * 30, static=static, load_balancing=balanced)
    assert held("flux-7", lines) is holds


@pytest.mark.parametrize(
    ("first", "worst", "holds"),
    [(0.43, 0.95, True), (0.7, 0.95, False), (0.43, 0.85, False)],
    ids=["linear", "static holds up", "balancing does not"],
)
def test_flux_8_asks_for_a_sudden_fall_of_static_alone(
    first: float, worst: float, holds: bool
) -> None:
    static = {n: steady(100.0 if n == 0 else 100 * first) for n in LOADED}
    balanced = {n: steady(100 * allowed(n) * worst) for n in LOADED}
    assert held("flux-8", {"static": static, "load balancing": balanced}) is holds


@pytest.mark.parametrize(
    ("free", "loaded", "holds"),
    [
        ([50, 60, 70, 80, 90, 110, 110], [40, 60, 70, 90, 105, 110, 110], True),
        ([105, 105, 105, 105, 105, 110, 110], [40, 60, 70, 90, 105, 110, 110], False),
        ([50, 60, 70, 80, 90, 110, 110], [40, 45, 45, 45, 45, 45, 45], False),
    ],
    ids=["as in the paper", "never overreacts", "loaded is never as good"],
)
def test_flux_9_asks_for_overreaction_and_for_its_cure(
    free: list[float], loaded: list[float], holds: bool
) -> None:
    ends = (DELTAS_MS[0], DELTAS_MS[-1])
    lines = {
        "static, unloaded": {ms: steady(100.0) for ms in ends},
        "load balancing, unloaded": {ms: steady(y) for ms, y in zip(DELTAS_MS, free, strict=True)},
        "static, loaded": {ms: steady(40.0) for ms in ends},
        "load balancing, loaded": {ms: steady(y) for ms, y in zip(DELTAS_MS, loaded, strict=True)},
    }
    assert held("flux-9", lines) is holds


def pressed(
    rows: dict[str, list[float]], late: dict[str, list[float]]
) -> dict[str, dict[float, Result]]:
    return {
        line: {0: made(float(len(rows[line])), rows_per_s=rows[line], latency_s=late[line])}
        for line in ("unloaded", "static", "memory-based")
    }


@pytest.mark.parametrize(
    ("static", "back", "least", "throughput", "latency"),
    [
        (30.0, 100.0, 2.0, True, True),
        (70.0, 100.0, 2.0, False, True),
        (30.0, 90.0, 2.0, False, True),
        (30.0, 100.0, 20.0, False, True),
    ],
    ids=["as it should", "static holds up", "not restored", "no halt"],
)
def test_flux_11_asks_for_a_halt_and_a_return(
    static: float, back: float, least: float, throughput: bool, latency: bool
) -> None:
    rows = {
        "unloaded": [100.0] * 4,
        "static": [100.0, least, static, static],
        "memory-based": [100.0, least, 50.0, back],
    }
    late = {
        "unloaded": [1e-4] * 4,
        "static": [1e-4, 0.1, 0.2, 0.2],
        "memory-based": [1e-4, 0.1, 0.2, 1e-4],
    }
    assert held("flux-11", pressed(rows, late)) is throughput
    assert held("flux-12", pressed(rows, late)) is latency


@pytest.mark.parametrize(("static", "end"), [(0.005, 1e-4), (0.2, 0.1)], ids=["short", "late"])
def test_flux_12_asks_for_orders_of_magnitude_and_a_return(static: float, end: float) -> None:
    rows = {line: [100.0, 2.0] for line in ("unloaded", "static", "memory-based")}
    late = {"unloaded": [1e-4] * 2, "static": [1e-4, static], "memory-based": [0.1, end]}
    assert not held("flux-12", pressed(rows, late))


def swept_memory(
    static: list[float], spread: list[float], latency: bool = False
) -> dict[str, dict[float, Result]]:
    def one(value: float) -> Result:
        more = {"latency_s": [value]} if latency else {}
        return made(rows_per_s=[100.0 if latency else value], **more)

    return {
        line: {n: one(y) for n, y in zip(PERTURBED, values, strict=True)}
        for line, values in (("static", static), ("memory-based", spread))
    }


@pytest.mark.parametrize(
    ("static", "spread", "holds"),
    [
        ([100] + [30] * 6, [100] * 6 + [60], True),
        ([100] + [30] * 6, [100, 99, 98, 95, 90, 83, 60], True),
        ([100] + [70] * 6, [100] * 6 + [60], False),
        ([100] + [30] * 6, [100] * 4 + [84, 83, 60], False),
        ([100] + [30] * 6, [100] * 7, False),
    ],
    ids=["no loss", "as the others allow", "static holds up", "falls early", "no fall at the end"],
)
def test_flux_13_asks_the_policy_to_hold_until_memory_is_used_up(
    static: list[float], spread: list[float], holds: bool
) -> None:
    assert held("flux-13", swept_memory(static, spread)) is holds


@pytest.mark.parametrize(
    ("static", "spread", "holds"),
    [
        ([1e-4] + [0.2] * 6, [1e-4] * 6 + [0.1], True),
        ([1e-4] + [5e-3] * 6, [1e-4] * 6 + [0.1], False),
        ([1e-4] + [0.2] * 6, [1e-4] * 5 + [3e-4, 0.1], False),
        ([1e-4] + [0.2] * 6, [1e-4] * 7, False),
    ],
    ids=["as it should", "static is quick", "late early", "never late"],
)
def test_flux_14_asks_for_latency_of_memory_until_memory_is_used_up(
    static: list[float], spread: list[float], holds: bool
) -> None:
    assert held("flux-14", swept_memory(static, spread, latency=True)) is holds


def policies(
    load: float, memory: float, hybrid: float, name: str
) -> dict[str, dict[float, Result]]:
    values = {"load balancing": load, "memory-based": memory, "hybrid": hybrid}
    rows = dict.fromkeys(values, 100.0) if name == "latency_s" else values
    return {
        line: {0: made(60.0, **{"rows_per_s": [rows[line]] * 60, name: [value] * 60})}
        for line, value in values.items()
    }


@pytest.mark.parametrize(
    ("figure", "load", "memory", "hybrid", "holds"),
    [
        ("flux-15a", 100, 80, 95, True),
        ("flux-15a", 100, 80, 89, False),
        ("flux-15a", 100, 95, 98, False),
        ("flux-15b", 100, 100, 95, True),
        ("flux-15b", 100, 110, 95, False),
        ("flux-15c", 4.0, 2.0, 2.0, True),
        ("flux-15c", 3.0, 2.0, 2.0, False),
        ("flux-15c", 4.0, 1.0, 2.0, False),
    ],
)
def test_flux_15_asks_hybrid_to_match_both(
    figure: str, load: float, memory: float, hybrid: float, holds: bool
) -> None:
    name = "latency_s" if figure == "flux-15c" else "rows_per_s"
    assert held(figure, policies(load, memory, hybrid, name)) is holds


@pytest.mark.parametrize("name", FLUX_FIGURES)
def test_every_run_of_a_figure_is_a_scenario_that_can_be_made(name: str) -> None:
    runs = SIMULATED[name].runs()
    slots = {scenario.slots for by_x in runs.values() for scenario in by_x.values()}
    assert slots <= ({8, 32} if name.startswith("flux-tuning") else {32})
    assert len({tuple(by_x) for by_x in runs.values()}) == 1 or not SIMULATED[name].names


def tuned(
    auto: float, fixed: float = 100.0, late: float = 0.0, moves: float = 3.0
) -> dict[str, dict[float, Result]]:
    """Runs under each setting; of those under auto, the last has its own value and moves."""
    runs = SIMULATED["flux-tuning"].runs()
    last = next(x for x, one in runs[AUTO].items() if one.name == FAST)

    def one(line: str, x: float, scenario: Scenario) -> Result:
        mine = line == AUTO and x == last
        rows, some = (auto, moves) if mine else (fixed, 3.0)
        half = some - late if mine else 0.0
        found = made(2.0, rows_per_s=[rows] * 2, latency_s=[0.5] * 2, moves=[half, some])
        named = found.scenario.changed(name=scenario.name, groups=64)
        return replace(found, scenario=named, totals={**found.totals, "moves": some})

    return {
        line: {x: one(line, x, scenario) for x, scenario in by_x.items()}
        for line, by_x in runs.items()
    }


@pytest.mark.parametrize(
    ("auto", "late", "moves", "holds"),
    [(95.0, 0.0, 3, True), (94.0, 0.0, 3, False), (100.0, 2.0, 3, False), (100.0, 0.0, 67, False)],
    ids=["near the best", "too far", "follows what is too fast", "more than the bound"],
)
def test_tuning_asks_to_be_near_the_best_and_not_to_thrash(
    auto: float, late: float, moves: float, holds: bool
) -> None:
    assert held("flux-tuning", tuned(auto, late=late, moves=moves)) is holds


def test_points_of_tuning_are_parts_of_the_best_fixed_setting() -> None:
    points = {
        "10 ms": {1.0: 50.0, 2.0: 4.0},
        "1 s": {1.0: 100.0, 2.0: 2.0},
        AUTO: {1.0: 90.0, 2.0: 5.0},
    }
    assert parts(points) == {
        "10 ms": {1.0: 0.5, 2.0: 1.0},
        "1 s": {1.0: 1.0, 2.0: 0.5},
        AUTO: {1.0: 0.9, 2.0: 1.25},
    }


def test_page_names_the_workloads_of_tuning_and_says_how_often_groups_move() -> None:
    page = rendered([document(SIMULATED["flux-tuning"], tuned(97.0))])
    for text in (
        "Auto has between 0.97 (alternating, 5 s) and 1.00 of the best fixed setting",
        "Moves a minute: alternating, 5 s 90 (second half 0; 10 ms, 1.2: 90)",
        "| alternating, 5 s | 1 | 1 | 1 | 1 | 1 | 1 | 0.97 |",
        "In rows a second auto has 1.00 in flux-15c",
    ):
        assert text in page


def test_where_the_strategy_is_for_latency_that_is_what_counts() -> None:
    runs = tuned(100.0)
    at = next(x for x, one in runs[AUTO].items() if one.scenario.name == HEAVY)
    late = made(2.0, rows_per_s=[200.0] * 2, latency_s=[1.0] * 2)
    runs[AUTO][at] = replace(late, scenario=runs[AUTO][at].scenario)
    found = document(SIMULATED["flux-tuning"], runs)
    assert found["holds"] is False
    assert found["measured"]["vs_best_fixed"][HEAVY] == 0.5
    assert found["measured"]["rows_vs_best_fixed"][HEAVY] == 2.0


@pytest.mark.parametrize(("auto", "holds"), [(95.0, True), (94.0, False)])
def test_tuned_gap_is_asked_to_be_near_the_best(auto: float, holds: bool) -> None:
    runs = SIMULATED["flux-tuning-gap"].runs()
    results = {
        line: {x: steady(auto if line == AUTO else 100.0 - at) for x in by_x}
        for at, (line, by_x) in enumerate(runs.items())
    }
    assert held("flux-tuning-gap", results) is holds
