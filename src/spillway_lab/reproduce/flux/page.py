"""The page sections of simulated and real figures, and their plots; from documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from spillway.policies.shape.costs import COSTS
from spillway_lab.reproduce.flux.figures import SIMULATED
from spillway_lab.reproduce.flux.real import FLUX_REAL
from spillway_lab.reproduce.flux.terms import RealFigure, SimulatedFigure
from spillway_lab.reproduce.plans.notes import PLANS_NOTES
from spillway_lab.reproduce.plans.real import PLANS_REAL
from spillway_lab.reproduce.psp.figures import PSP_FIGURES
from spillway_lab.reproduce.psp.page import PSP_NOTES
from spillway_lab.reproduce.psp.real import PSP_REAL
from spillway_lab.simulator.join.scenario import SENT_BYTES_PER_WORK

SHOWN: dict[str, RealFigure | SimulatedFigure[Any, Any]] = {
    **FLUX_REAL,
    **PLANS_REAL,
    **PSP_REAL,
    **SIMULATED,
    **PSP_FIGURES,
}

REAL_HEAD = """# FLUX, on Spark

What FLUX does on real executors, with the mechanisms of a query.
"""

HEAD = """# FLUX, simulated

The authors of FLUX simulated a cluster. So do these figures: `spillway simulate` with the paper's
parameters, under the policies and protocols of a query.

- **Cluster** (FLUX 3, 5.4, 6.3): 32 machines, 45 µs and 80 bytes a row, 16K keys in 64 or 128 groups
  for each machine, links with two packets of 1 kB, a disk of 20 MB/s, moves at 250 Mb/s from point to
  point and 500 Mb/s in total. The sources give as many rows as the slots can take.
- **Load** is a process that takes 0.57 of a processor: according to the paper, its process of 100 µs in
  150 costs the operator that much.
- **Not modelled**: the spread of the time of a row, and what
  `spillway_lab/simulator/cluster/cluster.py` lists.
"""

PLANS_REAL_HEAD = """# PLANS, on Spark

PLANS' four settings with the shapes and moves of a query, on as many slots as this machine has cores.
More slots, and the other figures, are simulated below.
"""

PLANS_HEAD = f"""# PLANS, simulated

The authors of PLANS used a cluster of ten machines, three of which did other work. Here its figures
are simulated: slots with windowed joins in virtual time (`spillway_lab/simulator/join/joining.py`),
under the coordinator, policies and protocols of a query.

- **Streams** (PLANS 5.2): A, B and C, each in 100 groups; rows come at random (Poisson), and all runs
  of a figure have the same rows.
- **Costs** are those by which a query chooses its shapes (`policies/shape/costs.py`), in units of one
  lookup: {COSTS.pair} for a pair found, {COSTS.store} for a combination stored, {COSTS.result} for a
  result. A row meets what came in the window before it. The paper gives no costs; its joins may have
  searched their states without an index.
- **Moving state** (MSLB): the sender first processes its rows of the groups; the link carries 12.5
  MB/s, perhaps as in the paper, and a row has 100 bytes; each tuple costs both ends 0.4; the receiver
  makes the states that do not match before it continues. Compared with slots that a hundred rows a
  second keep busy, that is a fast link. A *calibrated* link carries as much as measured here,
  {SENT_BYTES_PER_WORK} bytes in the time of one lookup (`bench relocate`, `policies/shape/costs.py`).
- **Parallel track** (PTLB): the sender continues with all rows, and skips all-new combinations at the
  root, until it has processed the new rows of two windows, as in the paper. In Spillway itself one
  window is enough.
- **Chosen here**, since the paper does not say: the number of slots, their speed, how many pairs match,
  the window of figures 7, 8 and 13, the length of a run. The choice makes the slot with most groups the
  bottleneck; it does not aim at claims that hold.
- **Checked** in every run: each group is at one slot, or at both ends of a move; and its results are
  those of its rows, each made once, whatever moved or changed its shape.
