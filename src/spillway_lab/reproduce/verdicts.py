"""From runs to a figure's document: its series, what was measured, and whether the claim held.

Pure. `holds` follows only from the runs, and no claim holds if a run was not exact: every run must have
produced, with its cleanup, as many rows as the join of its input has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spillway_lab.reproduce.dcape import verdicts_cluster as cluster
from spillway_lab.reproduce.dcape import verdicts_spill as spill
from spillway_lab.reproduce.results import Results, Runs, Verdict
from spillway_lab.reproduce.terms import Figure


def document(figure: Figure, results: Results) -> dict[str, Any]:
    """The figure as plain data, for `--json`, the plot and the page."""
    runs = results.runs
    more, borne_out = _VERDICTS[figure.name](results)
    batches = len(next(iter(runs.values())).output)
    return {
        "figure": figure.name,
        "claim": figure.claim,
        "paper": figure.paper,
        "series": {
            "minute": [figure.feed.minute(batch) for batch in range(batches)],
            figure.shows: _lines(figure.shows, runs),
        },
        "measured": {
            "memory_part": figure.memory_part,
            "limit_bytes": results.limit_bytes,
            "output_rows": {name: run.output[-1] for name, run in runs.items()},
            "cleanup_rows": {name: run.cleaned for name, run in runs.items()},
            "cleanup_s": {name: round(run.cleanup_s, 3) for name, run in runs.items()},
            "spills": {name: run.spills for name, run in runs.items()},
            **more,
            "rows_expected": results.rows_expected,
            "exact": results.exact,
        },
        "holds": results.exact and borne_out,
    }


def _lines(shows: str, runs: Runs) -> dict[str, list[int]]:
    """A line for each run, or one for each of its slots."""
    if shows != "slots":
        return {name: list(getattr(run, shows)) for name, run in runs.items()}
    return {
        f"{name}-M{number}": list(sizes)
        for name, run in runs.items()
        for number, sizes in enumerate(run.slots, 1)
    }


_VERDICTS: dict[str, Callable[[Results], Verdict]] = {
    "dcape-5": spill.falls_with_k,
    "dcape-6": spill.stays_below_limit,
    "dcape-7": spill.productive_stay,
    "dcape-9": cluster.costs_little,
    "dcape-10": cluster.balances,
    "dcape-11": cluster.avoids_spills,
    "dcape-12": cluster.shares_cleanup,
    "dcape-13": cluster.dips_then_wins,
    "dcape-14": cluster.wins_by_more,
    "dcape-tr-6": cluster.machines_cost_little,
    "dcape-tr-7": cluster.machines_last_longer,
    "dcape-tr-12": spill.not_worse,
    "dcape-tr-15": cluster.fewer_with_time,
}
