"""Runs the figures of FLUX and PLANS on simulated slots, without Spark, and makes their documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from spillway_lab.reproduce.flux.exchange import EXCHANGE_FIGURES
from spillway_lab.reproduce.flux.hybrid import HYBRID_FIGURES
from spillway_lab.reproduce.flux.load import LOAD_FIGURES
from spillway_lab.reproduce.flux.memory import MEMORY_FIGURES
from spillway_lab.reproduce.flux.terms import R, S, SimulatedFigure
from spillway_lab.reproduce.flux.tuning import TUNING_FIGURES
from spillway_lab.reproduce.plans.moves import MOVE_FIGURES
from spillway_lab.reproduce.plans.optimisation import BETTER_FIGURE, PLAN_FIGURES
from spillway_lab.simulator.cluster.scenario import Scenario
from spillway_lab.simulator.cluster.simulation import Result, simulate
from spillway_lab.simulator.join.scenario import JoinScenario
from spillway_lab.simulator.join.simulation import simulate_join

_ALL = (*EXCHANGE_FIGURES, *LOAD_FIGURES, *MEMORY_FIGURES, *HYBRID_FIGURES, *TUNING_FIGURES)
FLUX = {figure.name: figure for figure in _ALL}
PLANS = {figure.name: figure for figure in (*PLAN_FIGURES, *MOVE_FIGURES, BETTER_FIGURE)}
SIMULATED: dict[str, SimulatedFigure[Any, Result]] = {**FLUX, **PLANS}


def simulated_documents(
    figures: Sequence[SimulatedFigure[Any, Result]], say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """The documents of figures of FLUX and PLANS."""
    return documents_of(figures, simulated, say)


def documents_of(
    figures: Sequence[SimulatedFigure[S, R]], run: Callable[[S], R], say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """The figures' documents; figures that share a run share it."""
    known: dict[str, R] = {}

    def ran(scenario: S, told: str) -> R:
        key = json.dumps(scenario.to_json(), sort_keys=True)
        if key not in known:
            say(told)
            known[key] = run(scenario)
        return known[key]

    for figure in figures:
        results, others = (
            {
                line: {
                    x: ran(one, f"simulating {figure.name}: {line}, {x:g}")
                    for x, one in by_x.items()
                }
                for line, by_x in some.items()
            }
            for some in (figure.runs(), figure.others())
        )
        yield document(figure, results, others)


def simulated(scenario: Scenario | JoinScenario) -> Result:
    """Runs a scenario of FLUX or PLANS."""
    return simulate_join(scenario) if isinstance(scenario, JoinScenario) else simulate(scenario)


def document(
    figure: SimulatedFigure[S, R],
    results: Mapping[str, Mapping[float, R]],
    others: Mapping[str, Mapping[float, R]] | None = None,
) -> dict[str, Any]:
    """The figure as plain data; no claim holds where a check of a run failed."""
    points, every = figure.points(results), {**results, **(others or {})}
    measured, borne_out = figure.judge(points, every)
    wrong = [w for by_x in every.values() for found in by_x.values() for w in found.violations]
    return {
        "figure": figure.name,
        "claim": figure.claim,
        "paper": figure.paper,
        "series": {
            line: {"x": list(by_x), "y": list(by_x.values())} for line, by_x in points.items()
        },
        "measured": {
            **measured,
            "moves": {
                line: [int(found.totals["moves"]) for found in by_x.values()]
                for line, by_x in results.items()
            },
            "violations": wrong[:5],
            "exact": not wrong,
        },
        "holds": borne_out and not wrong,
    }
