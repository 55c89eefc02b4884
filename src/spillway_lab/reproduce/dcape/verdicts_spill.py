"""Whether the claims on spilling held. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from spillway_lab.reproduce.dcape.spill import (
    CLEANUP_RATIO,
    LESS,
    MORE,
    NOT_WORSE,
    OUTPUT_RATIO,
)
from spillway_lab.reproduce.results import Results, Runs, Verdict
from spillway_lab.reproduce.terms import ALL_MEMORY


def falls_with_k(results: Results) -> Verdict:
    """DCAPE 5: every run in the order of All-Mem, 10, 30, 50, 100 % has less output than the last."""
    runs = results.runs
    outputs = [run.output[-1] for run in runs.values()]
    top = runs[ALL_MEMORY].output[-1]
    shares = {name: round(run.output[-1] / top, 4) for name, run in runs.items()}
    return {"vs_all_memory": shares}, all(more > less for more, less in pairwise(outputs))


def stays_below_limit(results: Results) -> Verdict:
    """DCAPE 6: a batch above the limit at most, never at the end of a batch; fewer and fewer spills."""
    runs, limit = results.runs, results.limit
    held = runs[ALL_MEMORY].memory
    batch_bytes = max(after - before for before, after in pairwise((0, *held)))
    pushed = {name: run for name, run in runs.items() if name != ALL_MEMORY}
    over = {name: max(0, max(run.peak) - limit) for name, run in pushed.items()}
    most = {name: max(run.memory) for name, run in runs.items()}
    holds = (
        all(most[name] <= limit and over[name] <= batch_bytes for name in pushed)
        and all(run.spills > 0 for run in pushed.values())
        and all(many.spills > few.spills for many, few in pairwise(pushed.values()))
    )
    return {"batch_bytes": batch_bytes, "overshoot_bytes": over, "memory_bytes": most}, holds


def productive_stay(results: Results) -> Verdict:
    """DCAPE 7: the output ratio, and how many times fewer rows cleanup has left to make."""
    measured, borne_out = _ratios(results.runs)
    if results.by_part:
        measured["other_parts"] = _ratios_by_part(results.by_part)
    return measured, borne_out


def not_worse(results: Results) -> Verdict:
    """DCAPE-TR 12: the output ratio again."""
    ratio = _output_ratio(results.runs)
    return {"output_ratio": round(ratio, 4)}, ratio >= NOT_WORSE


def _ratios(runs: Runs) -> Verdict:
    ratio, fewer = _output_ratio(runs), _cleanup_ratio(runs)
    measured = {"output_ratio": round(ratio, 4), "cleanup_ratio": round(fewer, 4)}
    return measured, ratio >= OUTPUT_RATIO and fewer >= CLEANUP_RATIO


def _output_ratio(runs: Runs) -> float:
    return runs[LESS].output[-1] / max(1, runs[MORE].output[-1])


def _cleanup_ratio(runs: Runs) -> float:
    # No row to make at all is fewer by any factor; 1 keeps the number finite.
    return runs[MORE].cleaned / max(1, runs[LESS].cleaned)


def _ratios_by_part(by_part: Mapping[float, Runs]) -> dict[str, dict[str, Any]]:
    found = {}
    for part, runs in by_part.items():
        measured, borne_out = _ratios(runs)
        found[f"{part:g}"] = {**measured, "holds": borne_out}
    return found
