"""FLUX section 5.4: a lasting processing load, and how the load-balancing policy answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spillway_lab.reproduce.flux.terms import (
    Points,
    Results,
    Runs,
    SimulatedFigure,
    Verdict,
    steady_rows,
)
from spillway_lab.simulator.cluster.presets import EXTERNAL, baseline
from spillway_lab.simulator.cluster.scenario import Disturbance, Scenario, Workload
from spillway_lab.simulator.cluster.workload import hottest_slot

UNLOADED, STATIC, BALANCED = "unloaded", "static", "load balancing"
SLOTS = 32
#: The policy's parameters in 5.4; th_imb and th_util are the defaults.
LOAD = {"strategy": "flux-load", "delta_min": "10 ms"}
#: Fraction of what the processors allow that counts as rebalanced; and the seconds to get there.
RESTORED, WITHIN_S = 0.9, 15.0
#: What counts as a sudden drop of the throughput.
SUDDEN = 0.6
LOADED = (0, 1, 2, 4, 8, 16, 24, 32)
DELTAS_MS = (10, 25, 50, 100, 150, 250, 500)


def allowed(loaded: int) -> float:
    """The fraction of all processor time that `loaded` loaded machines leave.

    Example:
        >>> allowed(0), round(allowed(32), 2)
        (1.0, 0.43)
    """
    return 1 - EXTERNAL * loaded / SLOTS


def some_slots(count: int, seed: int, first: int | None = None) -> tuple[int, ...]:
    """Random machines, including `first` if given."""
    order = np.random.default_rng(seed).permutation(SLOTS).tolist()
    if first is not None:
        order = [first, *(slot for slot in order if slot != first)]
    return tuple(sorted(order[:count]))


def _perturbed() -> Runs:
    free = baseline().changed(seconds=25)
    loaded = free.changed(disturbances=(Disturbance((0,), cpu=EXTERNAL, since_s=1),))
    lines = {UNLOADED: free, STATIC: loaded, BALANCED: loaded.changed(adapt=LOAD)}
    return {line: {0: scenario} for line, scenario in lines.items()}


def _judge_perturbed(points: Points, results: Results) -> Verdict:
    free = points[UNLOADED][1]
    felt = next((at for at, rows in points[STATIC].items() if rows < RESTORED * free), None)
    wanted = RESTORED * allowed(1) * free
    late = [at for at, rows in points[BALANCED].items() if rows < wanted]
    restored = max(late, default=0.0) + 1
    static = list(points[STATIC].values())[-1] / free
    measured = {
        "unloaded_rows_per_s": round(free),
        "static_part": round(static, 4),
        "felt_s": felt,
        "restored_s": restored,
        "balanced_part": round(list(points[BALANCED].values())[-1] / free, 4),
        "moved": int(results[BALANCED][0].totals["moves"]),
    }
    holds = static <= SUDDEN and felt is not None and restored - felt <= WITHIN_S
    return measured, bool(holds and restored < max(points[BALANCED]))


def _words_perturbed(measured: Mapping[str, Any]) -> str:
    return (
        f"the load starts in second 1 and is felt in second {measured['felt_s']:g}, when the skew "
        f"buffer is full. Static falls to {measured['static_part']:.2f} of the unloaded throughput. "
        f"Load balancing has {RESTORED:g} of what the processors allow from second "
        f"{measured['restored_s']:g} on, and "
        f"{measured['balanced_part']:.2f} of the unloaded case at the end, after {measured['moved']} "
        "moves"
    )


def _degrading() -> Runs:
    def loaded(count: int, adapt: Mapping[str, Any]) -> Scenario:
        slots = some_slots(count, seed=8)
        disturbances = (Disturbance(slots, cpu=EXTERNAL),) if count else ()
        return baseline().changed(seconds=60, disturbances=disturbances, adapt=adapt)

    return {
        STATIC: {n: loaded(n, {}) for n in LOADED},
        BALANCED: {n: loaded(n, LOAD) for n in LOADED},
    }


def _judge_degrading(points: Points, _: Results) -> Verdict:
    free = points[STATIC][0]
    static = {f"{n:g}": round(rows / free, 4) for n, rows in points[STATIC].items()}
    balanced = {
        f"{n:g}": round(rows / (free * allowed(int(n))), 4) for n, rows in points[BALANCED].items()
    }
    holds = max(list(static.values())[1:]) <= SUDDEN and min(balanced.values()) >= RESTORED
    return {"static_vs_unloaded": static, "balanced_vs_allowed": balanced}, holds


def _words_degrading(measured: Mapping[str, Any]) -> str:
    static, balanced = measured["static_vs_unloaded"], measured["balanced_vs_allowed"]
    return (
        f"static has {static['1']:.2f} of the unloaded throughput with one loaded machine and "
        f"{static['32']:.2f} with all; load balancing has between {min(balanced.values()):.2f} and "
        f"{max(balanced.values()):.2f} of what the remaining processors allow"
    )


def _skewed() -> Runs:
    free = baseline().changed(seconds=60, workload=Workload("self-similar"))
    slots = some_slots(8, seed=9, first=hottest_slot(free))
    loaded = free.changed(disturbances=(Disturbance(slots, cpu=EXTERNAL),))
    ends = (DELTAS_MS[0], DELTAS_MS[-1])

    def balanced(scenario: Scenario) -> dict[float, Scenario]:
        return {ms: scenario.changed(adapt={**LOAD, "delta_min": f"{ms} ms"}) for ms in DELTAS_MS}

    return {
        f"{STATIC}, {UNLOADED}": dict.fromkeys(ends, free),
        f"{BALANCED}, {UNLOADED}": balanced(free),
        f"{STATIC}, loaded": dict.fromkeys(ends, loaded),
        f"{BALANCED}, loaded": balanced(loaded),
    }


def _judge_skewed(points: Points, _: Results) -> Verdict:
    free = points[f"{STATIC}, {UNLOADED}"][DELTAS_MS[0]]
    parts = {
        line: {f"{ms:g}": round(rows / free, 4) for ms, rows in by_ms.items()}
        for line, by_ms in points.items()
    }
    beats = {
        name: next(
            (float(ms) for ms, part in parts[f"{BALANCED}, {name}"].items() if part > 1), None
        )
        for name in (UNLOADED, "loaded")
    }
    overreacts = parts[f"{BALANCED}, {UNLOADED}"]["10"] < 1
    measured = {"vs_static_unloaded": parts, "beats_from_ms": beats, "overreacts": overreacts}
    both = beats[UNLOADED] is not None and beats["loaded"] is not None
    return measured, overreacts and both


def _words_skewed(measured: Mapping[str, Any]) -> str:
    parts, beats = measured["vs_static_unloaded"], measured["beats_from_ms"]
    free, loaded = parts[f"{BALANCED}, {UNLOADED}"], parts[f"{BALANCED}, loaded"]
    told = (
        f"relative to static, unloaded throughput, load balancing has {free['10']:.2f} at 10 ms and "
        f"{free['250']:.2f} at 250 ms; under load, static has "
        f"{parts[f'{STATIC}, loaded']['10']:.2f}, load balancing {loaded['10']:.2f} and "
        f"{loaded['250']:.2f}"
    )
    for name, ms in beats.items():
        told += f"; {name}, it exceeds 1 " + ("nowhere" if ms is None else f"from {ms:g} ms on")
    return told


LOAD_FIGURES = (
    SimulatedFigure(
        "flux-7",
        "FLUX, figure 7: throughput over time, one machine loaded from the first second on",
        f"Without load balancing throughput falls at once to that of the slowest machine (at most "
        f"{SUDDEN:g} of the unloaded case); with it, at least {RESTORED:g} of what the processors allow "
        f"is restored within {WITHIN_S:g} s of when the load is felt.",
        "the load is felt after 4 s, when the buffer has filled; steady 9 s later, after 32 moves",
        "virtual seconds",
        "rows a second",
        _perturbed,
        "rows_per_s",
        _judge_perturbed,
        _words_perturbed,
    ),
    SimulatedFigure(
        "flux-8",
        "FLUX, figure 8: steady throughput against the number of loaded machines",
        f"Without load balancing one loaded machine costs as much as all (at most {SUDDEN:g} of the "
        "unloaded throughput); with it throughput falls linearly: at least "
        f"{RESTORED:g} of what the remaining processors allow, however many are loaded.",
        "static drops once a single machine is perturbed and stays there; load balancing degrades "
        "smoothly and linearly",
        "loaded machines",
        "rows a second",
        _degrading,
        steady_rows,
        _judge_degrading,
        _words_degrading,
        "Machines are chosen at random; each run lasts 60 s, and the last 20 s count.",
    ),
    SimulatedFigure(
        "flux-9",
        "FLUX, figure 9: the least collection time, under an 80/20 distribution of the rows",
        "With a short delta_min load balancing overreacts and does worse than none; with a longer one "
        "it beats the static, unloaded case, also when 8 machines are loaded.",
        "half of static at small delta_min; better than static from 250 ms on, and with load from "
        "150 ms on",
        "delta_min, ms",
        "rows a second",
        _skewed,
        lambda found: found.totals["rows_per_s"],
        _judge_skewed,
        _words_skewed,
        "80 % of the rows fall on 20 % of the keys, and likewise within these, so that the hottest "
        "group has a quarter of all rows. Its machine is one of the 8 loaded ones. Each run lasts 60 s.",
        log_x=True,
    ),
)
