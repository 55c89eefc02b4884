"""From batch times to the figures of the benchmark: pure arithmetic.

`rows_per_s` is the input rows of all measured batches over their seconds; in its ratios, above 1 means
that Spillway is faster. `batch_p99_s` uses the nearest rank: below a hundred batches, the slowest one.
`growth` is the median time of the last batches over that of the first; it should not grow with state.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from spillway_lab.bench.spec import (
    ALL_MEMORY,
    AUTO,
    BOARD,
    CASES,
    DRIFT,
    IDENTITY,
    RELOCATE,
    SPILLWAY,
    THETA,
    UNSYNCED,
)

#: The batches whose medians `growth` compares. With the default rows, the first three measured batches
#: have 1 to 2 million rows of state, and the last five 18 to 20 million.
FIRST_BATCHES = 3
LAST_BATCHES = 5

#: Batches of `plans`: those it skips after a change of selectivity, those whose median it takes then,
#: and those whose median it takes before the change.
RECOVERY_BATCHES = 5
RECOVERED_BATCHES = 5
STEADY_BATCHES = 16

#: Ratios of `rows_per_s` by engine; a document has a ratio if its case has the engine.
RATIOS = {
    "vs_spark_memory": "spark-memory",
    "vs_spark_rocksdb": "spark-rocksdb",
    "vs_identity": IDENTITY,
    "vs_unsynced": UNSYNCED,
}
SPILL_RATIOS = {"vs_all_memory": ALL_MEMORY}


def ratio_name(engine: str) -> str | None:
    """Returns the name of the ratio against an engine, if there is one."""
    return next((name for name, one in {**RATIOS, **SPILL_RATIOS}.items() if one == engine), None)


def engine_figures(
    result: Mapping[str, Any], rows_per_batch: int, dropped: int
) -> dict[str, float | int | None]:
    """The figures of one engine, from the result of its process."""
    batches = result["batches"]
    measured = batches[min(dropped, len(batches) - 1) :]
    seconds = [batch["seconds"] for batch in measured]
    figures: dict[str, float | int | None] = {
        "rows_per_s": round(rows_per_batch * len(measured) / sum(seconds), 1),
        "batch_p50_s": round(statistics.median(seconds), 4),
        "batch_p99_s": round(nearest_rank(seconds, 0.99), 4),
        "state_rows": measured[-1]["state_rows"],
        "batches": len(measured),
    }
    if "cleanup" in result and result["cleanup"]["seconds"]:
        cleanup = result["cleanup"]
        figures["cleanup_rows"] = cleanup["rows"]
        figures["cleanup_rows_per_slot_s"] = round(cleanup["rows"] / cleanup["seconds"], 1)
    if result["engine"] == ALL_MEMORY:
        busy = sum(batch["busy_s"] for batch in measured)
        figures["join_rows_per_slot_s"] = round(sum(b["rows_out"] for b in measured) / busy, 1)
    if result["engine"] == SPILLWAY:
        figures |= _operator_figures(result, measured, rows_per_batch)
    return figures


def case_document(name: str, engines: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The document of one case; a ratio is null if one of its engines did not run."""
    ours = engines.get(SPILLWAY)
    spill = CASES[name].memory_share is not None
    ratios: dict[str, float | None] = {
        ratio: round(ours["rows_per_s"] / engines[engine]["rows_per_s"], 3)
        if ours and engine in engines
        else None
        for ratio, engine in (SPILL_RATIOS if spill else RATIOS).items()
        if engine in CASES[name].engines
    }
    if spill:
        made = (ours or {}).get("cleanup_rows_per_slot_s")
        joined = engines.get(ALL_MEMORY, {}).get("join_rows_per_slot_s")
        ratios["cleanup_vs_join"] = round(made / joined, 3) if made and joined else None
    return {
        "name": name,
        "engines": {engine: dict(figures) for engine, figures in engines.items()},
        "ratios": ratios,
    }


