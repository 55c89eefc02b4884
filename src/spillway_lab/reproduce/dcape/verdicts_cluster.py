"""Whether the claims on several slots held: relocation, strategies, machines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any

from spillway_lab.reproduce.dcape import machines
from spillway_lab.reproduce.dcape.relocation import (
    BALANCED,
    BOTTOM,
    CLEANUP_TIMES,
    LAZY,
    SAME_OUTPUT,
    TOP,
    WITH,
    WITHOUT,
)
from spillway_lab.reproduce.dcape.strategy import ACTIVE
from spillway_lab.reproduce.results import Results, Runs, Verdict, apart, moved
from spillway_lab.reproduce.runs import Run
from spillway_lab.reproduce.terms import ALL_MEMORY

#: No measured time is less; it keeps ratios finite.
_LEAST_S = 1e-3


def costs_little(results: Results) -> Verdict:
    """DCAPE 9: as much output as without relocation, and more relocations the higher theta_r is."""
    runs = results.runs
    all_memory = runs[ALL_MEMORY]
    shares = {
        name: round(run.output[-1] / max(1, all_memory.output[-1]), 4) for name, run in runs.items()
    }
    times = {
        name: round(run.processing_s / max(_LEAST_S, all_memory.processing_s), 2)
        for name, run in runs.items()
    }
    holds = all(round(abs(1 - share), 4) <= SAME_OUTPUT for share in shares.values())
    holds = holds and len(runs[TOP].relocated) > len(runs[BOTTOM].relocated)
    return {**moved(runs), "vs_all_memory": shares, "processing_ratio": times}, holds


def fewer_with_time(results: Results) -> Verdict:
    """DCAPE-TR 15: the runs come in the order of tau_m, the shortest first."""
    runs = results.runs
    counts = [len(run.relocated) for run in runs.values()]
    difference = apart([run.output[-1] for run in runs.values()])
    falls = all(many >= few for many, few in pairwise(counts)) and counts[0] > counts[-1]
    return {**moved(runs), "output_difference": difference}, falls and difference <= SAME_OUTPUT


def balances(results: Results) -> Verdict:
    """DCAPE 10: the mean of M_least/M_max after the first relocation, with and without."""
    runs = results.runs
    ended = runs[WITH].relocated
    since = ended[0] + 1 if ended else 0
    mean = {name: fmean(run.balance[since:] or (0.0,)) for name, run in runs.items()}
    least = {name: round(min(run.balance[since:], default=0.0), 4) for name, run in runs.items()}
    holds = bool(ended) and mean[WITH] >= BALANCED > mean[WITHOUT]
    told = {name: round(value, 4) for name, value in mean.items()}
    return {**moved(runs), "balance": told, "least_balance": least}, holds


def avoids_spills(results: Results) -> Verdict:
    """DCAPE 11: more output, fewer spills."""
    runs = results.runs
    ratio = _ratio(runs, WITH, WITHOUT)
    holds = ratio > 1 and runs[WITH].spills < runs[WITHOUT].spills
    return {**moved(runs), "output_ratio": round(ratio, 4)}, holds


def shares_cleanup(results: Results) -> Verdict:
    """DCAPE 12: more output, and a shorter cleanup in the slot that has most of it."""
    measured, borne_out = _cleanup_shared(results.runs)
    if results.by_part:
        measured["other_parts"] = {
            f"{part:g}": _told_in_short(*_cleanup_shared(runs))
            for part, runs in results.by_part.items()
        }
    return {**moved(results.runs), **measured}, borne_out


def _cleanup_shared(runs: Runs) -> Verdict:
    ratio = _ratio(runs, LAZY, WITHOUT)
    seconds = {name: max(run.slot_cleanup_s, default=0.0) for name, run in runs.items()}
    rows = {name: max(run.slot_cleaned, default=0) for name, run in runs.items()}
    shorter = seconds[WITHOUT] / max(_LEAST_S, seconds[LAZY])
    measured = {
        "output_ratio": round(ratio, 4),
        "slot_cleanup_s": {name: round(value, 3) for name, value in seconds.items()},
        "cleanup_s_ratio": round(shorter, 2),
        "slot_cleanup_rows": rows,
        "cleanup_ratio": round(rows[WITHOUT] / max(1, rows[LAZY]), 2),
    }
    return measured, ratio > 1 and shorter >= CLEANUP_TIMES


def _told_in_short(measured: Mapping[str, Any], borne_out: bool) -> dict[str, Any]:
    ratios = ("output_ratio", "cleanup_s_ratio", "cleanup_ratio")
    return {**{name: measured[name] for name in ratios}, "holds": borne_out}


def dips_then_wins(results: Results) -> Verdict:
    """DCAPE 13: after it began, active-disk is at some time not above lazy-disk; at the end it is."""
    runs = results.runs
    ratio = _ratio(runs, ACTIVE, LAZY)
    forced = runs[ACTIVE].forced
    since = forced[0] if forced else len(runs[ACTIVE].output)
    pairs = list(zip(runs[ACTIVE].output, runs[LAZY].output, strict=True))[since:]
    below = [active / lazy for active, lazy in pairs if lazy and active <= lazy]
    measured = {
        "output_ratio": round(ratio, 4),
        "least_output_ratio": round(min(below), 4) if below else None,
        "batches_below": sum(active < lazy for active, lazy in pairs),
        "batches_after_forcing": len(pairs),
    }
    return {**moved(runs), **measured}, bool(below) and ratio > 1


def wins_by_more(results: Results) -> Verdict:
    """DCAPE 14: the ratio of the outputs is larger than that of DCAPE 13."""
    ratio, before = _ratio(results.runs, ACTIVE, LAZY), _ratio(results.other, ACTIVE, LAZY)
    measured = {"output_ratio": round(ratio, 4), "output_ratio_before": round(before, 4)}
    return {**moved(results.runs), **measured}, ratio > 1 and ratio > before


def machines_cost_little(results: Results) -> Verdict:
    """DCAPE-TR 6: the same output at all times, and a bounded processing time."""
    runs = list(results.runs.values())
    series = zip(*(run.output for run in runs), strict=True)
    difference = max(apart(now) for now in series)
    times = runs[-1].processing_s / max(_LEAST_S, runs[0].processing_s)
    holds = difference <= machines.SAME_OUTPUT and times <= machines.PROCESSING_TIMES
    measured = {"output_difference": difference, "processing_ratio": round(times, 2)}
    return {**moved(results.runs), **measured}, holds


def machines_last_longer(results: Results) -> Verdict:
    """DCAPE-TR 7: when the fullest of 1, 2, ... slots first has more than the limit."""
    full = {name: _full_since(run, results.limit) for name, run in results.runs.items()}
    order = [len(results.runs["M1"].output) if at is None else at for at in full.values()]
    outputs = {results.runs[name].output[-1] for name in ("M4", "M5")}
    holds = (
        all(earlier <= later for earlier, later in pairwise(order))
        and order[0] < order[1]
        and full["M4"] is None
        and full["M5"] is None
        and len(outputs) == 1
    )
    minutes = {name: None if at is None else at + 1 for name, at in full.items()}
    return {**moved(results.runs), "full_after_minutes": minutes}, holds


def _full_since(run: Run, limit_bytes: int) -> int | None:
    return next((at for at, size in enumerate(run.fullest) if size > limit_bytes), None)


def _ratio(runs: Runs, one: str, other: str) -> float:
    return runs[one].output[-1] / max(1, runs[other].output[-1])
