"""PSP section 8.4: the rate of the streams doubles, and the ring adapts, or does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillway.policies.ring.model import best_length
from spillway_lab.reproduce.flux.terms import Points, Verdict
from spillway_lab.reproduce.psp.terms import PspFigure, PspResults, PspRuns, ring

PASSIVE, AGGRESSIVE = "passive adjustment", "aggressive adjustment"
FIXED, SMOOTHED = "no adaptation", "smoothing alone"
#: When the rate changes; and how long the ring may take to recover.
CHANGE_S, WITHIN_S = 300.0, 30.0
#: What counts as recovered: twice the rows are four times the work.
_STEADY = 5.0
_GROWN = 100.0


def _runs(adjustments: Mapping[str, str]) -> PspRuns:
    free = ring(1)
    slots = best_length(free.sources(free.rate), free.costs, free.most)
    changing = free.changed(
        slots=slots, rate_after=2 * free.rate, change_s=CHANGE_S, interleave=16, groups=512
    )
    return {line: {0: changing.changed(adjustment=how)} for line, how in adjustments.items()}


def _adapted() -> PspRuns:
    return _runs({PASSIVE: "passive", AGGRESSIVE: "aggressive"})


def _still() -> PspRuns:
    return _runs({FIXED: "none", SMOOTHED: "smoothing"})


def _told(results: PspResults) -> dict[str, dict[str, float]]:
    """By line: response before the change, at its worst, and after recovery; slots."""
    told = {}
    for line, by_x in results.items():
        found = by_x[0]
        before = found.mean("response_s", CHANGE_S - 100, CHANGE_S)
        later = [
            value
            for at, value in zip(found.series["second"], found.series["response_s"], strict=True)
            if at > CHANGE_S + WITHIN_S
        ]
        told[line] = {
            "before_ms": round(before * 1e3, 3),
            "most_ms": round(max(found.series["response_s"]) * 1e3, 3),
            "after_ms": round(max(later) * 1e3, 3),
            "end_ms": round(found.mean("response_s", found.scenario.seconds - 50) * 1e3, 3),
            "slots_before": found.series["slots"][0],
            "slots_after": found.series["slots"][-1],
        }
    return told


def _judge_adapted(_: Points, results: PspResults) -> Verdict:
    told = _told(results)
    holds = all(one["after_ms"] <= _STEADY * one["before_ms"] for one in told.values())
    return {"lines": told}, holds


def _judge_still(_: Points, results: PspResults) -> Verdict:
    told = _told(results)
    grows = {
        line: by_x[0].mean("response_s", 550) > by_x[0].mean("response_s", 450, 500)
        for line, by_x in results.items()
    }
    holds = all(one["end_ms"] >= _GROWN * one["before_ms"] for one in told.values())
    return {"lines": told, "still_grows": grows}, holds and all(grows.values())


def _words(measured: Mapping[str, Any]) -> str:
    told = (
        f"{line}: {one['before_ms']:.1f} ms with {one['slots_before']:g} slots before, at most "
        f"{one['most_ms']:,.0f} ms, and {one['end_ms']:,.1f} ms at the end with "
        f"{one['slots_after']:g} slots"
        for line, one in measured["lines"].items()
    )
    return "; ".join(told)


_SETUP = (
    "Selectivity 0.1, and the length that Equation 5 finds best for 50 rows a second of each "
    "stream. From "
    "300 s on 100 come, so that windows have twice the rows too: four times the work. 16 rows are "
    "in the "
    "ring at a time (PSP-I)."
)

RATE_FIGURES: tuple[PspFigure, ...] = (
    PspFigure(
        "psp-8g",
        "PSP, figure 8(g): response time with adaptation, when the rate doubles",
        f"{WITHIN_S:g} s after the change and from then on, response is at most {_STEADY:g} x what "
        "it was.",
        "runtime adaptation makes the system much more stable and robust",
        "virtual seconds",
        "response, s",
        _adapted,
        "response_s",
        _judge_adapted,
        _words,
        f"{_SETUP} Every 5 s the cost model says how long the ring should be. Passive adjustment "
        "routes "
        "slices to come to new slots, aggressive adjustment moves slices at once.",
        log_y=True,
    ),
    PspFigure(
        "psp-8h",
        "PSP, figure 8(h): response time without adaptation, when the rate doubles",
        "Without another length response grows as long as the rate lasts, and is at least "
        f"{_GROWN:g} x what "
        "it was.",
        "without adaptation the change of the rate is not coped with",
        "virtual seconds",
        "response, s",
        _still,
        "response_s",
        _judge_still,
        _words,
        _SETUP,
        log_y=True,
    ),
)
