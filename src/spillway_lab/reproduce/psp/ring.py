"""PSP section 8.2: response and state of a ring against its length and the join selectivity."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from spillway.policies.ring.model import best_length, utilisation
from spillway_lab.reproduce.flux.terms import Points, Verdict
from spillway_lab.reproduce.psp.terms import (
    LENGTHS,
    NOISE,
    PspFigure,
    PspResults,
    PspRuns,
    Setting,
    arriving,
    kept,
    milliseconds,
    rows_of_windows,
)
from spillway_lab.simulator.ring.scenario import NETWORKS
from spillway_lab.workloads.images import PIXELS

SELECTIVITIES = (0.05, 0.1, 0.5)
#: The length at which the paper's ring responds best with the highest selectivity.
_PAPER_BEST = 14
#: A ring this many times slower than the best one is clearly too long.
_RISEN = 1.05
#: The setting of the lines, and all settings tried: the paper does not say how rows travel between
#: nodes, which image size its lines have, or how many rows are in the ring.
SETTING = Setting()
TRIED = tuple(
    Setting(size, network, interleave)
    for network in NETWORKS
    for size in PIXELS
    for interleave in (1, 4)
)


def line(selectivity: float) -> str:
    """The name of the line of a selectivity."""
    return f"selectivity {selectivity:g}"


def tried(setting: Setting, selectivity: float) -> str:
    """The name of the runs in another setting."""
    return line(selectivity) if setting == SETTING else f"{setting.name}: {line(selectivity)}"


def _runs(*settings: Setting) -> PspRuns:
    return {
        tried(one, s): {n: one.ring(n, s) for n in LENGTHS}
        for one in settings or (SETTING,)
        for s in SELECTIVITIES
    }


def _others() -> PspRuns:
    return _runs(*(one for one in TRIED if one != SETTING))


def _longer(best: Mapping[str, int]) -> bool:
    """Whether the best ring is longer with a smaller selectivity."""
    return best["0.05"] > best["0.5"] and best["0.05"] >= best["0.1"] >= best["0.5"]


def _told(setting: Setting, results: PspResults) -> dict[str, Any]:
    """The best lengths in a setting, and whether such rings keep up with arriving rows."""
    best, late = {}, 0.0
    for s in SELECTIVITIES:
        by_n = results[tried(setting, s)]
        least = min(by_n, key=lambda n: by_n[n].totals["response_s"])
        best[f"{s:g}"] = int(least)
        late = max(late, by_n[least].totals["rows_waiting"] / arriving(by_n[least].scenario))
    return {
        "network": setting.network,
        "pixels": PIXELS[setting.size],
        "interleave": setting.interleave,
        "best_slots": best,
        # One second of rows may be in transit at any time.
        "keeps_up": late <= 1.0,
        "longer_with_smaller_selectivity": _longer(best),
    }


def _judge_response(points: Points, results: PspResults) -> Verdict:
    best = {
        f"{s:g}": int(min(points[line(s)], key=points[line(s)].__getitem__)) for s in SELECTIVITIES
    }
    ordered = all(
        points[line(low)][n] < points[line(high)][n] * (1 + NOISE)
        for low, high in pairwise(SELECTIVITIES)
        for n in LENGTHS
    )
    least = {f"{s:g}": round(min(points[line(s)].values()), 3) for s in SELECTIVITIES}
    at_end = {f"{s:g}": round(points[line(s)][LENGTHS[-1]], 3) for s in SELECTIVITIES}
    rises = at_end["0.5"] >= _RISEN * least["0.5"]
    longer = _longer(best)
    free = SETTING.ring(LENGTHS[-1])
    # The same selectivity, read as a fraction of all pairs.
    literal = free.changed(found=0.5 * free.rate * free.window_s)
    measured = {
        "best_slots": best,
        "least_ms": least,
        "longest_ring_ms": at_end,
        "ordered": ordered,
        "rises": rises,
        "longer_with_smaller_selectivity": longer,
        "best_by_equation_5": {
            f"{s:g}": best_length(SETTING.ring(4, s).sources(free.rate), free.costs)
            for s in SELECTIVITIES
        },
        "busy_if_of_pairs": round(
            utilisation(literal.sources(free.rate), free.costs, LENGTHS[-1]), 1
        ),
    }
    # Not every call runs the other settings.
    if all(tried(one, s) in results for one in TRIED for s in SELECTIVITIES):
        measured["tried"] = [_told(one, results) for one in TRIED]
    return measured, ordered and rises and longer


def _words_response(measured: Mapping[str, Any]) -> str:
    best, least, end = (measured[key] for key in ("best_slots", "least_ms", "longest_ring_ms"))
    told = (
        f"With selectivity {s}: {least[s]:.1f} ms with {best[s]} slots, {end[s]:.1f} with 19"
        for s in best
    )
    model = ", ".join(str(n) for n in measured["best_by_equation_5"].values())
    return (
        f"{'. '.join(told)}. Response is {'' if measured['ordered'] else 'not '}longer with larger "
        "selectivities at every length. Equation 5, which has no queues, puts the best lengths at "
        f"{model}. "
        f"Read as a fraction of all pairs, 0.5 would need {measured['busy_if_of_pairs']:.0f} x the time "
        "that 19 slots have"
    )


def _judge_state(points: Points, results: PspResults) -> Verdict:
    wanted = rows_of_windows(results[line(0.1)][LENGTHS[0]].scenario)
    parts = [rows / wanted for by_n in points.values() for rows in by_n.values()]
    measured = {
        "window_rows": round(wanted),
        "least_part": round(min(parts), 4),
        "most_part": round(max(parts), 4),
    }
    return measured, max(abs(part - 1) for part in parts) <= NOISE


def _words_state(measured: Mapping[str, Any]) -> str:
    return (
        f"all rings store between {measured['least_part']:.3f} and {measured['most_part']:.3f} of the "
        f"{measured['window_rows']:,} rows in the windows"
    )


RING_FIGURES: tuple[PspFigure, ...] = (
    PspFigure(
        "psp-8a",
        "PSP, figure 8(a): response time of the ring against its length",
        "At every length response is longer with a larger selectivity. A ring can be too long: with "
        f"selectivity 0.5 response falls to a least one, and with 19 slots it is {_RISEN:g} of that or "
        "more. The smaller the selectivity, the longer is the best ring.",
        f"with selectivity 0.5 response rises beyond {_PAPER_BEST} slots; for smaller ones more slots "
        "are expected to be best",
        "slots",
        "response, ms",
        _runs,
        milliseconds,
        _judge_response,
        _words_response,
        "The ring holds one row at a time (`interleave=1`); slots pass it on packet by packet.",
        log_y=True,
        others=_others,
    ),
    PspFigure(
        "psp-8b",
        "PSP, figure 8(b): state of the ring against its length",
        "No row is kept twice: whatever the length and the selectivity, the slots together keep "
        "the rows "
        f"of the windows, to {NOISE:.0%}.",
        "memory is stable in all experiments",
        "slots",
        "rows in all states",
        _runs,
        kept,
        _judge_state,
        _words_state,
    ),
)
