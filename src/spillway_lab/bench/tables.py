"""The tables of the README, made from the files that `spillway bench --out` wrote.

    python -m spillway_lab.bench.tables RESULTS README

No figure in the README is typed by hand: `tests/unit/lab/bench/test_tables.py` makes the tables again
and fails if they differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spillway_lab.bench.spec import (
    ALL_MEMORY,
    BOARD,
    DRIFT,
    ENGINES,
    PLANS,
    RELOCATE,
    SPILLWAY,
    THETA,
)

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def rendered(page: str, documents: Sequence[Mapping[str, Any]]) -> str:
    """The page with the table of the given results between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(documents)}{END}{after}"


def table(documents: Sequence[Mapping[str, Any]]) -> str:
    """One table per kind of benchmark: joins, spilling, moving state, plans, predicates."""
    spills = [one for one in documents if "vs_all_memory" in one["ratios"]]
    moves = [one for one in documents if one["name"] == RELOCATE]
    plans = [one for one in documents if one["name"] == DRIFT]
    thetas = [one for one in documents if one["name"] == THETA]
    # The dashboard's figures are in its guide.
    boards = [one for one in documents if one["name"] == BOARD]
    joins = [one for one in documents if one not in (*spills, *moves, *plans, *thetas, *boards)]
    tables = (
        _join_table(joins),
        _spill_table(spills),
        _move_table(moves),
        _plan_table(plans),
        _theta_table(thetas),
    )
    return "\n".join(one for one in tables if one)


def _join_table(documents: Sequence[Mapping[str, Any]]) -> str:
    """One row per benchmark: the median batch of each engine, then the ratios."""
    head = ["benchmark", *(f"{engine}, s" for engine in ENGINES), "vs memory", "vs RocksDB"]
    head += ["vs identity", "vs unsynced", "p99/p50", "growth", "µs/row", "bytes/row"]
    return _table(head, [_cells(document) for document in documents])


def _spill_table(documents: Sequence[Mapping[str, Any]]) -> str:
    """Spilling against all in memory: the median batch, and the rate of cleanup."""
    head = ["benchmark", f"{SPILLWAY}, s", f"{ALL_MEMORY}, s", "vs all-memory", "cleanup vs join"]
    rows = []
    for one in documents:
        times = [one["engines"].get(e, {}).get("batch_p50_s") for e in (SPILLWAY, ALL_MEMORY)]
        ratios = [one["ratios"][name] for name in ("vs_all_memory", "cleanup_vs_join")]
        rows.append([f"`{one['name']}`", *(_number(value, 2) for value in (*times, *ratios))])
    return _table(head, rows)


def _move_table(documents: Sequence[Mapping[str, Any]]) -> str:
    """While state moves: batch times, transfer rates, and the coordinator's cost."""
    head = ["benchmark", "batch p50, s", "p99 while moving, s", "p99 moving/p50"]
    head += ["moved vs shuffle", "sent, MB/s", "sent vs shuffle", "batches until served"]
    head += ["coordinator vs empty batch"]
    rows = []
    for one in documents:
        ours, ratios = one["engines"][SPILLWAY], one["ratios"]
        cells = [_number(ours[name], 2) for name in ("normal_p50_s", "moving_p99_s")]
        cells.append(_number(ratios["unmoved_p99_vs_p50"], 2))
        cells.append(_number(ratios["transfer_vs_shuffle"], 2))
        cells.append(_number(ours["sent_bytes_per_s"] / 1e6, 0))
        cells.append(_number(ratios["sent_vs_shuffle"], 2))
        cells.append(str(ours["batches_until_served"]))
        cells.append(_number(ratios["coordinator_vs_empty_batch"], 2))
        rows.append([f"`{one['name']}`", *cells])
    return _table(head, rows)


def _plan_table(documents: Sequence[Mapping[str, Any]]) -> str:
    """One row per plan: its batches before and after the change, and `auto` against the best plan."""
    head = ["benchmark", "plan", "before, s", "worst of 5 after the change, s", "then, s"]
    head += ["recovered vs best", "steady overhead"]
    rows = []
    for one in documents:
        for engine in (name for name in PLANS if name in one["engines"]):
            found, ratios = one["engines"][engine], one["ratios"] if engine == "auto" else {}
            cells = [
                _number(found[name], 2)
                for name in ("steady_p50_s", "changed_max_s", "recovered_p50_s")
            ]
            named = ("recovered_vs_best", "steady_overhead")
            cells += [_number(ratios[name], 2) if ratios else "" for name in named]
            rows.append([f"`{one['name']}`", f"`{engine}`", *cells])
    return _table(head, rows)


def _theta_table(documents: Sequence[Mapping[str, Any]]) -> str:
    """Joins on predicates: pairs per second of a core, two slots against one, band against all pairs."""
    head = ["benchmark", "pairs/s of a core", "vs numpy", "two slots vs one"]
    head += ["band vs all pairs", "with Spark's part", "every row stored once"]
    rows = []
    for one in documents:
        ours, ratios = one["engines"][SPILLWAY], one["ratios"]
        named = ("vs_numpy", "two_slots_vs_one", "band_vs_all_pairs", "band_vs_all_pairs_whole")
        cells = [f"{ours['one_pairs_per_cpu_s']:,}", *(_number(ratios[name], 2) for name in named)]
        rows.append([f"`{one['name']}`", *cells, "yes" if ours["stored_once"] else "no"])
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def load(folder: Path) -> list[dict[str, Any]]:
    """The results in a folder, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def _cells(document: Mapping[str, Any]) -> list[str]:
    engines, ratios = document["engines"], document["ratios"]
    ours = engines.get(SPILLWAY, {})
    cells = [f"`{document['name']}`"]
    cells += [_number(engines.get(engine, {}).get("batch_p50_s"), 2) for engine in ENGINES]
    cells += [_number(ratios.get("vs_spark_memory"), 1), _number(ratios.get("vs_spark_rocksdb"), 1)]
    cells += [_number(ratios.get(name), 2) for name in ("vs_identity", "vs_unsynced")]
    for name in ("p99_vs_p50", "growth", "operator_us_per_row", "bytes_per_state_row"):
        cells.append(_number(ours.get(name), 1 if name.startswith("bytes") else 2))
    return cells


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def main() -> None:
    """Writes the table of a folder of results into a page."""
    folder, page = Path(sys.argv[1]), Path(sys.argv[2])
    page.write_text(rendered(page.read_text(), load(folder)))


if __name__ == "__main__":
    main()