def relocate_document(result: Mapping[str, Any]) -> dict[str, Any]:
    """The document of `relocate`, from the result of its process (bench/move.py)."""
    apart = result["sent"]
    normal, still_p99 = _p50_p99(result["normal_s"])
    moving, moving_p99 = _p50_p99(result["moving_s"])
    apart_p99, sending_p99 = _p50_p99(apart["normal_s"])[1], _p50_p99(apart["sending_s"])[1]
    rate = sum(result["moved_bytes"]) / sum(result["moved_s"])
    sent = sum(apart["bytes"]) / sum(apart["seconds"])
    shuffle, shuffle_apart = (x["shuffled_bytes"] / x["shuffled_s"] for x in (result, apart))
    figures = {
        "normal_p50_s": round(normal, 4),
        "normal_p99_s": round(still_p99, 4),
        "moving_p50_s": round(moving, 4),
        "moving_p99_s": round(moving_p99, 4),
        "moving_batches": len(result["moving_s"]),
        "serving_max_s": round(max(result["serving_s"]), 4),
        "parts": len(result["moved_s"]),
        "moved_bytes": sum(result["moved_bytes"]),
        "transfer_bytes_per_s": round(rate),
        "shuffle_bytes_per_s": round(shuffle),
        "sent_bytes": sum(apart["bytes"]),
        "sent_bytes_per_s": round(sent),
        "apart_p99_s": round(apart_p99, 4),
        "sending_p99_s": round(sending_p99, 4),
        "shuffle_apart_bytes_per_s": round(shuffle_apart),
        "batches_until_served": max(result["batches_until_served"]),
        "scale_batches": result["scale_batches"],
        "coordinator_s": round(result["coordinator_s"], 4),
        "empty_batch_s": round(result["empty_batch_s"], 4),
        "exact": result["exact"] and apart["exact"],
    }
    ratios = {
        "unmoved_p99_vs_p50": round(moving_p99 / normal, 3),
        "moving_p99_vs_still_p99": round(moving_p99 / still_p99, 3),
        "sending_p99_vs_still_p99": round(sending_p99 / apart_p99, 3),
        "transfer_vs_shuffle": round(rate / shuffle, 3),
        "sent_vs_shuffle": round(sent / shuffle_apart, 3),
        "coordinator_vs_empty_batch": round(result["coordinator_s"] / result["empty_batch_s"], 3),
    }
    return {"name": RELOCATE, "engines": {SPILLWAY: figures}, "ratios": ratios}


def _p50_p99(seconds: Sequence[float]) -> tuple[float, float]:
    return statistics.median(seconds), nearest_rank(seconds, 0.99)


def board_document(result: Mapping[str, Any]) -> dict[str, Any]:
    """The document of `dashboard`, from the result of its process (bench/board.py).

    Ratios compare the median batch of a block with an open dashboard to that of the block without, in
    the same round; the median over the rounds counts.
    """
    states = {name: result[name] for name in ("none", "idle", "watched")}
    medians = {
        name: [statistics.median(block) for block in one["batch_s"] if block]
        for name, one in states.items()
    }
    figures: dict[str, Any] = {
        f"{name}_p50_s": round(statistics.median(found), 4) for name, found in medians.items()
    }
    for name in ("idle", "watched"):
        one = states[name]
        figures[f"{name}_core"] = round(one["cpu_s"] / max(one["wall_s"], 1e-9), 5)
    watched = states["watched"]
    figures["bytes_per_s"] = round(watched["bytes"] / max(watched["wall_s"], 1e-9))
    figures["groups"] = result["groups"]
    figures["batches"] = sum(len(block) for one in states.values() for block in one["batch_s"])
    ratios = {
        f"{name}_vs_none": round(
            statistics.median(
                one / none for one, none in zip(medians[name], medians["none"], strict=False)
            ),
            3,
        )
        for name in ("idle", "watched")
    }
    return {"name": BOARD, "engines": {SPILLWAY: figures}, "ratios": ratios}


def theta_document(result: Mapping[str, Any]) -> dict[str, Any]:
    """The document of `theta`, from the result of its process (bench/theta.py).

    Pairs per second of one core use the processor time of the operator or of numpy's loop. Pairs per
    second of several slots use batch time.
    """
    one, two, band, every = (result[name] for name in ("one", "two", "band", "all_pairs"))
    found = {
        name: {
            "pairs": run["pairs"],
            "pairs_per_cpu_s": round(run["pairs"] / run["cpu_s"]),
            "pairs_per_s": round(run["pairs"] / run["seconds"]),
            "rows_out": run["rows_out"],
            "state_rows": run["state_rows"],
            "window_rows": run["window_rows"],
        }
        for name, run in (("one", one), ("two", two), ("band", band), ("all_pairs", every))
    }
    figures = {
        **{f"{name}_{what}": value for name, run in found.items() for what, value in run.items()},
        "numpy_pairs_per_cpu_s": round(result["numpy_pairs_per_cpu_s"]),
        **{
            f"{name}_{kind}_per_cpu_s": round(rates[kind])
            for name, rates in result["tiles"].items()
            for kind in ("pairs", "tiles", "measure")
        },
        "stored_once": all(run["state_rows"] == run["window_rows"] for run in found.values()),
        "same_results": one["rows_out"] == two["rows_out"]
        and band["rows_out"] == every["rows_out"]
        and all(rates["same"] for rates in result["tiles"].values()),
    }

    def rate(name: str, what: str = "pairs_per_cpu_s") -> float:
        return float(found[name][what])

    ratios = {
        "vs_numpy": round(rate("one") / result["numpy_pairs_per_cpu_s"], 3),
        "two_slots_vs_one": round(rate("two", "pairs_per_s") / rate("one", "pairs_per_s"), 3),
        "band_vs_all_pairs": round(rate("band") / rate("all_pairs"), 3),
        "band_vs_all_pairs_whole": round(
            rate("band", "pairs_per_s") / rate("all_pairs", "pairs_per_s"), 3
        ),
        **{
            f"{name}_tiles_vs_pairs": round(rates["tiles"] / rates["pairs"], 3)
            for name, rates in result["tiles"].items()
        },
    }
    return {"name": THETA, "engines": {SPILLWAY: figures}, "ratios": ratios}


