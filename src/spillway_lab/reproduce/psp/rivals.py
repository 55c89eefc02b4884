"""PSP section 8.3: its two rivals that copy state, ATR and CTR, on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillway_lab.reproduce.flux.terms import Points, Verdict
from spillway_lab.reproduce.psp.terms import (
    LENGTHS,
    NOISE,
    PSP,
    PspFigure,
    PspResults,
    PspRuns,
    kept,
    milliseconds,
    never_falls,
    ring,
)
from spillway_lab.simulator.ring.scenario import RingScenario

SEGMENTS_S = (10, 20, 30, 40, 50)
COPIES = (2, 3, 4, 5, 7, 9)
#: Groups per slot of a cover; slots that no cover needs do not change it.
_GROUPS = 64
#: ATR's state must grow at least by this factor from the fewest slots to the most.
_GROWS = 1.5


def segment(seconds: float) -> str:
    """The name of the line of a segment length."""
    return f"ATR, {seconds:g} s"


def copies(count: int) -> str:
    """The name of the line of a number of copies."""
    return f"CTR, {count} copies"


def _psp() -> dict[float, RingScenario]:
    return {n: ring(n) for n in LENGTHS}


def _atr() -> PspRuns:
    lines: dict[str, dict[float, RingScenario]] = {
        segment(t): {n: ring(n).changed(distribution="atr", interval_s=float(t)) for n in LENGTHS}
        for t in SEGMENTS_S
    }
    return {**lines, PSP: _psp()}


def _ctr() -> PspRuns:
    lines: dict[str, dict[float, RingScenario]] = {
        copies(c): {
            n: ring(n).changed(distribution="ctr", copies=c, groups=_GROUPS * (n // c))
            for n in LENGTHS
            if n >= 2 * c
        }
        for c in COPIES
    }
    return {**lines, PSP: _psp()}


def _judge_atr_response(points: Points, _: PspResults) -> Verdict:
    lines = [points[segment(t)] for t in SEGMENTS_S]
    least = min(min(by_n.values()) / by_n[LENGTHS[0]] for by_n in lines)
    longer = all(never_falls([by_n[n] for by_n in lines]) for n in LENGTHS)
    slower = min(lines[0][n] / points[PSP][n] for n in LENGTHS)
    measured = {
        "seconds": {f"{t:g}": round(points[segment(t)][LENGTHS[-1]] / 1e3, 2) for t in SEGMENTS_S},
        "least_vs_4_slots": round(least, 4),
        "longer_with_segments": longer,
        "least_vs_psp": round(slower, 1),
    }
    return measured, least >= 1 - NOISE and longer and slower > 1


def _words_atr_response(measured: Mapping[str, Any]) -> str:
    told = ", ".join(f"{s} s with segments of {t} s" for t, s in measured["seconds"].items())
    return (
        f"{told}. With more slots it is never below {measured['least_vs_4_slots']:.2f} of the response "
        f"with 4. It is at least {measured['least_vs_psp']:.0f} x PSP's"
    )


def _judge_atr_state(points: Points, _: PspResults) -> Verdict:
    grows = {
        f"{t:g}": round(points[segment(t)][LENGTHS[-1]] / points[segment(t)][LENGTHS[0]], 2)
        for t in SEGMENTS_S
    }
    steady = all(never_falls(list(points[segment(t)].values())) for t in SEGMENTS_S)
    more = min(points[segment(t)][n] / points[PSP][n] for t in SEGMENTS_S for n in LENGTHS)
    measured = {"growth": grows, "steady": steady, "least_vs_psp": round(more, 2)}
    return measured, steady and min(grows.values()) >= _GROWS and more > 1


def _words_atr_state(measured: Mapping[str, Any]) -> str:
    told = ", ".join(f"{ratio:.1f} x with {t} s" for t, ratio in measured["growth"].items())
    return (
        f"from 4 to 19 slots the state grows {told}; it is at least {measured['least_vs_psp']:.1f} "
        "x PSP's"
    )


def _by_slots(points: Points) -> list[list[float]]:
    """For each number of slots, the points of all possible numbers of copies."""
    return [
        [points[copies(c)][n] for c in COPIES if n in points[copies(c)]]
        for n in LENGTHS
        if n in points[copies(COPIES[0])]
    ]


def _judge_ctr_response(points: Points, _: PspResults) -> Verdict:
    falls = all(never_falls(list(points[copies(c)].values())[::-1]) for c in COPIES)
    # With 7 copies or more, 19 slots have no larger cover than the fewest slots have.
    gains = {
        str(c): round(points[copies(c)][2 * c] / points[copies(c)][LENGTHS[-1]], 2)
        for c in COPIES
        if LENGTHS[-1] // c > 2
    }
    longer = all(never_falls(values) for values in _by_slots(points))
    spread = points[copies(COPIES[-1])][LENGTHS[-1]] / points[copies(COPIES[0])][LENGTHS[-1]]
    measured = {
        "falls_with_slots": falls,
        "times_shorter": gains,
        "longer_with_copies": longer,
        "most_vs_fewest_copies": round(spread, 1),
        "vs_psp": round(points[copies(2)][LENGTHS[-1]] / points[PSP][LENGTHS[-1]], 3),
        "vs_psp_8_slots": round(points[copies(2)][8] / points[PSP][8], 3),
    }
    return measured, falls and longer and min(gains.values()) > 1 and spread > 1


def _words_ctr_response(measured: Mapping[str, Any]) -> str:
    falls = "never rises" if measured["falls_with_slots"] else "rises somewhere"
    longer = "never shorter" if measured["longer_with_copies"] else "not always longer"
    return (
        f"response {falls} when slots are added, and is {longer} with more copies; with 19 slots, 9 "
        f"copies have {measured['most_vs_fewest_copies']:,.0f} x the response of 2. With 2 copies it is "
        f"{measured['vs_psp_8_slots']:.2f} of PSP's with 8 slots, and {measured['vs_psp']:.2f} with 19"
    )


def _judge_ctr_state(points: Points, _: PspResults) -> Verdict:
    spread = {
        str(c): round(max(by_n.values()) / min(by_n.values()), 4)
        for c, by_n in ((c, points[copies(c)]) for c in COPIES)
    }
    each = {
        str(c): round(points[copies(c)][LENGTHS[-1]] / points[PSP][LENGTHS[-1]], 3) for c in COPIES
    }
    measured = {"spread": spread, "times_psp": each}
    grows = never_falls(list(each.values())) and each["9"] > each["2"]
    return measured, grows and max(spread.values()) <= 1 + NOISE


def _words_ctr_state(measured: Mapping[str, Any]) -> str:
    told = ", ".join(f"{ratio:.1f} x with {c}" for c, ratio in measured["times_psp"].items())
    return (
        f"relative to PSP's rows, {told} copies; the number of slots changes this by at most "
        f"{max(measured['spread'].values()) - 1:.1%}"
    )


RIVAL_FIGURES: tuple[PspFigure, ...] = (
    PspFigure(
        "psp-8c",
        "PSP, figure 8(c): response time of ATR against the number of slots",
        "Response does not fall when slots are added, since one slot does all the work of a row; it is "
        "longer with longer segments, and always longer than PSP's.",
        "the response does not decrease with more nodes",
        "slots",
        "response, ms",
        _atr,
        milliseconds,
        _judge_atr_response,
        _words_atr_response,
        "Selectivity 0.1. The slot of a segment gets all rows of that time, more than it can process; "
        "it keeps processing them while other slots get theirs.",
        log_y=True,
    ),
    PspFigure(
        "psp-8d",
        "PSP, figure 8(d): state of ATR against the number of slots",
        f"State grows with the slots, by {_GROWS:g} or more from 4 to 19, and is always larger than "
        "PSP's.",
        "memory increases steadily with the number of nodes",
        "slots",
        "rows in all states",
        _atr,
        kept,
        _judge_atr_state,
        _words_atr_state,
        "Arriving rows purge old ones: a slot keeps the end of its segment until it gets another. "
        "A run of 600 s has 12 segments of 50 s, so with these at most 12 slots are used.",
    ),
    PspFigure(
        "psp-8e",
        "PSP, figure 8(e): response time of CTR against the number of slots",
        "Response falls when slots are added, and is longer with more copies, since the least "
        "cover of the "
        "slots is then smaller.",
        "the response decreases with more nodes, and increases with more copies",
        "slots",
        "response, ms",
        _ctr,
        milliseconds,
        _judge_ctr_response,
        _words_ctr_response,
        "Selectivity 0.1; at least twice as many slots as copies; one row at a time. A step goes to one "
        "slot in `copies`, in parallel, and waits for all of them. Finding a cover costs nothing here. "
        "Where only two slots do the work, they fall behind, and the response is that of a queue that "
        "grows for 600 s.",
        log_y=True,
    ),
    PspFigure(
        "psp-8f",
        "PSP, figure 8(f): state of CTR against the number of slots",
        f"State is the same whatever the number of slots, to {NOISE:.0%}, and grows with the copies.",
        "memory is fairly stable with more nodes, and increases with the number of copies",
        "slots",
        "rows in all states",
        _ctr,
        kept,
        _judge_ctr_state,
        _words_ctr_state,
    ),
)
