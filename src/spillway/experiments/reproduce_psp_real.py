"""PSP and its rivals on Spark: rings of one to three slots, with the paper's streams of images.

Three streams of images at Poisson times (workloads/images.py) are matched by their pixels within a
window, by each distribution and with each number of slots that this machine has sense for. The response
is the time of a batch; of the state, the rows that all slots keep together, copies included. What comes
out is compared with what the scenes of the images say.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from spillway.workloads.images import Images, alike

NAME = "psp-real"
TITLE = "PSP 8.2 on Spark: three streams of images, one to three slots on two cores"
PSP, ATR, CTR = "PSP", "ATR", "CTR"
WINDOW_S, BATCH_S, BATCHES, FIRST = 10, 2, 12, 6
COPIES, SEGMENT_S = 2, 20
IMAGES = Images(rate=32.0, seconds=float(BATCH_S * BATCHES), scenes=150)
NAMES = ("a", "b", "c")
#: Each distribution: its settings, and the numbers of slots.
LINES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    PSP: ({"distribute": "psp"}, (1, 2, 3)),
    ATR: ({"distribute": "atr", "segment": f"{SEGMENT_S} seconds"}, (1, 2, 3)),
    CTR: ({"distribute": "ctr", "copies": COPIES}, (2, 3)),
}
#: Of the response with one slot, what two may take of it at most; and what is no less, but for chance.
FALLS, STAYS = 0.75, 0.85

CLAIM = (
    f"With two slots PSP answers in {FALLS:g} of the time of one or less; with ATR more slots never "
    f"come below {STAYS:g} of it. PSP's slots keep exactly the rows of the windows, however many they "
    f"are; CTR's keep {COPIES} of each, and ATR's more than PSP's. All give the same rows."
)
PAPER = (
    "PSP's response falls with more nodes while its state stays the same; ATR's does not fall and its "
    "state grows; CTR's falls, and copies cost memory"
)
SETUP = (
    f"{IMAGES.rate:g} images of 5,000 pixels a second in each stream, windows of {WINDOW_S} s, one "
    f"pair in {IMAGES.scenes} alike; a batch has {BATCH_S} s of all streams, and those after the window "
    f"is full are measured. ATR's segments are {SEGMENT_S} s. A third slot has no core of its own. "
    "CTR's rows visit as few slots as have all slices, which of two slots is one, so whether its "
    "response falls can only be seen on longer rings."
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
            _write(Path(folder))
            say(f"{NAME}: warming up")
            _run(spark, Path(folder), "warm", {}, 2)
            runs = []
            for line, (adapt, lengths) in LINES.items():
                for slots in lengths:
                    say(f"{NAME}: {line} with {slots} slots")
                    runs.append(_run(spark, Path(folder), line, adapt, slots))
        finally:
            spark.stop()
    return judged(runs)


def judged(runs: Sequence[Run]) -> dict[str, Any]:
    """The document of the figure, from what was measured alone."""
    took = {(run.line, run.slots): median(run.batch_s) for run in runs}
    kept = {(run.line, run.slots): run.kept for run in runs}
    lines = {line: [run for run in runs if run.line == line] for line in LINES}
    checks = {
        "psp_falls": took[PSP, 2] <= FALLS * took[PSP, 1],
        "atr_stays": all(took[ATR, n] >= STAYS * took[ATR, 1] for n in (2, 3)),
        "psp_keeps_the_windows": all(run.kept == run.window for run in lines[PSP]),
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
            "window_rows": lines[PSP][0].window,
            "checks": checks,
            "exact": checks["exact"],
        },
        "holds": all(checks.values()),
    }


def words(measured: Mapping[str, Any]) -> str:
    """What was measured, in a line."""
    took, kept = measured["batch_s"], measured["kept_rows"]
    told = (
        f"{line} {', '.join(f'{took[key]:.2f}' for key in mine)} s with "
        f"{' and '.join((', '.join(sizes[:-1]), sizes[-1]))} slots, "
        f"{min(kept[key] for key in mine):,} to {max(kept[key] for key in mine):,} rows kept"
        for line in LINES
        if (mine := [key for key in took if key.startswith(line)])
        and (sizes := [key.split()[-1] for key in mine])
    )
    failed = [name for name, held in measured["checks"].items() if not held]
    return f"{'; '.join(told)}; the windows have {measured['window_rows']:,}" + (
        f". Not so: {', '.join(failed)}" if failed else ""
    )


def _write(folder: Path) -> None:
    """The batches as files, in the order of their times."""
    for at, name in enumerate(NAMES):
        (folder / name).mkdir()
        for batch in range(BATCHES):
            path = folder / name / f"{batch:03}.parquet"
            rows = IMAGES.table(at, batch * BATCH_S, (batch + 1) * BATCH_S)
            pq.write_table(rows, path, coerce_timestamps="us")
            os.utime(path, (1e9 + batch, 1e9 + batch))


def _run(spark: SparkSession, folder: Path, line: str, adapt: Mapping[str, Any], slots: int) -> Run:
    place = folder / f"{line}-{slots}"
    streams = {
        name: spark.readStream.schema("id bigint, ts timestamp, image binary")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        for name in NAMES
    }
    matched = join(**streams).within(f"{WINDOW_S} seconds", time="ts")
    for left, right in itertools.pairwise(NAMES):
        matched = matched.match(alike, left, right)
    query = (
        matched.select(*(f"{name}.id AS {name}" for name in NAMES))
        .writeStream.format("parquet")
        .option("path", str(place / "rows"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .adapt(slots=slots, groups=64, **adapt)
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
        line,
        slots,
        tuple(seconds[batch] for batch in measured),
        int(entries[measured[-1]]["stateRows"]),
        window_rows(IMAGES, measured[-1]),
        found == expected(IMAGES),
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
