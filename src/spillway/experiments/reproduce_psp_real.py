"""PSP and its rivals on Spark: rings of one to three slots, with the paper's streams of images.

Three streams of images at Poisson times (workloads/images.py) are matched by their pixels within a
window, by each distribution and with each number of slots that this machine has sense for; by PSP with
each of the paper's sizes (8.1). The response is the time of a batch; of the state, the rows that all
slots keep together, copies included. What comes out is compared with what the scenes of the images say.
"""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spillway.experiments.quiet import java_errors_to
from spillway.experiments.reproduce_flux_terms import RealFigure
from spillway.spark.join import join
from spillway.spark.session import local_session
from spillway.workloads.images import PIXELS, Images, alike

NAME = "psp-real"
TITLE = "PSP 8.2 on Spark: three streams of images, one to three slots on two cores"
PSP, ATR, CTR = "PSP", "ATR", "CTR"
WINDOW_S, BATCH_S, BATCHES, FIRST = 10, 2, 12, 6
COPIES, SEGMENT_S = 2, 20
RATE, SCENES = 32.0, 150
NAMES = ("a", "b", "c")


def images_of(size: str) -> Images:
    """Images of a size, so many of them that a batch compares as many pixels with each size.

    Pairs grow with the square of the rate, and what a pair costs with the pixels. The scenes get fewer
    as the images do: so an image meets as many of its own, and the second match as many pairs.
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
    """A distribution, with the numbers of slots and the size of the images that it is run with."""

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
#: Of the response with one slot, what two may take of it at most; and what is no less, but for chance.
FALLS, STAYS = 0.75, 0.85

CLAIM = (
    f"With two slots PSP answers in {FALLS:g} of the time of one or less, for each size of the images; "
    f"with ATR more slots never come below {STAYS:g} of it. PSP's slots keep exactly the rows of the "
    f"windows, however many they are and however large the images; CTR's keep {COPIES} of each, and "
    "ATR's more than PSP's. All give exactly the rows that match."
)
PAPER = (
    "PSP's response falls with more nodes while its state stays the same; ATR's does not fall and its "
    "state grows; CTR's falls, and copies cost memory"
)
SETUP = (
    f"{RATE:g} images of 5,000 pixels a second in each stream, windows of {WINDOW_S} s, one pair in "
    f"{SCENES} alike; a batch has {BATCH_S} s of all streams, and those after the window is full are "
    f"measured. Larger images are fewer, {IMAGES['middle'].rate:g} a second of 10,000 pixels and "
    f"{IMAGES['large'].rate:g} of 20,000, with one pair in {IMAGES['middle'].scenes} and one in "
    f"{IMAGES['large'].scenes} alike. The pairs grow with the square of the rate, and what a pair costs "
    "with the pixels, so a batch compares about as many pixels with each size: how the response changes "
    "with the slots is compared, and not one size with another. Where no size is given, images have "
    f"5,000 pixels. ATR's segments are {SEGMENT_S} s. A third slot has no core of its own. CTR's rows "
    "visit as few slots as have all slices, which of two slots is one, so whether its response falls "
    "can only be seen on longer rings."
)


@dataclass(frozen=True)
class Run:
    """One distribution with some slots."""

    line: str
    slots: int
    batch_s: tuple[float, ...]
    #: Rows that are kept after the last batch, and those that the windows have.
    kept: int
    window: int
    exact: bool


def document(say: Callable[[str], None]) -> dict[str, Any]:
    """Runs it all."""
    with tempfile.TemporaryDirectory(prefix="spillway-reproduce-") as folder:
        say("starting Spark")
        with java_errors_to(Path(folder) / "spark.log"):
            spark = local_session("spillway-reproduce", "local[2]")
        try:
            for size, images in IMAGES.items():
                _write(Path(folder) / size, images)
            say(f"{NAME}: warming up")
            _run(spark, Path(folder), "warm", Line((2,)), 2)
            runs = []
            for name, line in LINES.items():
                for slots in line.slots:
                    say(f"{NAME}: {name} with {slots} slots")
                    runs.append(_run(spark, Path(folder), name, line, slots))
        finally:
            spark.stop()
    return judged(runs)


def judged(runs: Sequence[Run]) -> dict[str, Any]:
    """The document of the figure, from what was measured alone."""
    took = {(run.line, run.slots): median(run.batch_s) for run in runs}
    kept = {(run.line, run.slots): run.kept for run in runs}
    lines = {line: [run for run in runs if run.line == line] for line in LINES}
    checks = {
        "psp_falls": all(took[line, 2] <= FALLS * took[line, 1] for line in SIZES.values()),
        "atr_stays": all(took[ATR, n] >= STAYS * took[ATR, 1] for n in (2, 3)),
        "psp_keeps_the_windows": all(
            run.kept == run.window for line in SIZES.values() for run in lines[line]
        ),
        "ctr_keeps_copies": all(run.kept == COPIES * run.window for run in lines[CTR]),
        "atr_keeps_more": all(run.kept > run.window for run in lines[ATR]),
        "exact": all(run.exact for run in runs),
    }
    return {
        "figure": NAME,
        "claim": CLAIM,
        "paper": PAPER,
        "series": {
            line: {
                "x": [run.slots for run in some],
                "y": [round(took[line, run.slots], 3) for run in some],
            }
            for line, some in lines.items()
        },
        "measured": {
            "batch_s": {f"{line} {n}": round(seconds, 3) for (line, n), seconds in took.items()},
            "kept_rows": {f"{line} {n}": rows for (line, n), rows in kept.items()},
            "window_rows": {line: some[0].window for line, some in lines.items()},
            "checks": checks,
            "exact": checks["exact"],
        },
        "holds": all(checks.values()),
    }


def words(measured: Mapping[str, Any]) -> str:
    """What was measured, in a line."""
    took, kept, checks = (measured[name] for name in ("batch_s", "kept_rows", "checks"))
    lines = itertools.groupby(took, lambda key: key.rpartition(" ")[0])
    told = [_told(line, {key: (took[key], kept[key]) for key in mine}) for line, mine in lines]
    if checks["psp_keeps_the_windows"]:
        told.append("PSP's rows are those of the windows")
    failed = [name for name, held in checks.items() if not held]
    return "; ".join(told) + (f". Not so: {', '.join(failed)}" if failed else "")


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


def _write(folder: Path, images: Images) -> None:
    """The batches as files, in the order of their times."""
    for at, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True)
        for batch in range(BATCHES):
            path = folder / name / f"{batch:03}.parquet"
            rows = images.table(at, batch * BATCH_S, (batch + 1) * BATCH_S)
            pq.write_table(rows, path, coerce_timestamps="us")
            os.utime(path, (1e9 + batch, 1e9 + batch))


def _run(spark: SparkSession, folder: Path, name: str, line: Line, slots: int) -> Run:
    place = Path(tempfile.mkdtemp(dir=folder))
    streams = {
        stream: spark.readStream.schema("id bigint, ts timestamp, image binary")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / line.size / stream))
        for stream in NAMES
    }
    matched = join(**streams).within(f"{WINDOW_S} seconds", time="ts")
    for left, right in itertools.pairwise(NAMES):
        matched = matched.match(alike, left, right)
    query = (
        matched.select(*(f"{stream}.id AS {stream}" for stream in NAMES))
        .writeStream.format("parquet")
        .option("path", str(place / "rows"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .adapt(slots=slots, groups=64, **line.adapt)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    entries = {one["batchId"]: one for one in query.recentProgress}
    seconds = {
        one["batchId"]: one["durationMs"]["triggerExecution"] / 1e3 for one in query.sparkProgress
    }
    measured = range(FIRST, BATCHES)
    found = Counter(map(tuple, spark.read.parquet(str(place / "rows")).collect()))
    return Run(
        name,
        slots,
        tuple(seconds[batch] for batch in measured),
        int(entries[measured[-1]]["stateRows"]),
        window_rows(IMAGES[line.size], measured[-1]),
        found == expected(IMAGES[line.size]),
    )


def window_rows(images: Images, batch: int) -> int:
    """Rows that can still find partners after a batch, by the watermark that it had."""
    mark = min(float(times[times < batch * BATCH_S].max()) for times in images.times)
    # Times are whole microseconds.
    until, mark_us = (batch + 1) * BATCH_S, int(mark * 1e6)
    return sum(
        int(((times[times < until] * 1e6).astype(np.int64) + WINDOW_S * 1_000_000 > mark_us).sum())
        for times in images.times
    )


def expected(images: Images) -> Counter[tuple[int, ...]]:
    """The combinations of one scene within the windows, by arithmetic."""
    scenes = [images.scene_of(at) for at in range(images.streams)]
    times = [(some * 1e6).astype(np.int64) for some in images.times]
    found: Counter[tuple[int, ...]] = Counter()
    for scene in range(images.scenes):
        mine = [np.flatnonzero(some == scene) for some in scenes]
        for rows in itertools.product(*(one.tolist() for one in mine)):
            at = [int(times[stream][row]) for stream, row in enumerate(rows)]
            if max(at) - min(at) < WINDOW_S * 1_000_000:
                found[rows] += 1
    return found


PSP_REAL = {
    NAME: RealFigure(
        NAME, TITLE, CLAIM, PAPER, "slots", "seconds of a batch", document, words, SETUP
    )
}
