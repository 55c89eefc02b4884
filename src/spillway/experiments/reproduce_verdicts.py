"""From runs to a figure's document: its series, what was measured, and whether the claim held.

Pure. `holds` follows from the runs alone, and no claim holds if a run was not exact: every run must
have given, at run time and in cleanup together, as many rows as the join of its input has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from spillway.experiments.reproduce_runs import Run
from spillway.experiments.reproduce_spec import (
    ALL_MEMORY,
    CLEANUP_RATIO,
    LESS,
    MEMORY_PART,
    MORE,
    NOT_WORSE,
    OUTPUT_RATIO,
    Figure,
)

Runs = Mapping[str, Run]
#: What a figure adds to the measured numbers, and whether these bear its claim out.
Verdict = tuple[dict[str, Any], bool]


def document(
    figure: Figure,
    runs: Runs,
    limit_bytes: int,
    rows_expected: int,
    by_part: Mapping[float, Runs] = MappingProxyType({}),
) -> dict[str, Any]:
    """The figure as plain data, for `--json`, the plot and the page.

    The verdict is on `runs`; the runs `by_part`, under other limits, show what it depends on.
    """
    known = [run for some in (runs, *by_part.values()) for run in some.values()]
    exact = all(run.total == rows_expected for run in known)
    more, borne_out = _VERDICTS[figure.name](runs, limit_bytes)
    return {
        "figure": figure.name,
        "claim": figure.claim,
        "paper": figure.paper,
        "series": {
            "minute": list(range(1, 1 + len(runs[ALL_MEMORY].output))),
            figure.shows: {name: list(getattr(run, figure.shows)) for name, run in runs.items()},
        },
        "measured": {
            "memory_part": MEMORY_PART,
            "limit_bytes": limit_bytes,
            "output_rows": {name: run.output[-1] for name, run in runs.items()},
            "cleanup_rows": {name: run.cleaned for name, run in runs.items()},
            "cleanup_s": {name: round(run.cleanup_s, 3) for name, run in runs.items()},
            "spills": {name: run.spills for name, run in runs.items()},
            **more,
            **({"other_parts": _ratios_by_part(by_part)} if by_part else {}),
            "rows_expected": rows_expected,
            "exact": exact,
        },
        "holds": exact and borne_out,
    }


def falls_with_k(runs: Runs, _: int) -> Verdict:
    """DCAPE 5: every run in the order of All-Mem, 10, 30, 50, 100 % has less output than the last."""
    outputs = [run.output[-1] for run in runs.values()]
    top = runs[ALL_MEMORY].output[-1]
    shares = {name: round(run.output[-1] / top, 4) for name, run in runs.items()}
    return {"vs_all_memory": shares}, all(more > less for more, less in pairwise(outputs))


def stays_below_limit(runs: Runs, limit_bytes: int) -> Verdict:
    """DCAPE 6: a batch above the limit at most, never at the end of a batch; fewer and fewer spills."""
    held = runs[ALL_MEMORY].memory
    batch_bytes = max(after - before for before, after in pairwise((0, *held)))
    pushed = {name: run for name, run in runs.items() if name != ALL_MEMORY}
    over = {name: max(0, max(run.peak) - limit_bytes) for name, run in pushed.items()}
    most = {name: max(run.memory) for name, run in runs.items()}
    holds = (
        all(most[name] <= limit_bytes and over[name] <= batch_bytes for name in pushed)
        and all(run.spills > 0 for run in pushed.values())
        and all(many.spills > few.spills for many, few in pairwise(pushed.values()))
    )
    return {"batch_bytes": batch_bytes, "overshoot_bytes": over, "memory_bytes": most}, holds


def productive_stay(runs: Runs, _: int) -> Verdict:
    """DCAPE 7: the output ratio, and how many times fewer rows cleanup has left to make."""
    ratio, fewer = _output_ratio(runs), _cleanup_ratio(runs)
    measured = {"output_ratio": round(ratio, 4), "cleanup_ratio": round(fewer, 4)}
    return measured, ratio >= OUTPUT_RATIO and fewer >= CLEANUP_RATIO


def not_worse(runs: Runs, _: int) -> Verdict:
    """DCAPE-TR 12: the output ratio again."""
    ratio = _output_ratio(runs)
    return {"output_ratio": round(ratio, 4)}, ratio >= NOT_WORSE


def _output_ratio(runs: Runs) -> float:
    return runs[LESS].output[-1] / max(1, runs[MORE].output[-1])


def _cleanup_ratio(runs: Runs) -> float:
    # No row to make at all is fewer by any factor; 1 keeps the number finite.
    return runs[MORE].cleaned / max(1, runs[LESS].cleaned)


def _ratios_by_part(by_part: Mapping[float, Runs]) -> dict[str, dict[str, Any]]:
    found = {}
    for part, runs in by_part.items():
        measured, borne_out = productive_stay(runs, 0)
        found[f"{part:g}"] = {**measured, "holds": borne_out}
    return found


_VERDICTS: dict[str, Callable[[Runs, int], Verdict]] = {
    "dcape-5": falls_with_k,
    "dcape-6": stays_below_limit,
    "dcape-7": productive_stay,
    "dcape-tr-12": not_worse,
}
