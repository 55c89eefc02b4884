"""PLANS section 5.2: local optimisation, load balancing, and both (figures 7, 8 and 13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from spillway.metrics.events import MoveAsked
from spillway_lab.reproduce.flux.terms import (
    JoinRuns,
    Points,
    Results,
    SimulatedFigure,
    Verdict,
)
from spillway_lab.simulator.cluster.simulation import Result
from spillway_lab.simulator.join.scenario import JoinScenario

NONE, LM = "None", "LM only"
PTLB, MSLB = "ptlb", "mslb"
#: When streams B and C become slow, and what counts as about twice and as three times.
CHANGE_S, TWICE, THRICE = 30.0, 1.7, 3.0
#: Other settings with ratios, so that the one shown does not look chosen.
OTHERS: dict[float, tuple[str, dict[str, Any]]] = {
    1.0: ("slots half as fast", {"work_per_s": 75.0}),
    2.0: ("slots twice as fast", {"work_per_s": 300.0}),
    3.0: (
        "7 slots half as fast, compared every 10 s",
        {"slots": 7, "work_per_s": 75.0, "every": "10 seconds"},
    ),
    4.0: (
        "2 slots 1.25 x as fast, a window of 120 s",
        {"slots": 2, "work_per_s": 187.5, "window_s": 120.0},
    ),
}
#: Factors on the cost of moving state, to see how figure 13 depends on it.
DEARER = (2.0, 4.0)
#: Links as slow as measured.
HERE = -1.0


def slowed(**changes: Any) -> JoinScenario:
    """The workload of 5.2: three streams of 100 rows a second; two of them fall to 5."""
    rates = ((0.0, (100.0, 100.0, 100.0)), (CHANGE_S, (100.0, 5.0, 5.0)))
    base = JoinScenario(
        "plans", 180.0, rates=rates, window_s=60.0, matching=0.07, work_per_s=150.0, tick_s=0.5
    )
    return base.changed(**changes)


def balanced(moves: str, every: str = "45 seconds") -> dict[str, Any]:
    """Load balancing by a protocol; everything else has a query's defaults."""
    return {"strategy": "relocate-only", "moves": moves, "relocation_interval": every}


def lines(moves: str) -> tuple[str, str, str, str]:
    """The names of the four settings."""
    return NONE, LM, f"{moves.upper()} only", f"LM + {moves.upper()}"


def _four(moves: str, every: str = "45 seconds", **changes: Any) -> dict[str, JoinScenario]:
    base, adapt = slowed(**changes), balanced(moves, every)
    settings: tuple[dict[str, Any], ...] = (
        {},
        {"optimise": True},
        {"adapt": adapt},
        {"optimise": True, "adapt": adapt},
    )
    return {line: base.changed(**some) for line, some in zip(lines(moves), settings, strict=True)}


def _settings(moves: str, others: Iterable[float] = ()) -> JoinRuns:
    """The runs that are shown, at 0; those in other settings at other places."""
    hidden = {x: _four(moves, **OTHERS[x][1]) for x in others}
    return {
        line: {0: scenario, **{x: some[line] for x, some in hidden.items()}}
        for line, scenario in _four(moves).items()
    }


def _ratios(results: Results, at: float) -> dict[str, float]:
    made = {line: by_x[at].totals["results"] for line, by_x in results.items()}
    return {line: round(rows / max(made[NONE], 1e-9), 4) for line, rows in made.items()}


def _judge_throughput(moves: str, _: Points, results: Results) -> Verdict:
    ratios = _ratios(results, 0)
    none, lm, lb, both = lines(moves)
    found = results[none][0]
    measured = {
        "vs_none": ratios,
        "all_vs_none": round(found.totals["results_due"] / max(found.totals["results"], 1e-9), 4),
        "reshapes": {line: int(by_x[0].totals["reshapes"]) for line, by_x in results.items()},
        "other_settings": {
            OTHERS[x][0]: _ratios(results, x) for x in sorted(set(results[none]) - {0})
        },
    }
    holds = min(ratios[lm], ratios[lb]) >= TWICE and ratios[both] >= THRICE
    return measured, holds


def _told(ratios: Mapping[str, float]) -> str:
    return ", ".join(f"{line} {ratio:.2f} x" for line, ratio in ratios.items() if line != NONE)


def _words_throughput(measured: Mapping[str, Any]) -> str:
    told = (
        f"results at the end, over those of None: {_told(measured['vs_none'])}. All results that "
        f"are due: {measured['all_vs_none']:.2f} x"
    )
    for setting, ratios in measured["other_settings"].items():
        told += f". With {setting}: {_told(ratios)}"
    return told


def _judge_tuples(moves: str, points: Points, _: Results) -> Verdict:
    after = {line: [y for x, y in by_x.items() if x > CHANGE_S] for line, by_x in points.items()}
    mean = {line: round(sum(some) / max(len(some), 1)) for line, some in after.items()}
    most = {line: round(max(by_x.values())) for line, by_x in points.items()}
    both = lines(moves)[3]
    holds = all(mean[both] <= some for some in mean.values())
    return {"mean_tuples": mean, "most_tuples": most}, holds


