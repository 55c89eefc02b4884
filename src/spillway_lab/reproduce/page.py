"""The page of reproduced figures, made from the files of `spillway reproduce --out`.

    python -m spillway_lab.reproduce.page RESULTS PAGE

Tables and verdicts come from the files: `tests/unit/lab/reproduce/test_reproduce.py` makes the page
again and fails if it differs. Only the notes, on claims that did not hold, are written by hand. The
plots are next to the page, in `figures/`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spillway_lab.reproduce.flux.figures import FLUX, PLANS
from spillway_lab.reproduce.flux.page import (
    HEAD,
    PLANS_HEAD,
    PLANS_REAL_HEAD,
    REAL_HEAD,
    brief,
    findings,
    flux_section,
)
from spillway_lab.reproduce.flux.real import FLUX_REAL
from spillway_lab.reproduce.plans.real import PLANS_REAL
from spillway_lab.reproduce.plots import plot
from spillway_lab.reproduce.psp.figures import PSP_FIGURES
from spillway_lab.reproduce.psp.page import PSP_REAL_HEAD, psp_head
from spillway_lab.reproduce.psp.real import PSP_REAL
from spillway_lab.reproduce.spec import FIGURES
from spillway_lab.reproduce.terms import GROUPS, MEMORY_PART, MINUTES, ROWS_PER_MINUTE
from spillway_lab.reproduce.words import mb, ours

PLOTS = "figures"

_HEAD = f"""# The papers' figures, reproduced

`spillway reproduce` writes this page from the measurements in `bench/reproduction`, and computes the
verdicts from the data. The figures of DCAPE ran on a local Spark. Those of FLUX, PLANS and PSP are
simulated, except the sections "on Spark".

Unless a figure says otherwise:

- **Time is virtual.** The papers' streams have a tuple every 30 ms, so {ROWS_PER_MINUTE} rows of each
  of the three streams are a minute, and a minute is a batch; {MINUTES} batches are {MINUTES} minutes.
  Where the query compares slots every 15 to 45 seconds, batches are shorter.
- **Input** (DCAPE 3.1): tuple range 30,000; join rate 3, or 4, 2 and 1 for a third of the groups each,
  interleaved. One slot, {GROUPS} partition groups. Values come in a fixed pseudo-random order.
- **Memory.** The papers push at 200 MB of Java objects, which has no equivalent here. The limit is
  {MEMORY_PART:g} of the state at the end of the same run without a limit (All-Mem).
- **Slots** stand for the papers' machines, in one Spark on one machine with two cores: the figures show
  what happens to state and output, not the time that more machines save. A relocation takes four batches
  or more.
- **Processing time** is wall-clock time, on a machine that also does other work, and the first run of a
  figure uses a cold Spark: ignore differences below a factor of two.
- **Output** is what a run produces before the end of the input. Cleanup makes the missing results after
  that; no group comes back earlier. A run is exact if both together have as many rows as the join of the
  input.
"""

#: The columns of a table, where measured: heading, key, form.
_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("rows at run time", "output_rows", "{:,}".format),
    ("rows of cleanup", "cleanup_rows", "{:,}".format),
    ("pushes", "spills", str),
    ("relocations", "relocations", str),
    ("forced pushes", "forced_spills", str),
    ("processing, s", "processing_s", "{:.0f}".format),
    ("cleanup of one slot, s", "slot_cleanup_s", "{:.2f}".format),
    ("rows of it", "slot_cleanup_rows", "{:,}".format),
    ("most in memory, MB", "memory_bytes", mb),
    ("over the limit, MB", "overshoot_bytes", mb),
)

#: What is compared under other limits: heading, key, form.
_RATIOS = (
    ("output", "output_ratio", "{:.2f} x"),
    ("seconds of cleanup", "cleanup_s_ratio", "{:.1f} x shorter"),
    ("rows of cleanup", "cleanup_ratio", "{:.1f} x fewer"),
)

#: Why a claim did not hold, from a look at the data.
NOTES: dict[str, str] = {
    "dcape-12": "There are few spills, of 30% of a slot's memory each, and a slot that has just spilled "
    "is the emptiest one: state moves to it, so it is the next to fill up, and spills again. State on "
    "disk stays with its slot. So one slot may have most of the cleanup with lazy-disk too; how much "
    "depends on the limit.",
}


def rendered(documents: Sequence[Mapping[str, Any]]) -> str:
    """The page of the given figures, in the order of the papers."""
    known = {document["figure"]: document for document in documents}
    parts = [_HEAD, _summary(known, FIGURES)]
    parts += [_section(known[name]) for name in FIGURES if name in known]
    for head, figures in (
        (REAL_HEAD, [*FLUX_REAL]),
        (HEAD, [*FLUX]),
        (PLANS_REAL_HEAD, [*PLANS_REAL]),
        (PLANS_HEAD, [*PLANS]),
        (PSP_REAL_HEAD, [*PSP_REAL]),
        (psp_head(known), [*PSP_FIGURES]),
    ):
        if shown := [name for name in figures if name in known]:
            parts += [head, _summary(known, shown)]
            parts += [flux_section(known[name], PLOTS) for name in shown]
    return "\n".join(parts)


def load(folder: Path) -> list[dict[str, Any]]:
    """The figures in a folder, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def write_page(documents: Sequence[Mapping[str, Any]], page: Path) -> None:
    """Writes the page, and the plots next to it."""
    plots = page.parent / PLOTS
    plots.mkdir(parents=True, exist_ok=True)
    for document in documents:
        plot(document, plots / f"{document['figure']}.png")
    page.write_text(rendered(documents))


