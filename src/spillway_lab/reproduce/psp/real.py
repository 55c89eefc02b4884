"""PSP and its rivals on Spark: rings of one to three slots, with the paper's streams of images.

Each distribution, with each slot count that makes sense on this machine, matches three streams of
images at Poisson times (spillway_lab/workloads/images.py) by their pixels within a window; PSP does
so with each of the paper's sizes (8.1). The response is the time of a batch; the state is the rows of
all slots together, including copies. The results are compared with the scenes of the images, and
batches with those of a simulated ring (spillway_lab/reproduce/psp/judged.py).
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spillway.spark.api.join import join
from spillway.spark.api.session import local_session
from spillway_lab.quiet import java_errors_to
from spillway_lab.reproduce.flux.terms import RealFigure
from spillway_lab.reproduce.psp.judged import (
    BATCH_S,
    BATCHES,
    CLAIM,
    CORES,
    FIRST,
    GROUPS,
    IMAGES,
    LINES,
    NAME,
    NAMES,
    PAPER,
    SETUP,
    TITLE,
    WINDOW_S,
    Line,
    Run,
    judged,
    words,
)
from spillway_lab.simulator.ring.counterpart import RingBatch
from spillway_lab.workloads.images import Images, alike

#: The costs of receiving and storing rows, as a slot's record names them.
_STORING = ("store", "compact", "commit")


def document(say: Callable[[str], None]) -> dict[str, Any]:
    """Runs it all."""
    with tempfile.TemporaryDirectory(prefix="spillway-reproduce-") as folder:
        say("starting Spark")
        with java_errors_to(Path(folder) / "spark.log"):
            spark = local_session("spillway-reproduce", f"local[{CORES}]")
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
        .adapt(slots=slots, groups=GROUPS, **line.adapt)
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
        tuple(batch_of(entries[batch], seconds[batch]) for batch in measured),
        int(entries[measured[-1]]["stateRows"]),
        window_rows(IMAGES[line.size], measured[-1]),
        found == expected(IMAGES[line.size]),
    )


def batch_of(entry: Mapping[str, Any], seconds: float) -> RingBatch:
    """The measurements of a batch that took this long, from an entry of `query.recentProgress`."""
    slots = entry["slots"]
    received, *stored = (
        sum(slot["cpuMs"].get(phase, 0.0) for slot in slots) / 1e3 for phase in ("sort", *_STORING)
    )
    return RingBatch(
        seconds,
        sum(entry["rowsIn"].values()),
        tuple(slot["busyMs"] / 1e3 for slot in slots),
        received,
        sum(stored),
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
