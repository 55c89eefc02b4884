"""FLUX section 6.3: too little memory, groups that take turns, and a policy that spreads them.

Each machine has 1 GB, and 128 groups of 6 MB: 768 MB. With 512 MB it has room for 85 of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from spillway_lab.reproduce.flux.load import SLOTS, UNLOADED, some_slots
from spillway_lab.reproduce.flux.terms import (
    Points,
    Results,
    Runs,
    SimulatedFigure,
    Verdict,
    steady_latency,
    steady_rows,
)
from spillway_lab.simulator.cluster.presets import baseline
from spillway_lab.simulator.cluster.scenario import MB, Disturbance, Scenario, Workload

STATIC, MEMORY, LOAD, HYBRID = "static", "memory-based", "load balancing", "hybrid"
_STRATEGIES = {
    STATIC: "spill-only",
    MEMORY: "flux-memory",
    LOAD: "flux-load",
    HYBRID: "flux-hybrid",
}
#: Groups of a machine, and groups that fit in 512 MB.
GROUPS, ROOM = 128, 85
PERTURBED = (0, 1, 2, 4, 8, 12, 16)
#: t_gap is the time to read a group: the paper's rule of thumb.
_T_GAP = "305 ms"
#: Fractions of the unloaded throughput that count as degraded, and as restored.
DEGRADED, RESTORED = 0.6, 0.95
#: Multiples of the latency in memory: at least the first is orders of magnitude, at most the second is
#: as good as memory.
ORDERS, IN_MEMORY = 100, 2.0


def pressed(
    disturbances: tuple[Disturbance, ...], line: str, seconds: float, tick_s: float = 0.02
) -> Scenario:
    """The cluster of FLUX 6.3 under one policy."""
    adapt = {"strategy": _STRATEGIES[line], "t_gap": _T_GAP, "delta_min": "20 ms"}
    return baseline().changed(
        name="pressed",
        seconds=seconds,
        groups=SLOTS * GROUPS,
        workload=Workload(history_rows=6 * MB // 80),
        spill_mode="rotation",
        disturbances=disturbances,
        adapt=adapt,
        tick_s=tick_s,
        batch_s=tick_s,
    )


def _one() -> Runs:
    pressure = (Disturbance((0,), memory_bytes=512 * MB, since_s=1),)
    return {
        UNLOADED: {0: pressed((), STATIC, 80)},
        STATIC: {0: pressed(pressure, STATIC, 80)},
        MEMORY: {0: pressed(pressure, MEMORY, 80)},
    }


def _measured_one(results: Results) -> dict[str, Any]:
    rows = {line: by_x[0].series["rows_per_s"] for line, by_x in results.items()}
    late = {line: by_x[0].series["latency_s"] for line, by_x in results.items()}
    free, usual = rows[UNLOADED][-1], late[UNLOADED][-1]
    full = [at + 1 for at, some in enumerate(rows[MEMORY]) if some < RESTORED * free]
    slow = [at + 1 for at, some in enumerate(late[MEMORY]) if some > IN_MEMORY * usual]
    return {
        "least_part": round(min(rows[MEMORY]) / free, 4),
        "static_part": round(rows[STATIC][-1] / free, 4),
        "static_latency_s": round(late[STATIC][-1], 6),
        "most_latency_s": round(max(late[MEMORY]), 6),
        "usual_latency_s": round(usual, 6),
        "restored_s": max(full, default=0) + 1,
        "in_memory_s": max(slow, default=0) + 1,
        "on_disk": int(results[STATIC][0].series["groups_on_disk"][-1]),
    }


def _judge_throughput(points: Points, results: Results) -> Verdict:
    measured = _measured_one(results)
    restored = measured["restored_s"] <= len(points[MEMORY])
    stalls = measured["least_part"] <= 0.1
    return measured, stalls and restored and measured["static_part"] <= DEGRADED


def _judge_latency(points: Points, results: Results) -> Verdict:
    measured = _measured_one(results)
    static = measured["static_latency_s"] >= ORDERS * measured["usual_latency_s"]
    return measured, static and measured["in_memory_s"] <= len(points[MEMORY])


def _words_throughput(measured: Mapping[str, Any]) -> str:
    return (
        f"while the machine frees memory, throughput falls to {measured['least_part']:.2f} of the "
        f"unloaded case; static stays at {measured['static_part']:.2f}, with {measured['on_disk']} "
        f"groups on disk; the policy restores it from second {measured['restored_s']} on"
    )


def _words_latency(measured: Mapping[str, Any]) -> str:
    return (
        f"static ends with {measured['static_latency_s']:.3f} s, against "
        f"{measured['usual_latency_s'] * 1e6:.0f} µs in memory; with the policy latency peaks at "
        f"{measured['most_latency_s']:.3f} s, and is within {IN_MEMORY:g} x that of memory from second "
        f"{measured['in_memory_s']} on"
    )


def _several() -> Runs:
    def with_machines(count: int, line: str) -> Scenario:
        slots = some_slots(count, seed=13)
        disturbances = (Disturbance(slots, memory_bytes=512 * MB),) if count else ()
        return pressed(disturbances, line, 240)

    return {line: {n: with_machines(n, line) for n in PERTURBED} for line in (STATIC, MEMORY)}


def _measured_several(points: Points, results: Results) -> dict[str, Any]:
    ends = {
        line: {f"{n:g}": int(one.series["groups_on_disk"][-1]) for n, one in by_n.items()}
        for line, by_n in results.items()
    }
    first = points[STATIC][0]
    parts = {
        line: {f"{n:g}": round(value / first, 4) for n, value in by_n.items()}
        for line, by_n in points.items()
    }
    return {"vs_unloaded": parts, "groups_on_disk": ends}


def _judge_rows(points: Points, results: Results) -> Verdict:
    measured = _measured_several(points, results)
    static, spread = (measured["vs_unloaded"][line] for line in (STATIC, MEMORY))
    free = points[STATIC][0]
    measured["vs_allowed"] = {
        f"{n:g}": round(rows / (free * allowed_by_memory(int(n))), 4)
        for n, rows in points[MEMORY].items()
    }
    kept = all(part >= RESTORED for part in list(measured["vs_allowed"].values())[:-1])
    steep = spread["16"] <= DEGRADED
    return measured, max(list(static.values())[1:]) <= DEGRADED and kept and steep


def allowed_by_memory(machines: int) -> float:
    """The fraction of the unloaded throughput that remains if every group is in memory somewhere.

    Groups without room move to the other machines, which then have more work.

    Example:
        >>> allowed_by_memory(0), round(allowed_by_memory(12), 2)
        (1.0, 0.83)
    """
    moved = (GROUPS - ROOM) * machines / (SLOTS - machines)
    return GROUPS / (GROUPS + moved)


def _judge_waits(points: Points, results: Results) -> Verdict:
    measured = _measured_several(points, results)
    static, spread = (list(measured["vs_unloaded"][line].values()) for line in (STATIC, MEMORY))
    kept = all(times <= IN_MEMORY for times in spread[:-1])
    return measured, min(static[1:]) >= ORDERS and kept and spread[-1] > spread[-2]


def _words_several(what: str, measured: Mapping[str, Any]) -> str:
    static, spread = (measured["vs_unloaded"][line] for line in (STATIC, MEMORY))
    disk = measured["groups_on_disk"][MEMORY]["16"]
    some = [static[f"{n}"] for n in PERTURBED[1:]]
    few = [spread[f"{n}"] for n in PERTURBED[1:-1]]
    return (
        f"{what}, as a multiple of the unloaded case: static between {min(some):.4g} and "
        f"{max(some):.4g}; with the policy between {min(few):.4g} and {max(few):.4g} up to "
        f"{PERTURBED[-2]} machines, and {spread['16']:.4g} with 16, where {disk} groups are on disk"
    )


_ONE = "The first machine's memory falls from 1 GB to 512 MB in the first second."
_SEVERAL = (
    "Machines are chosen at random; each run lasts 240 s, and the last 20 s count. Rebalancing takes "
    "longer than in the paper, so the runs are longer too."
)
MEMORY_FIGURES = (
    SimulatedFigure(
        "flux-11",
        "FLUX, figure 11: throughput over time, one machine loses half of its memory",
        "Throughput comes to a halt while slots give up memory; static stays degraded (at most "
        f"{DEGRADED:g} of the unloaded case), the memory-based policy restores it (at least "
        f"{RESTORED:g}).",
        "a stall of 14 s, then much reduced in the static case; with the policy as unloaded from "
        "second 37 on",
        "virtual seconds",
        "rows a second",
        _one,
        "rows_per_s",
        _judge_throughput,
        _words_throughput,
        _ONE,
    ),
    SimulatedFigure(
        "flux-12",
        "FLUX, figure 12: latency over time, one machine loses half of its memory",
        f"Static latency stays orders of magnitude (at least {ORDERS} times) above that of memory; with "
        "the memory-based policy it returns to it.",
        "high while groups that come back process what was spilled; that of memory from second 37 on",
        "virtual seconds",
        "mean latency of a row, s",
        _one,
        "latency_s",
        _judge_latency,
        _words_latency,
        _ONE,
        log_y=True,
    ),
    SimulatedFigure(
        "flux-13",
        "FLUX, figure 13: steady throughput against the number of machines with half of their memory",
        f"Static throughput degrades with the first machine (at most {DEGRADED:g} of the unloaded "
        f"case); with the memory-based policy it is what the groups that other machines take over allow "
        f"(at least {RESTORED:g} of that), until at 16 machines all memory is used up and it drops (to "
        f"at most {DEGRADED:g}).",
        "static degrades as soon as a single machine is perturbed; with the policy the drop comes at "
        "16, with one partition on disk at each of them",
        "machines with 512 MB",
        "rows a second",
        _several,
        steady_rows,
        _judge_rows,
        partial(_words_several, "throughput"),
        _SEVERAL,
    ),
    SimulatedFigure(
        "flux-14",
        "FLUX, figure 14: steady latency against the number of machines with half of their memory",
        f"Static latency is orders of magnitude (at least {ORDERS} times) above that of memory; with "
        "the memory-based policy it stays that of memory until all memory is used up, at 16 machines.",
        "several orders of magnitude in the static case; with the policy the rise comes at 16",
        "machines with 512 MB",
        "mean latency of a row, s",
        _several,
        steady_latency,
        _judge_waits,
        partial(_words_several, "latency"),
        _SEVERAL,
        log_y=True,
    ),
)
