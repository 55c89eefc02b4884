"""FLUX section 6.4: load and memory pressure at once, and the policy that considers both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from spillway_lab.reproduce.flux.load import SLOTS, some_slots
from spillway_lab.reproduce.flux.memory import HYBRID, LOAD, MEMORY, pressed
from spillway_lab.reproduce.flux.terms import (
    Points,
    Results,
    Runs,
    SimulatedFigure,
    Verdict,
    steady_latency,
    steady_rows,
)
from spillway_lab.simulator.cluster.presets import EXTERNAL
from spillway_lab.simulator.cluster.scenario import MB, Disturbance
from spillway_lab.simulator.cluster.simulation import Result

#: Ratios of throughput that count as equal, and as larger.
EQUAL, LARGER = 0.9, 1.05
#: The ratio of latency that counts as halved.
HALVED = 1.8
LAST_S = 40.0


def _mixed(medium: bool) -> Runs:
    if medium:
        slots = some_slots(8, seed=15)
        disturbances: tuple[Disturbance, ...] = (
            Disturbance(slots, cpu=EXTERNAL, memory_bytes=512 * MB),
        )
    else:
        half = some_slots(SLOTS // 2, seed=15)
        others = tuple(slot for slot in range(SLOTS) if slot not in half)
        disturbances = (
            Disturbance(half, cpu=EXTERNAL, memory_bytes=512 * MB),
            Disturbance(others, cpu=EXTERNAL, memory_bytes=262 * MB),
        )
    return {line: {0: pressed(disturbances, line, 240)} for line in (LOAD, MEMORY, HYBRID)}


def _ends(value: Callable[[Result, float], float], results: Results) -> dict[str, float]:
    return {line: round(value(by_x[0], LAST_S), 6) for line, by_x in results.items()}


def _settled_s(found: Result) -> float:
    """The second from which throughput stays within a tenth of its final value."""
    end = steady_rows(found, LAST_S)
    pairs = zip(found.series["second"], found.series["rows_per_s"], strict=True)
    return max((at for at, rows in pairs if rows < EQUAL * end), default=0.0) + 1


def _judge_medium(_: Points, results: Results) -> Verdict:
    ends = _ends(steady_rows, results)
    settled = {line: _settled_s(by_x[0]) for line, by_x in results.items()}
    ratios = {line: round(ends[HYBRID] / ends[line], 4) for line in (LOAD, MEMORY)}
    measured = {"rows_per_s": ends, "settled_s": settled, "hybrid_vs": ratios}
    return measured, ratios[LOAD] >= EQUAL and ratios[MEMORY] >= LARGER


def _judge_heavy_rows(_: Points, results: Results) -> Verdict:
    ends = _ends(steady_rows, results)
    ratios = {line: round(ends[HYBRID] / ends[line], 4) for line in (LOAD, MEMORY)}
    return {"rows_per_s": ends, "hybrid_vs": ratios}, min(ratios.values()) >= EQUAL


def _judge_heavy_waits(_: Points, results: Results) -> Verdict:
    ends = _ends(steady_latency, results)
    ratios = {line: round(ends[line] / max(ends[HYBRID], 1e-9), 4) for line in (LOAD, MEMORY)}
    measured = {"latency_s": ends, "hybrid_vs": ratios}
    return measured, ratios[LOAD] >= HALVED and ratios[MEMORY] >= EQUAL


def _words_rows(measured: Mapping[str, Any]) -> str:
    ends = ", ".join(f"{name} {rows:,.0f}" for name, rows in measured["rows_per_s"].items())
    ratios = ", ".join(f"{part:.2f} x {name}" for name, part in measured["hybrid_vs"].items())
    told = f"rows a second at the end: {ends}; hybrid has {ratios}"
    if "settled_s" in measured:
        settled = ", ".join(f"{name} {at:g} s" for name, at in measured["settled_s"].items())
        told += f"; settled after: {settled}"
    return told


def _words_waits(measured: Mapping[str, Any]) -> str:
    ends = ", ".join(f"{name} {some:.2f} s" for name, some in measured["latency_s"].items())
    return (
        f"latency at the end: {ends}; load balancing has {measured['hybrid_vs'][LOAD]:.2f} x that of "
        "hybrid"
    )


_HEAVY = (
    "Every machine is loaded; half of them have 512 MB less memory, the others 262 MB less, just enough "
    "to put one group on disk. Each run lasts 240 s, and the last 40 s count."
)

HYBRID_FIGURES = (
    SimulatedFigure(
        "flux-15a",
        "FLUX, figure 15a: throughput of the policies, 8 machines loaded and with half of their memory",
        f"Hybrid is as good as load balancing (at least {EQUAL:g} x) and better than memory-based (at "
        f"least {LARGER:g} x).",
        "hybrid and load balancing beat memory-based; hybrid is steady after 55 s, load balancing "
        "after 63 s",
        "virtual seconds",
        "rows a second",
        partial(_mixed, medium=True),
        "rows_per_s",
        _judge_medium,
        _words_rows,
        "Each run lasts 240 s, and the last 40 s count.",
    ),
    SimulatedFigure(
        "flux-15b",
        "FLUX, figure 15b: throughput of the policies, all machines loaded and short of memory",
        f"Throughput is the same under all policies (hybrid at least {EQUAL:g} x the others).",
        "throughput is unaffected by the policies; disks are the bottleneck",
        "virtual seconds",
        "rows a second",
        partial(_mixed, medium=False),
        "rows_per_s",
        _judge_heavy_rows,
        _words_rows,
        _HEAVY,
    ),
    SimulatedFigure(
        "flux-15c",
        "FLUX, figure 15c: latency of the policies, all machines loaded and short of memory",
        f"Hybrid halves the latency of load balancing (it is at least {HALVED:g} x as long), and is as "
        "good as memory-based.",
        "latency reduced by a factor of two",
        "virtual seconds",
        "mean latency of a row, s",
        partial(_mixed, medium=False),
        "latency_s",
        _judge_heavy_waits,
        _words_waits,
        _HEAVY,
        log_y=True,
    ),
)