def plans_document(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The document of `plans`, from the results of its processes (bench/plans.py).

    `steady_overhead` is `auto` over the best fixed shape while nothing changes, taking turns in one
    process. The `cpu` ratios use the processor time of all slots: they compare the operator alone,
    and depend little on other work of the machine.
    """
    engines = {engine: _plan_figures(result) for engine, result in results.items()}
    ratios: dict[str, float | None] = dict.fromkeys(
        ("recovered_vs_best", "recovered_cpu_vs_best", "steady_overhead", "steady_cpu_overhead")
    )
    if AUTO in engines:
        turns = results[AUTO]["turns"]
        steady = {engine: _steady_figures(batches) for engine, batches in turns.items()}
        for engine in engines.keys() & steady.keys():
            engines[engine] |= steady[engine]
        for ratio, figure, some in (
            ("recovered_vs_best", "recovered_p50_s", engines),
            ("recovered_cpu_vs_best", "recovered_cpu_s", engines),
            ("steady_overhead", "steady_p50_s", steady),
            ("steady_cpu_overhead", "steady_cpu_s", steady),
        ):
            ratios[ratio] = _vs_best({engine: one[figure] for engine, one in some.items()})
        engines[AUTO]["reshaped"] = [
            f"batch {one['batch']}, slot {one['slot']}: {one['before']} to {one['shape']}"
            for one in results[AUTO]["reshaped"]
        ]
    # All plans give the same rows in every batch.
    given_rows = {tuple(b["rows_out"] for b in result["batches"]) for result in results.values()}
    return {"name": DRIFT, "engines": engines, "ratios": ratios, "exact": len(given_rows) == 1}


def _vs_best(figure: Mapping[str, float]) -> float | None:
    """`auto` over the best fixed plan; None if no fixed plan ran."""
    fixed = [value for engine, value in figure.items() if engine != AUTO]
    return round(figure[AUTO] / min(fixed), 3) if fixed else None


def _plan_figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one plan: medians over the batches of its run."""
    change, batches = result["change"], result["batches"]
    after = batches[change + RECOVERY_BATCHES :][:RECOVERED_BATCHES]
    return {
        **_steady_figures(batches[max(0, change - STEADY_BATCHES) : change]),
        "changed_max_s": round(max(b["seconds"] for b in batches[change:][:RECOVERY_BATCHES]), 4),
        "recovered_p50_s": round(statistics.median(b["seconds"] for b in after), 4),
        "recovered_cpu_s": round(statistics.median(b["operator_cpu_ms"] for b in after) / 1e3, 4),
        "state_bytes": batches[-1]["state_bytes"],
    }


def _steady_figures(batches: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {
        "steady_p50_s": round(statistics.median(b["seconds"] for b in batches), 4),
        "steady_cpu_s": round(statistics.median(b["operator_cpu_ms"] for b in batches) / 1e3, 4),
    }


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed.

    Example:
        >>> nearest_rank([3.0, 1.0, 2.0, 4.0], 0.5)
        2.0
    """
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def growth(measured: Sequence[Mapping[str, Any]]) -> dict[str, float | int]:
    """How batch time grew with the state: the ratio, and the state rows at both ends."""
    small, large = measured[:FIRST_BATCHES], measured[-LAST_BATCHES:]
    times = [statistics.median(b["seconds"] for b in window) for window in (small, large)]
    rows = [statistics.median_low(b["state_rows"] for b in window) for window in (small, large)]
    return {
        "growth": round(times[1] / times[0], 3),
        "growth_from_state_rows": rows[0],
        "growth_to_state_rows": rows[1],
    }


def _operator_figures(
    result: Mapping[str, Any], measured: Sequence[Mapping[str, Any]], rows_per_batch: int
) -> dict[str, float | int | None]:
    cpu_us = sum(batch["operator_cpu_ms"] for batch in measured) * 1e3
    last, seconds = measured[-1], [batch["seconds"] for batch in measured]
    per_row = last["state_bytes"] / last["state_rows"] if last["state_rows"] else None
    return {
        "operator_us_per_row": round(cpu_us / (rows_per_batch * len(measured)), 4),
        "bytes_per_state_row": None if per_row is None else round(per_row, 2),
        "plain_arrow_bytes_per_row": round(result["plain_arrow_bytes_per_row"], 2),
        "p99_vs_p50": round(nearest_rank(seconds, 0.99) / statistics.median(seconds), 3),
        **growth(measured),
    }