"""


#: Longer findings become a list of sentences.
_PARAGRAPH_WORDS = 45
#: Words of a finding in a table of figures.
_CELL_WORDS = 75


def sentences(text: str) -> list[str]:
    """Splits a text where a full stop precedes a capital letter or a number.

    Example:
        >>> sentences("auto has 0.98 x. Moves a minute: 3")
        ['Auto has 0.98 x.', 'Moves a minute: 3.']
    """
    whole = f"{text[0].upper()}{text[1:]}."
    return re.split(r"(?<=\.) (?=[A-Z0-9])", whole)


def findings(text: str) -> list[str]:
    """The lines of the page with what was measured: a paragraph, or a list if it is long."""
    if len(text.split()) <= _PARAGRAPH_WORDS:
        return [f"**Here.** {' '.join(sentences(text))}", ""]
    return ["**Here.**", "", *(f"- {one}" for one in sentences(text)), ""]


def brief(text: str) -> str:
    """The first sentences of a text, as many as fit in a table."""
    first, *others = sentences(text)
    for one in others:
        if len(first.split()) + len(one.split()) > _CELL_WORDS:
            break
        first = f"{first} {one}"
    return text[: len(first) - 1]


def flux_section(document: Mapping[str, Any], plots: str) -> str:
    """One figure."""
    figure = SHOWN[document["figure"]]
    held = "holds" if document["holds"] else "does not hold"
    checked = "no check failed" if document["measured"]["exact"] else "a check of a run failed"
    lines = [f"## {figure.name}", "", f"{figure.title}.", ""]
    lines += [figure.setup, ""] if figure.setup else []
    lines += [
        f"**Claim.** {document['claim']}",
        "",
        f"**The paper.** {document['paper'][0].upper()}{document['paper'][1:]}.",
        "",
        *findings(figure.words(document["measured"])),
        f"**Verdict.** The claim {held}; {checked}.",
        "",
    ]
    if not document["holds"] and figure.name in NOTES:
        note = NOTES[figure.name]
        lines += [note if isinstance(note, str) else note(document["measured"]), ""]
    lines += [_table(figure, document["series"]), ""]
    lines += [f"![{figure.title}]({plots}/{figure.name}.png)", ""]
    return "\n".join(lines)


#: Why a claim did not hold, from a look at the data; or made from the measurements.
NOTES: dict[str, str | Callable[[Mapping[str, Any]], str]] = {
    **PLANS_NOTES,
    "flux-real": "Load balancing works, fewer batches overrun, and the counterpart agrees. The machine "
    "did other work during this run, and the backlog was not fully drained in the 26 batches after the "
    "disturbance. In another run of the same day nothing waited in the end, and 3 batches overran "
    "instead of 8.",
    "flux-9": "Load balancing is above static at every delta_min, with load and without; only the first "
    "half of the claim, that a short delta_min does harm, does not show. The policy here reverses a "
    "pair only where the receiver ends clearly below what the sender was. That alone is not the reason: "
    "with the paper's own choice, the first group that reduces the difference, it was above static too. "
    "The paper's slots estimate their idle time, and do that badly where few rows come, so that a hot "
    "group seems to fit everywhere; the paper does not say how badly, and slots here know it exactly. "
    "The simulation does model rows on their way, processor time for each row of a group that moves, "
    "chance in a short collection, and a buffer that stalled groups fill.",
    "flux-15c": "Hybrid spreads the groups on disk as evenly as th_imb allows, 24 and 20 of them at the "
    "two kinds of machines, where load balancing starts with 43 and 1. The wait of a row grows with the "
    "square of that, so an even spread gains at most a factor of 1.91. Load balancing goes on moving "
    "groups, and so gradually shortens its own latency: in the seconds that the paper looks at, 80 to "
    "100, it has 1.83 x that of hybrid, which is not steady yet at that time.",
    **PSP_NOTES,
}

#: Longer lines are thinned in the table.
_ROWS = 20


def _table(
    figure: RealFigure | SimulatedFigure[Any, Any], series: Mapping[str, Mapping[str, list[float]]]
) -> str:
    """A row for each x that some line has; long lines every few points."""
    known = {line: dict(zip(one["x"], one["y"], strict=True)) for line, one in series.items()}
    places = sorted({x for by_x in known.values() for x in by_x})
    every = -(-len(places) // _ROWS)
    lines = [f"| {figure.x} | {' | '.join(known)} |", "|---:|" + "---:|" * len(known)]
    for at in places[:: max(1, every)]:
        cells = (_number(by_x[at]) if at in by_x else "" for by_x in known.values())
        lines.append(f"| {figure.names.get(at, f'{at:g}')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def draw(document: Mapping[str, Any], axes: Any) -> None:
    """The lines of a figure, on axes of matplotlib."""
    figure = SHOWN[document["figure"]]
    mark = None if isinstance(figure.point, str) else "o"
    for line, one in document["series"].items():
        axes.plot(one["x"], one["y"], label=line, marker=mark, markersize=4)
    axes.set(xlabel=figure.x, ylabel=figure.y, title=figure.title)
    if figure.names:
        axes.set_xticks(list(figure.names), list(figure.names.values()), rotation=40, ha="right")
    if figure.log_x:
        axes.set_xscale("log")
    if figure.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, None)
