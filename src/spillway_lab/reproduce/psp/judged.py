"""PSP and its rivals on Spark: the lines, the claim, and the verdict. Pure.

The runs of PSP with one slot, one for each image size, give the costs of pairs, rows and batches. All
other runs have a counterpart in the simulator with these costs
(spillway_lab/simulator/ring/counterpart.py), and the verdict includes how far the two agree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from spillway_lab.simulator.cluster.counterpart import WITHIN
from spillway_lab.simulator.ring.counterpart import (
    RealRing,
    RingBatch,
    RingComparison,
    RingCosts,
    compared,
    costs_of,
)
from spillway_lab.workloads.images import PIXELS, Images

NAME = "psp-real"
TITLE = "PSP 8.2 on Spark: three streams of images, one to three slots on two cores"
PSP, ATR, CTR = "PSP", "ATR", "CTR"
WINDOW_S, BATCH_S, BATCHES, FIRST = 10, 2, 12, 6
COPIES, SEGMENT_S = 2, 20
GROUPS, CORES = 64, 2
RATE, SCENES = 32.0, 150
NAMES = ("a", "b", "c")


def images_of(size: str) -> Images:
    """Images of a size, at a rate with which a batch compares equally many pixels for each size.

    Pairs grow with the square of the rate, and the cost of a pair with the pixels. Fewer images have
    fewer scenes, so an image meets equally many of its own scene, and the second match has as many
    pairs.
    """
    fewer = math.sqrt(PIXELS["small"] / PIXELS[size])
    return Images(
        size=size,
        rate=round(RATE * fewer, 1),
        seconds=float(BATCH_S * BATCHES),
        scenes=round(SCENES * fewer),
    )


IMAGES = {size: images_of(size) for size in PIXELS}
#: PSP's lines, by the size of their images.
SIZES = {"small": PSP, "middle": f"{PSP}, 10k pixels", "large": f"{PSP}, 20k pixels"}


@dataclass(frozen=True)
class Line:
    """A distribution, with the slot counts and the image size of its runs."""

    slots: tuple[int, ...]
    adapt: Mapping[str, Any] = field(default_factory=dict)
    size: str = "small"


LINES = {
    PSP: Line((1, 2, 3), {"distribute": "psp"}),
    ATR: Line((1, 2, 3), {"distribute": "atr", "segment": f"{SEGMENT_S} seconds"}),
    CTR: Line((2, 3), {"distribute": "ctr", "copies": COPIES}),
    SIZES["middle"]: Line((1, 2, 3), {"distribute": "psp"}, "middle"),
    SIZES["large"]: Line((1, 2, 3), {"distribute": "psp"}, "large"),
}
#: The most that two slots may take of the response of one; and what still counts as no less.
FALLS, STAYS = 0.75, 0.85

CLAIM = (
    f"With two slots PSP answers in {FALLS:g} of the time of one or less, for each size of the images; "
    f"with ATR more slots never come below {STAYS:g} of it. PSP's slots keep exactly the rows of the "
    f"windows, however many they are and however large the images; CTR's keep {COPIES} of each, and "
    "ATR's more than PSP's. All give exactly the rows that match. Simulated with what one slot of PSP "
    "costs with images of the same size, a batch of any other run takes as long as here, within "
    f"{WITHIN:.0%}."
)
PAPER = (
    "PSP's response falls with more nodes while its state stays the same; ATR's does not fall and its "
    "state grows; CTR's falls, and copies cost memory"
)
SETUP = (
    f"{RATE:g} images of 5,000 pixels a second in each stream, windows of {WINDOW_S} s, one pair in "
    f"{SCENES} alike; a batch has {BATCH_S} s of all streams, and batches count once the window is "
    f"full. Larger images are fewer, {IMAGES['middle'].rate:g} a second of 10,000 pixels and "
    f"{IMAGES['large'].rate:g} of 20,000, with one pair in {IMAGES['middle'].scenes} and one in "
    f"{IMAGES['large'].scenes} alike. The pairs grow with the square of the rate, and the cost of a "
    "pair with the pixels, so a batch compares about equally many pixels with each size: the figure "
    "compares how the response changes with the slots, and not one size with another. Where no size is "
    f"given, images have 5,000 pixels. ATR's segments are {SEGMENT_S} s. A third slot has no core of "
    "its own. CTR's rows visit the fewest slots that have all slices, which of two slots is one. But "
    "each stream's rows choose for themselves, prefer slots that the other streams have left idle, and "
    "go round from batch to batch: of three streams two are with one slot and one with the other, so "
    "two slots share the work of a batch as two to one, and evenly over batches. The costs of a pair, a "
    "row and a batch come from the run of PSP with one slot: the work of its slot, and the time of a "
    "batch beyond that. The counterparts of the other runs have the same rows, slices, covers and "
    "segments, at these costs, and slots that wait for one of two cores."
)


@dataclass(frozen=True)
class Run:
    """One distribution with some slots."""

    line: str
    slots: int
    batches: tuple[RingBatch, ...]
    #: Rows stored after the last batch, and rows in the windows.
    kept: int
    window: int
    exact: bool

    @property
    def name(self) -> str:
        """Its name among all runs."""
        return f"{self.line} {self.slots}"

    @property
    def took_s(self) -> float:
        """Seconds of a batch."""
        return median(one.seconds for one in self.batches)

    @property
    def described(self) -> RealRing:
        """Its description, for its counterpart."""
        line = LINES[self.line]
        images = IMAGES[line.size]
        return RealRing(
            images.rate,
            images.scenes,
            float(WINDOW_S),
            float(BATCH_S),
            BATCHES,
            FIRST,
            slots=self.slots,
            distribution=line.adapt["distribute"],
            interval_s=float(SEGMENT_S),
            copies=COPIES,
            groups=GROUPS,
            streams=images.streams,
            cores=CORES,
            seed=images.seed,
        )


def counterparts(runs: Sequence[Run]) -> tuple[dict[str, RingCosts], dict[str, RingComparison]]:
    """The costs of one slot of PSP, by image size; and all other runs with these costs."""
    alone = {LINES[run.line].size: run for run in runs if run.slots == 1 and run.line != ATR}
    costs = {size: costs_of(run.described, run.batches) for size, run in alone.items()}
    return costs, {
        run.name: compared(run.described, costs[LINES[run.line].size], run.batches)
        for run in runs
        if run not in alone.values()
    }


def judged(runs: Sequence[Run]) -> dict[str, Any]:
    """The document of the figure, only from the measurements."""
    took = {(run.line, run.slots): run.took_s for run in runs}
    lines = {line: [run for run in runs if run.line == line] for line in LINES}
    costs, simulated = counterparts(runs)
    checks = {
        "psp_falls": all(took[line, 2] <= FALLS * took[line, 1] for line in SIZES.values()),
        "atr_stays": all(took[ATR, n] >= STAYS * took[ATR, 1] for n in (2, 3)),
        "psp_keeps_the_windows": all(
            run.kept == run.window for line in SIZES.values() for run in lines[line]
        ),
        "ctr_keeps_copies": all(run.kept == COPIES * run.window for run in lines[CTR]),
        "atr_keeps_more": all(run.kept > run.window for run in lines[ATR]),
        "simulated_agrees": all(one.agrees for one in simulated.values()),
        "exact": all(run.exact for run in runs),
    }
    return {
        "figure": NAME,
        "claim": CLAIM,
        "paper": PAPER,
        "series": {
            line: {
                "x": [run.slots for run in some],
                "y": [round(run.took_s, 3) for run in some],
            }
            for line, some in lines.items()
        },
        "measured": {
            "batch_s": {run.name: round(run.took_s, 3) for run in runs},
            "busy_s": {run.name: _busy(run.batches) for run in runs},
            "kept_rows": {run.name: run.kept for run in runs},
            "window_rows": {line: some[0].window for line, some in lines.items()},
            "costs": {size: one.to_json() for size, one in costs.items()},
            "simulated_batch_s": {
                name: round(one.simulated_s, 3) for name, one in simulated.items()
            },
            "ratios": {name: round(one.ratio, 3) for name, one in simulated.items()},
            "within": WITHIN,
            "checks": checks,
            "exact": checks["exact"],
        },
        "holds": all(checks.values()),
    }


def _busy(batches: Sequence[RingBatch]) -> list[float]:
    """Seconds that each slot works in a batch."""
    return [round(median(some), 3) for some in zip(*(one.busy_s for one in batches), strict=True)]


def words(measured: Mapping[str, Any]) -> str:
    """What was measured, in a line."""
    took, kept, checks = (measured[name] for name in ("batch_s", "kept_rows", "checks"))
    lines = itertools.groupby(took, lambda key: key.rpartition(" ")[0])
    told = [_told(line, {key: (took[key], kept[key]) for key in mine}) for line, mine in lines]
    if checks["psp_keeps_the_windows"]:
        told.append("PSP's rows are those of the windows")
    failed = [name for name, held in checks.items() if not held]
    said = [". ".join(told)]
    if "ratios" in measured:
        said.append(f"Simulated, batches take {spread(measured['ratios'])} of what they take here")
    return ". ".join(said) + (f". Not so: {', '.join(failed)}" if failed else "")


def spread(ratios: Mapping[str, float]) -> str:
    """The least and the largest of some ratios, and whose they are.

    Example:
        >>> spread({"PSP 2": 0.9312, "ATR 2": 1.1})
        '0.93 (PSP 2) to 1.10 (ATR 2)'
    """
    least, most = (of(ratios, key=ratios.__getitem__) for of in (min, max))
    return f"{ratios[least]:.2f} ({least}) to {ratios[most]:.2f} ({most})"


def _told(line: str, runs: Mapping[str, tuple[float, int]]) -> str:
    """The runs of a line, by their names, which end with the slots: their seconds and rows."""
    kept = sorted({rows for _, rows in runs.values()})
    return (
        f"{line}: {_listed(f'{seconds:.2f}' for seconds, _ in runs.values())} s with "
        f"{_listed(key.rpartition(' ')[2] for key in runs)} slots, "
        f"{_listed(f'{rows:,}' for rows in kept)} rows kept"
    )


def _listed(some: Iterable[str]) -> str:
    *before, last = some
    return f"{', '.join(before)} and {last}" if before else last
