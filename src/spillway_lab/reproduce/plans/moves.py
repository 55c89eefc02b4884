"""PLANS section 5.3: parallel track and moving state, over windows and rates (figures 9 to 12)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from spillway.metrics.events import (
    DeactivationAsked,
    DuplicationAsked,
    GroupsDeleted,
    GroupsReactivated,
    MoveEvent,
)
from spillway_lab.reproduce.flux.terms import (
    JoinRuns,
    Points,
    Results,
    SimulatedFigure,
    Verdict,
)
from spillway_lab.reproduce.plans.optimisation import MSLB, NONE, PTLB, balanced
from spillway_lab.simulator.cluster.simulation import Result
from spillway_lab.simulator.join.scenario import JoinScenario

WINDOWS_S = (15.0, 30.0, 45.0, 60.0)
RATES = (30, 40, 50)
#: One window, as Spillway's own joins need.
ONE_WINDOW = "PTLB, one window"
#: Links as slow, relative to the slots, as measured.
CALIBRATED = "MSLB, calibrated link"
#: Slots that always keep up.
FAST = "PTLB, slots 5 x as fast"
#: What counts as no lead, as a lead that has grown, as about 2 W, and as much less.
ALIKE, GROWN, ABOUT, MUCH_LESS = 0.98, 0.02, (1.8, 2.5), 0.5


def steady(rate: float, window_s: float) -> JoinScenario:
    """The workload of 5.3: three streams of the same rate."""
    return JoinScenario(
        "plans",
        300.0,
        rates=((0.0, (float(rate),) * 3),),
        window_s=window_s,
        matching=0.07,
        work_per_s=110.0,
        tick_s=0.5,
    )


def _settings() -> dict[str, dict[str, Any]]:
    return {
        NONE: {},
        "PTLB": {"adapt": balanced(PTLB)},
        "MSLB": {"adapt": balanced(MSLB)},
    }


def _named(line: str, rate: int, shown: int) -> str:
    return line if rate == shown else f"{line}, {rate}"


def _swept(shown: int) -> JoinRuns:
    """All settings at a rate; and at the lower rates, which no line shows."""
    runs = {
        _named(line, rate, shown): {w: steady(rate, w).changed(**some) for w in WINDOWS_S}
        for rate in RATES
        if rate <= shown
        for line, some in _settings().items()
    }
    return {**runs, CALIBRATED: {w: run.calibrated() for w, run in runs["MSLB"].items()}}


def _over_none(points: Points) -> Points:
    return {
        line: {w: rows / max(points[NONE][w], 1e-9) for w, rows in points[line].items()}
        for line in _settings()
    }


def _lead(results: Results, ptlb: str, mslb: str) -> dict[str, float]:
    return {
        f"{w:g}": round(results[mslb][w].totals["results"] / max(found.totals["results"], 1e-9), 4)
        for w, found in results[ptlb].items()
    }


def _judge_swept(shown: int, points: Points, results: Results) -> Verdict:
    leads = {
        rate: _lead(results, _named("PTLB", rate, shown), _named("MSLB", rate, shown))
        for rate in RATES
        if rate <= shown
    }
    mean = {
        f"{rate}": round(float(np.mean(list(by_w.values()))), 4) for rate, by_w in leads.items()
    }
    lead = list(leads[shown].values())
    measured = {
        "vs_none": {
            line: {f"{w:g}": round(y, 4) for w, y in by_w.items()} for line, by_w in points.items()
        },
        "mslb_vs_ptlb": leads[shown],
        "calibrated_vs_ptlb": _lead(results, "PTLB", CALIBRATED),
        "mean_lead_by_rate": mean,
    }
    rising = all(a <= b for a, b in zip(list(mean.values()), list(mean.values())[1:], strict=False))
    return measured, min(lead) >= ALIKE and lead[-1] >= lead[0] + GROWN and rising


def _words_swept(measured: Mapping[str, Any]) -> str:
    def told(by_w: Mapping[str, float]) -> str:
        return ", ".join(f"{ratio:.2f} x at {w} s" for w, ratio in by_w.items())

    over = measured["vs_none"]
    text = (
        f"MSLB has {told(measured['mslb_vs_ptlb'])} the results of PTLB. Over None, PTLB has "
        f"{told(over['PTLB'])}. Over None, MSLB has {told(over['MSLB'])}"
    )
    if len(measured["mean_lead_by_rate"]) > 1:
        means = ", ".join(
            f"{lead:.3f} x at {rate} rows a second"
            for rate, lead in measured["mean_lead_by_rate"].items()
        )
        text += f". MSLB over PTLB, on average over the windows: {means}"
    slow = told(measured["calibrated_vs_ptlb"])
    return f"{text}. MSLB over PTLB, if links are as slow as measured here: {slow}"


def lengths(found: Result) -> list[float]:
    """How long each move took, from when groups were deactivated or duplicated; also those under way."""
    begun: dict[int, float] = {}
    took = []
    for at, event in found.journal:
        if not isinstance(event, MoveEvent):
            continue
        if isinstance(event, DeactivationAsked | DuplicationAsked):
            begun[event.move] = at
        elif isinstance(event, GroupsReactivated | GroupsDeleted):
            took.append(at - begun.pop(event.move))
    return took


def _length(found: Result) -> float:
    took = lengths(found)
    return float(np.mean(took)) if took else found.scenario.seconds


def _lasting() -> JoinRuns:
    runs = {
        line: {w: steady(40, w).changed(**some) for w in WINDOWS_S}
        for line, some in _settings().items()
        if line != NONE
    }
    one = {w: run.changed(track_windows=1) for w, run in runs["PTLB"].items()}
    slow = {w: run.calibrated() for w, run in runs["MSLB"].items()}
    fast = {w: run.changed(work_per_s=5 * run.work_per_s) for w, run in runs["PTLB"].items()}
    return {**runs, CALIBRATED: slow, ONE_WINDOW: one, FAST: fast}


def _judge_lasting(points: Points, results: Results) -> Verdict:
    windows = {f"{w:g}": round(took / w, 4) for w, took in points["PTLB"].items()}
    less, slow = (
        {f"{w:g}": round(points[line][w] / took, 4) for w, took in points["PTLB"].items()}
        for line in ("MSLB", CALIBRATED)
    )
    measured = {
        "ptlb_windows": windows,
        "mslb_vs_ptlb": less,
        "calibrated_vs_ptlb": slow,
        "one_window": {f"{w:g}": round(took / w, 4) for w, took in points[ONE_WINDOW].items()},
        "fast_windows": {f"{w:g}": round(took / w, 4) for w, took in points[FAST].items()},
        "ended": {
            line: [len(lengths(found)) for found in by_w.values()] for line, by_w in results.items()
        },
    }
    low, high = ABOUT
    about = all(low <= part <= high for part in windows.values())
    return measured, about and max(less.values()) <= MUCH_LESS


def _words_lasting(measured: Mapping[str, Any]) -> str:
    told = ", ".join(f"{part:.2f} W at {w} s" for w, part in measured["ptlb_windows"].items())
    less = ", ".join(f"{part:.2f} at {w} s" for w, part in measured["mslb_vs_ptlb"].items())
    one = ", ".join(f"{part:.2f} W at {w} s" for w, part in measured["one_window"].items())
    slow = ", ".join(f"{part:.2f} at {w} s" for w, part in measured["calibrated_vs_ptlb"].items())
    fast = [f"{part:.2f}" for part in measured["fast_windows"].values()]
    return (
        f"PTLB takes {told}. If slots are 5 x as fast and keep up, it takes {min(fast)} to {max(fast)} "
        f"W. MSLB takes this fraction of PTLB's time: {less}. If links are as slow as measured here: "
        f"{slow}. In Spillway one window is enough for any shape; then PTLB takes {one}"
    )


SETUP = (
    "Four slots; the first has 62.5 % of the groups. Three streams of the same rate; all "
    "slots have the shape ((A B) C). 7 % of the pairs of rows of two streams in one group match. A "
    "slot does 110 units of work a second, a unit being one lookup: enough for the first slot at the "
    "lowest rate with the smallest window, too little for it in the others. (With 150, it keeps up "
    "at 30 rows a second with windows up to 30 s, and PTLB and MSLB are alike there.) The query "
    "compares slots every 45 s, the default. Each run is 300 s, one for each point."
)


def _ratio(name: str, number: int, rate: int, paper: str) -> SimulatedFigure[JoinScenario, Result]:
    grows = "" if rate == RATES[0] else ", and is on average not smaller than at lower rates"
    return SimulatedFigure(
        name,
        f"PLANS, figure {number}: results over those without adaptation, {rate} rows a second",
        f"MSLB is never behind PTLB (at least {ALIKE:g} x), its lead is larger with the largest window "
        f"than with the smallest (by at least {GROWN:g}){grows}.",
        paper,
        "window, s",
        "results, over those of None",
        partial(_swept, rate),
        lambda found: found.totals["results"],
        partial(_judge_swept, rate),
        _words_swept,
        SETUP,
        scaled=_over_none,
    )


MOVE_FIGURES = (
    _ratio(
        "plans-9", 9, 30, "the difference goes from insignificant to about 25 % in favour of MSLB"
    ),
    _ratio("plans-10", 10, 40, "similar but more dramatic, also where the window is small"),
    _ratio(
        "plans-11",
        11,
        50,
        "PTLB has about 90 % and MSLB about 100 % more than None with a small window; with larger ones "
        "PTLB comes nearer to None",
    ),
    SimulatedFigure(
        "plans-12",
        "PLANS, figure 12: how long load balancing takes, 40 rows a second",
        f"PTLB takes about two windows ({ABOUT[0]:g} to {ABOUT[1]:g}), MSLB at most {MUCH_LESS:g} of "
        "that.",
        "PTLB always takes approximately 2 W, MSLB usually a much shorter time",
        "window, s",
        "seconds that a move takes, on average",
        _lasting,
        _length,
        _judge_lasting,
        _words_lasting,
        SETUP,
    ),
)
