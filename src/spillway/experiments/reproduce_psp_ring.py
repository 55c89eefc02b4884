"""PSP section 8.2: response and state of a ring against its length and the join selectivity."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from spillway.experiments.reproduce_flux_terms import Points, Verdict
from spillway.experiments.reproduce_psp_terms import (
    LENGTHS,
    NOISE,
    PspFigure,
    PspResults,
    PspRuns,
    kept,
    milliseconds,
    ring,
    rows_of_windows,
)
from spillway.policies.ring import best_length, utilisation

SELECTIVITIES = (0.05, 0.1, 0.5)
#: The length at which the paper's ring responds best with the highest selectivity.
_PAPER_BEST = 14
#: A ring this much slower than the best one has clearly become too long.
_RISEN = 1.05


def line(selectivity: float) -> str:
    """What the line of a selectivity is called."""
    return f"selectivity {selectivity:g}"


def _runs() -> PspRuns:
    return {line(s): {n: ring(n, s) for n in LENGTHS} for s in SELECTIVITIES}


def _judge_response(points: Points, _: PspResults) -> Verdict:
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
    longer = best["0.05"] > best["0.5"] and best["0.05"] >= best["0.1"] >= best["0.5"]
    free = ring(LENGTHS[-1])
    # The same selectivity, read as a part of all pairs.
    literal = free.changed(found=0.5 * free.rate * free.window_s)
    measured = {
        "best_slots": best,
        "least_ms": least,
        "longest_ring_ms": at_end,
        "ordered": ordered,
        "rises": rises,
        "longer_with_smaller_selectivity": longer,
        "best_by_equation_5": {
            f"{s:g}": best_length(ring(4, s).sources(free.rate), free.costs) for s in SELECTIVITIES
        },
        "busy_if_of_pairs": round(
            utilisation(literal.sources(free.rate), free.costs, LENGTHS[-1]), 1
        ),
    }
    return measured, ordered and rises and longer


def _words_response(measured: Mapping[str, Any]) -> str:
    best, least, end = (measured[key] for key in ("best_slots", "least_ms", "longest_ring_ms"))
    told = (f"{s}: {least[s]:.1f} ms with {best[s]} slots, {end[s]:.1f} with 19" for s in best)
    model = ", ".join(str(n) for n in measured["best_by_equation_5"].values())
    return (
        f"{'; '.join(told)}. Response is {'' if measured['ordered'] else 'not '}longer with larger "
        f"selectivities at every length. Equation 5, without queues, has its best lengths at {model}. "
        f"Read as a part of all pairs, 0.5 would need {measured['busy_if_of_pairs']:.0f} x the time "
        "that "
        "19 slots have"
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
        f"all rings keep between {measured['least_part']:.3f} and {measured['most_part']:.3f} of the "
        f"{measured['window_rows']:,} rows that the windows have"
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
        "One row is in the ring at a time (`interleave=1`).",
        log_y=True,
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
