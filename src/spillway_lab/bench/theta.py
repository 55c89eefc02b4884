"""The cost of a join on a predicate, in its own process: an order in, measured rates out.

    python -m spillway_lab.bench.theta ORDER.json RESULT.json

One slot, then two, match images (spillway_lab/workloads/scenes.py) by their pixels within a window. A
plain numpy loop compares blocks of the same size; both measure thread processor time. Then two streams
of numbers match in a band of one in a hundred: in SQL, from sorted order, and with a function over all
pairs. Pair counts include all pairs within the window, tested or not. At the end the stored rows are
compared with the rows in the window. Last, functions of pairs are compared with tiles (bench/tiles.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyspark
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from spillway.rows.bounds import BLOCK_BYTES
from spillway.spark.api.join import join
from spillway_lab.bench.engine import answer, session
from spillway_lab.bench.spec import CORES, EngineOrder
from spillway_lab.bench.tiles import measure_tiles
from spillway_lab.workloads.images import LIMIT, alike
from spillway_lab.workloads.pixels import difference
from spillway_lab.workloads.scenes import Scenes

#: Batches in a window, batches that warm up, and batches that are measured.
WINDOW, WARM, MEASURED = 8, 9, 8
#: Other benchmarks have this many rows for each image; and the pixels of an image.
IMAGES_SHARE = 1100
PIXELS = 5_000
#: Other benchmarks have this many rows for each number; and half the width of the band.
NUMBERS_SHARE = 40
BAND = 0.005
#: Blocks of pairs that the plain loop compares.
BLOCKS = 200
_LOOK_EVERY_S = 0.1
_PATIENCE_S = 600.0

Say = Callable[[dict[str, Any]], None]


def measure(order: EngineOrder, say: Say) -> dict[str, Any]:
    """All measurements."""
    spark = session(order)
    images = Scenes(max(1, order.rows // IMAGES_SHARE), PIXELS)
    numbers = Scenes(max(1, order.rows // NUMBERS_SHARE))
    try:
        found = {
            "numpy_pairs_per_cpu_s": _numpy_pairs_per_cpu_s(images, say),
            "one": _run(spark, order, images, alike, 1, "one slot", say),
            "two": _run(spark, order, images, alike, CORES, "two slots", say),
            "band": _run(spark, order, numbers, f"abs(a.x - b.x) < {BAND}", 1, "band", say),
            "all_pairs": _run(spark, order, numbers, _near, 1, "all pairs", say),
        }
    finally:
        spark.stop()
    tiled = {"tiles": measure_tiles(say)}
    return {"engine": order.engine, "spark": pyspark.__version__, **found, **tiled}


def _near(a: Any, b: Any) -> NDArray[np.bool_]:
    return np.asarray(np.abs(a.x - b.x) < BAND)


def _run(
    spark: SparkSession,
    order: EngineOrder,
    scenes: Scenes,
    condition: Any,
    slots: int,
    what: str,
    say: Say,
) -> dict[str, Any]:
    """Runs the batches; counts the pairs within the window, and measures time."""
    window_ms = WINDOW * scenes.advance_ms
    matched = join(**scenes.stream(spark)).within(f"{window_ms} milliseconds", time="ts")
    query = (
        matched.match(condition, "a", "b").select("a.id AS a", "b.id AS b")
        .writeStream.format("noop")
        .option("checkpointLocation", f"{order.directory}/checkpoint-{what.replace(' ', '-')}")
        .adapt(slots=slots, groups=64).start()
    )  # fmt: skip
    entries: dict[int, dict[str, Any]] = {}
    seconds: dict[int, float] = {}
    ends = time.monotonic() + _PATIENCE_S
    try:
        while len(seconds.keys() & entries.keys()) < WARM + MEASURED:
            if (problem := query.exception()) is not None:
                raise problem
            if time.monotonic() > ends:
                raise TimeoutError(f"{what} took more than {_PATIENCE_S} seconds")
            time.sleep(_LOOK_EVERY_S)
            entries |= {one["batchId"]: one for one in query.recentProgress}
            seconds |= {
                one["batchId"]: one["durationMs"]["triggerExecution"] / 1e3
                for one in query.sparkProgress
            }
            say({"phase": what, "batch": len(seconds), "of": WARM + MEASURED})
    finally:
        query.stop()
    measured = range(WARM, WARM + MEASURED)
    return {
        "pairs": _pairs(scenes, WARM, WARM + MEASURED),
        "rows": 2 * scenes.rows * MEASURED,
        "seconds": sum(seconds[batch] for batch in measured),
        "cpu_s": sum(entries[batch]["operatorCpuMs"] / 1e3 for batch in measured),
        "rows_out": sum(entries[batch]["rowsOut"] for batch in measured),
        "state_rows": entries[measured[-1]]["stateRows"],
        "window_rows": _window_rows(scenes, entries[measured[-1]]),
    }


def _pairs(scenes: Scenes, first: int, last: int) -> int:
    """The pairs within the window that have a row in these batches, by arithmetic."""
    since = max(0, first - WINDOW) * scenes.rows
    times = _times_ms(scenes, np.arange(since, last * scenes.rows))
    window_ms = WINDOW * scenes.advance_ms
    new = _times_ms(scenes, np.arange(first * scenes.rows, last * scenes.rows))
    # Count by the later row of each pair: earlier rows, then rows of the same millisecond.
    before = np.searchsorted(times, new, side="left") - np.searchsorted(
        times, new - window_ms, side="right"
    )
    alike_times = np.searchsorted(times, new, side="right") - np.searchsorted(
        times, new, side="left"
    )
    return int(2 * before.sum() + alike_times.sum())


def _times_ms(scenes: Scenes, values: NDArray[np.int64]) -> NDArray[np.int64]:
    batch, within = np.divmod(values, scenes.rows)
    return np.asarray(batch * scenes.advance_ms + within * scenes.advance_ms // scenes.rows)


def _window_rows(scenes: Scenes, entry: dict[str, Any]) -> int:
    """The rows that can still find partners after a batch, given its watermark."""
    batch = entry["batchId"]
    times = _times_ms(scenes, np.arange((batch + 1) * scenes.rows))
    # State expires by the watermark before the batch: the last time in the previous batch.
    mark = _times_ms(scenes, np.arange(batch * scenes.rows)).max()
    return int(2 * (times + WINDOW * scenes.advance_ms > mark).sum())


def _numpy_pairs_per_cpu_s(scenes: Scenes, say: Say) -> float:
    """Pairs per second of processor time, in a plain loop over blocks of the join's size."""
    say({"phase": "numpy", "batch": 0, "of": 1})
    rows = WINDOW * scenes.rows
    random = np.random.default_rng(0)
    one, other = (random.integers(0, 256, (rows, 3 * PIXELS), np.uint8) for _ in range(2))
    block = max(1, BLOCK_BYTES // (2 * 3 * PIXELS))
    left, right = (side.ravel() for side in np.meshgrid(np.arange(rows), np.arange(rows)))
    done, began = 0, 0.0
    for at in range(0, min(len(left), BLOCKS * block), block):
        if at == block:
            # The first block warms up.
            began = time.thread_time()
        _ = difference(one[left[at : at + block]], other[right[at : at + block]]) < LIMIT
        done += len(left[at : at + block]) if at else 0
    return done / (time.thread_time() - began)


if __name__ == "__main__":
    answer(measure, *sys.argv[1:])