def verdict(document: Mapping[str, Any]) -> str:
    """Whether the claim held, in words."""
    if not document["measured"]["exact"]:
        return "not exact"
    return "holds" if document["holds"] else "does not hold"


def _summary(known: Mapping[str, Mapping[str, Any]], figures: Iterable[str]) -> str:
    lines = ["| figure | the paper | here | verdict |", "|---|---|---|---|"]
    for name in figures:
        if name in known:
            one = known[name]
            here = brief(ours(one))
            lines.append(f"| [{name}](#{name}) | {one['paper']} | {here} | {verdict(one)} |")
    return "\n".join([*lines, ""])


def _section(document: Mapping[str, Any]) -> str:
    name, measured = document["figure"], document["measured"]
    lines = [f"## {name}", "", f"{FIGURES[name].title}.", ""]
    lines += [FIGURES[name].setup, ""] if FIGURES[name].setup else []
    lines += [
        f"**Claim.** {document['claim']}",
        "",
        f"**The paper.** {_sentence(document['paper'])}",
        "",
    ]
    lines += findings(ours(document))
    lines += [f"**Verdict.** The claim {_told(document)}.", ""]
    if not document["holds"] and name in NOTES:
        lines += [NOTES[name], ""]
    lines += [
        _table(measured),
        *_other_parts(measured),
        f"![{FIGURES[name].title}]({PLOTS}/{name}.png)",
        "",
    ]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _told(document: Mapping[str, Any]) -> str:
    exact = "every run was exact" if document["measured"]["exact"] else "a run was not exact"
    return f"{'holds' if document['holds'] else 'does not hold'}; {exact}"


def _table(measured: Mapping[str, Any]) -> str:
    """One row per run."""
    columns = [column for column in _COLUMNS if column[1] in measured]
    lines = [f"| run | {' | '.join(head for head, _, _ in columns)} |"]
    lines.append("|---|" + "---:|" * len(columns))
    for name in measured["output_rows"]:
        cells = (
            told(measured[key][name]) if name in measured[key] else "-" for _, key, told in columns
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    if measured["limit_bytes"] is not None:
        limit, part = mb(measured["limit_bytes"]), measured["memory_part"]
        lines += ["", f"The limit was {limit} MB, {part:.3g} of the whole state."]
    return "\n".join([*lines, ""])


def _other_parts(measured: Mapping[str, Any]) -> list[str]:
    """The ratios under other limits, so that none looks chosen for its verdict."""
    if "other_parts" not in measured:
        return []
    ratios = [ratio for ratio in _RATIOS if ratio[1] in measured]
    lines = ["How it depends on the limit, as a fraction of All-Mem's state:", ""]
    lines += [f"| limit | {' | '.join(head for head, _, _ in ratios)} | the claim |"]
    lines += ["|---:|" + "---:|" * len(ratios) + "---|"]
    rows = {f"{measured['memory_part']:g}": measured, **measured["other_parts"]}
    for part in sorted(rows, key=float):
        told = {True: "holds", False: "does not hold", None: "above"}[rows[part].get("holds")]
        cells = (form.format(rows[part][key]) for _, key, form in ratios)
        lines.append(f"| {part} | {' | '.join(cells)} | {told} |")
    return ["\n".join([*lines, ""])]


def main() -> None:
    """Writes the page of a folder of results, and the plots next to it."""
    write_page(load(Path(sys.argv[1])), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