def _words_tuples(measured: Mapping[str, Any]) -> str:
    mean = ", ".join(f"{line} {some:,}" for line, some in measured["mean_tuples"].items())
    most = ", ".join(f"{line} {some:,}" for line, some in measured["most_tuples"].items())
    return f"tuples in the system after second 30, on average: {mean}. At most: {most}"


def _better() -> JoinRuns:
    base = slowed(optimise=True)
    ptlb, mslb = (base.changed(adapt=balanced(moves)) for moves in (PTLB, MSLB))
    dearer = {
        x: mslb.changed(ship_work=mslb.ship_work * x, link_bytes_per_s=mslb.link_bytes_per_s / x)
        for x in DEARER
    }
    return {"PTLB": {0: ptlb}, "MSLB": {0: mslb, **dearer, HERE: mslb.calibrated()}}


def _judge_better(points: Points, results: Results) -> Verdict:
    ptlb, mslb = points["PTLB"], points["MSLB"]
    made = results["PTLB"][0].totals["results"]
    dear = {x: found.totals["results"] for x, found in results["MSLB"].items() if x > 0}
    here = results["MSLB"][HERE].totals["results"]
    begun = [at for at, event in results["MSLB"][0].journal if isinstance(event, MoveAsked)]
    since = min(begun, default=CHANGE_S)
    lead = [ptlb[x] / max(mslb[x], 1e-9) for x in ptlb if x > since]
    end, mean = round(lead[-1], 4), round(sum(lead) / len(lead), 4)
    measured = {
        "begun_s": since,
        "ptlb_vs_mslb": end,
        "mean": mean,
        "least": round(min(lead), 4),
        "most": round(max(lead), 4),
        "where_calibrated": round(made / max(here, 1e-9), 4),
        "where_dearer": {f"{x:g}": round(made / max(rows, 1e-9), 4) for x, rows in dear.items()},
    }
    return measured, end > 1 and mean > 1


def _words_better(measured: Mapping[str, Any]) -> str:
    dearer = "".join(
        f". At the end {ratio:.3f} x if moving state costs {x} times as much"
        for x, ratio in measured["where_dearer"].items()
    )
    return (
        f"PTLB has {measured['ptlb_vs_mslb']:.3f} x the results of MSLB at the end. Since load "
        f"balancing began in second {measured['begun_s']:g}, it has {measured['mean']:.3f} x on "
        f"average, between {measured['least']:.3f} and {measured['most']:.3f} x{dearer}. At the end "
        f"{measured['where_calibrated']:.3f} x if links are as slow as measured here"
    )


SETUP = (
    "Four slots; the first has 62.5 % of the groups: half, and its share of the other half. "
    "A window of 60 s; 7 % of the pairs of rows of two streams in one group match, with which local "
    "optimisation saves a factor of up to 2.7 in this cost model. A slot does 150 units of work a "
    "second, a unit being one lookup, so the first slot falls behind in the first seconds and the "
    "others do not. The query compares slots every 45 s, the default, by the memory of their states "
    "and of the waiting rows. The run is 180 s."
)


def _throughput(moves: str, name: str) -> SimulatedFigure[JoinScenario, Result]:
    which = f"figure 7, by {moves.upper()}" if moves == PTLB else "figure 7 with MSLB"
    return SimulatedFigure(
        name,
        f"PLANS, {which}: results so far",
        f"Local optimisation and load balancing alone each give about twice the results of None (at "
        f"least {TWICE:g} x), both together at least {THRICE:g} x.",
        "each alone about 100 % more than None; both about 330 % more"
        if moves == PTLB
        else "very similar patterns as with PTLB",
        "virtual seconds",
        "results so far",
        partial(_settings, moves, tuple(OTHERS)),
        "results",
        partial(_judge_throughput, moves),
        _words_throughput,
        SETUP,
    )


def _tuples(moves: str, name: str) -> SimulatedFigure[JoinScenario, Result]:
    which = f"figure 8, by {moves.upper()}" if moves == PTLB else "figure 8 with MSLB"
    return SimulatedFigure(
        name,
        f"PLANS, {which}: tuples in the system",
        "After the change of rates there are fewest tuples in the system with both, on average.",
        "the two settings with local optimisation have much lower build-up; load balancing alone has "
        "about that of None"
        if moves == PTLB
        else "very similar patterns as with PTLB",
        "virtual seconds",
        "tuples that wait or are in states",
        partial(_settings, moves),
        "tuples",
        partial(_judge_tuples, moves),
        _words_tuples,
        SETUP,
    )


PLAN_FIGURES = (
    _throughput(PTLB, "plans-7"),
    _throughput(MSLB, "plans-7-mslb"),
    _tuples(PTLB, "plans-8"),
    _tuples(MSLB, "plans-8-mslb"),
)
BETTER_FIGURE = SimulatedFigure(
    "plans-13",
    "PLANS, figure 13: the case where the parallel track is better, results so far",
    "With local optimisation, and rates that fall shortly before load is balanced, PTLB has given more "
    "results than MSLB, on average since load balancing began and at the end.",
    "PTLB has better performance after the load balancing process is triggered",
    "virtual seconds",
    "results so far",
    _better,
    "results",
    _judge_better,
    _words_better,
    SETUP,
)
