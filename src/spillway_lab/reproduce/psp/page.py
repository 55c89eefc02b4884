"""The page texts for PSP's figures together, and for those whose claim does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spillway_lab.reproduce.psp.judged import NAME as REAL
from spillway_lab.reproduce.psp.judged import spread
from spillway_lab.workloads.images import PIXELS

PSP_REAL_HEAD = """# PSP, on Spark

PSP and its two rivals as distributions of one operator, on small rings. Longer rings are simulated
below.
"""

_HEAD = """# PSP, simulated

The authors of PSP used a cluster of 20 machines. Here its ring and its two rivals are simulated, message
by message, with the probe orders, the cost model and the slicing policies of a query.

- **Join** (PSP 8.1, 8.2): three streams of 50 rows a second each at Poisson times, windows of 10 s,
  600 s of virtual time from empty states, 4 to 19 slots.
- **Costs**, which the paper does not give: 30 µs for a pair, a nanosecond for each byte of two images of
  10,000 pixels; 10 µs for receiving a row and passing it on; 70 µs on the way to the next slot, a
  packet's latency in FLUX. Slots pass packets on as they come: if each slot waited for all 30 kB of a
  row, a hop of a gigabit link would take 310 µs, and a ring with one row at a time would fall behind
  at every length.
- **Selectivity** is read as the mean number of partners that a row finds in a window. As a fraction of
  all pairs, as in section 5 of the paper, 0.5 would be 9.4 million results a second, more than a gigabit
  link carries to the master that collects them.
- **Response** is the time from a row's arrival to a result of it, on average over the results. It
  includes the wait before the ring. Matches are drawn at random (8.2).
- **Checked** in every run: each row meets all rows of its windows, in every step (ATR: in the first),
  and none twice.
- **Not modelled**: threads, garbage collection, and the transport of results to the master.
"""


def psp_head(known: Mapping[str, Mapping[str, Any]]) -> str:
    """The head of the simulated figures; and how far the simulator was checked, if it was."""
    measured = known[REAL]["measured"] if REAL in known else {}
    if "ratios" not in measured:
        return _HEAD
    ratios, within = measured["ratios"], measured["within"]
    agree = sum(abs(ratio - 1) <= within for ratio in ratios.values())
    pairs = (
        f"{cost['pair_s'] * 1e6:.0f} µs with {PIXELS[size]:,} pixels"
        for size, cost in measured["costs"].items()
    )
    return (
        f"{_HEAD}- **Checked** against {REAL}, in micro-batches and with the costs that one slot had "
        f"there: simulated,\n  batches take {spread(ratios)} of what they take on Spark,\n  "
        f"{agree} of {len(ratios)} runs within {within:.0%}. There a pair takes {', '.join(pairs)}.\n"
    )


def why_8a(measured: Mapping[str, Any]) -> str:
    """Why the best ring is not longer for smaller selectivities, by other settings."""
    best = ", ".join(str(n) for n in measured["best_slots"].values())
    model = ", ".join(str(n) for n in measured["best_by_equation_5"].values())
    text = (
        f"A ring can be too long, but the best one, of {best} slots from the smallest selectivity to "
        "the largest, is not longer for smaller ones. More matches are more work to share, so they need "
        "more slots, not fewer. Equation 5 itself, with which the paper explains its expectation, has "
        f"best lengths of {model} slots: the work grows with the selectivity, and the hops of a result "
        "do not."
    )
    return f"{text}\n\n{_tried(measured['tried'])}" if "tried" in measured else text


def _tried(tried: Sequence[Mapping[str, Any]]) -> str:
    """The other settings, in words and as a table."""
    sound = [one for one in tried if one["keeps_up"]]
    counts = []
    for network, told in NETWORKS.items():
        mine = [one for one in sound if one["network"] == network]
        longer = sum(one["longer_with_smaller_selectivity"] for one in mine)
        counts.append(f"in {longer} of {len(mine)} where they go {told}")
    lines = [
        "The paper does not say how rows got from node to node, which images its lines used, and "
        "whether several rows were in the ring. Of the settings below whose best rings keep up, a "
        f"smaller selectivity has a longer best ring {', '.join(counts)}. Where the bytes of whole rows "
        "take time on a link of its own to the next slot, a result still waits for one row and one "
        "combination to come round, whatever the selectivity. A network that all slots share carries "
        "each combination once for every slot: there more matches fill it sooner, the longer the ring.",
        "",
        "| rows go | pixels | rows at a time | best slots with 0.05 | 0.1 | 0.5 | keeps up |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for one in tried:
        best = " | ".join(str(n) for n in one["best_slots"].values())
        lines.append(
            f"| {NETWORKS[one['network']]} | {one['pixels']:,} | {one['interleave']} | {best} | "
            f"{'yes' if one['keeps_up'] else 'no'} |"
        )
    return "\n".join(lines)


#: How rows get to the next slot, in words.
NETWORKS = {
    "packets": "packet by packet",
    "links": "whole over links",
    "shared": "whole over one network",
}
#: Why a claim did not hold, made from the measurements.
PSP_NOTES: dict[str, Callable[[Mapping[str, Any]], str]] = {"psp-8a": why_8a}
