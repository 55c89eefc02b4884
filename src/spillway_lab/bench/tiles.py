"""Functions of pairs against functions of tiles: the same visit, in turns in one process.

New rows visit a run of stored rows, without Spark. Two predicates: the cosine of vectors of 512 floats,
and the mean difference of images. Each is a function of pairs, a function of tiles in plain numpy, and a
tile with the measure of Spillway. Processor time of the best of several turns counts, because other work
on the machine only adds to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.operators.input import StreamColumns
from spillway.operators.predicates.binding import bound
from spillway.operators.predicates.measures import cosine_above, nearer
from spillway.operators.predicates.tiles import tiles
from spillway.operators.stats import OperatorStats
from spillway.operators.theta.combinations import Combinations, combinations
from spillway.operators.theta.search import Search
from spillway.operators.theta.visit import Visit
from spillway.routing.groups import group_of
from spillway.routing.routing import group_ranges
from spillway.routing.slices import slicing_for
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway_lab.workloads.images import LIMIT
from spillway_lab.workloads.pixels import nearer as nearer_pairs

WINDOW_US, GROUPS, PAIR_ROWS = 1_000_000, 64, 32_768
FLOATS, IMAGE_BYTES = 512, 15_000
#: A cosine that one random pair in a hundred exceeds.
COSINE = 0.1
#: Stored rows and visitors: enough for a tenth of a second or more of each predicate.
COSINE_ROWS, IMAGE_ROWS = (8_192, 1_024), (1_024, 128)
TURNS = 3
#: Images that plain numpy compares at once, few enough to stay in a processor's cache.
_HELD = 50

Say = Callable[[dict[str, Any]], None]
Mask = NDArray[np.bool_]


def cosine_pairs(a: Any, b: Any) -> Mask:
    """Unit vectors, pair by pair."""
    return np.asarray((a.matrix("v") * b.matrix("v")).sum(axis=1) > COSINE)


def cosine_tiles(a: Any, b: Any) -> Mask:
    """Unit vectors, as a matrix product."""
    return np.asarray(a.matrix("v") @ b.matrix("v").T > COSINE)


def cosine_measure(a: Any, b: Any) -> Mask:
    """Vectors of any length, with the measure of Spillway."""
    return cosine_above(a.matrix("v"), b.matrix("v"), COSINE)


def image_pairs(a: Any, b: Any) -> Mask:
    """Images, pair by pair."""
    return nearer_pairs(a, b, "v", LIMIT)


def image_tiles(a: Any, b: Any) -> Mask:
    """Each image of one side with all of the other, in plain numpy."""
    left, right = a.matrix("v"), b.matrix("v")
    found = np.empty((len(left), len(right)), np.bool_)
    for at in range(0, len(right), _HELD):
        some = right[at : at + _HELD]
        for row, one in enumerate(left):
            apart = np.maximum(one, some) - np.minimum(one, some)
            sums = apart.sum(axis=1, dtype=np.uint32)
            found[row, at : at + _HELD] = sums < LIMIT * left.shape[1]
    return found


def image_measure(a: Any, b: Any) -> Mask:
    """Images with the measure of Spillway."""
    return nearer(a.matrix("v"), b.matrix("v"), LIMIT)


@dataclass(frozen=True)
class Visited:
    """A run of one stream, and visitors of another."""

    streams: tuple[StreamColumns, ...]
    run: RunData
    left: Combinations
    kind: str

    def found(self, test: Any) -> tuple[float, int]:
        """The processor time of one visit, and the pairs that pass."""
        segments = [
            Segment(self.run, *self.run.rows_in(one), one)
            for one in group_ranges(list(range(GROUPS)), GROUPS)
        ]
        kinds = {name: {"t": "timestamp_ntz", "v": self.kind} for name in "ab"}
        search = Search(
            self.streams,
            slicing_for([WINDOW_US] * 2, [0, 0], GROUPS),
            [bound(test, ("a", "b"), kinds)],
            1,
            [one for one in segments if one.rows],
            PAIR_ROWS,
            [[0], [0]],
        )
        blocks = Visit(search, self.left, OperatorStats(GROUPS)).blocks()
        since, count = time.process_time(), 0
        for block in blocks:
            count += len(block[0][0])
        return time.process_time() - since, count


def visited(
    kind: str, values: Callable[[np.random.Generator, int], pa.Array], rows: tuple[int, int]
) -> Visited:
    """Rows and visitors of one moment, so that every pair is a candidate."""
    rng = np.random.default_rng(0)
    names = ("t", "v")
    streams = tuple(StreamColumns(s, names, (0, 1), (), 0, WINDOW_US, (0,)) for s in "ab")
    slicing = slicing_for([WINDOW_US] * 2, [0, 0], GROUPS)
    times = np.sort(rng.integers(0, WINDOW_US // 2, rows[0]))
    places = slicing.places(1, times)
    columns = [pa.array(places), pa.array(times, pa.timestamp("us")), values(rng, rows[0])]
    columns.append(pa.array(np.zeros(rows[0], np.int32)))
    batch = pa.record_batch(columns, ["_h", "c0", "c1", "c2"])
    by_place = batch.take(pa.array(np.argsort(places, kind="stable")))
    assert len(np.unique(group_of(places, GROUPS))) > 1
    mine = np.sort(rng.integers(0, WINDOW_US // 2, rows[1]))
    coming = [pa.array(mine, pa.timestamp("us")), values(rng, rows[1])]
    return Visited(streams, RunData(by_place, 0), combinations(0, {0: coming}, streams), kind)


def vectors(rng: np.random.Generator, count: int) -> pa.Array:
    """Unit vectors in single precision."""
    found = rng.standard_normal((count, FLOATS)).astype(np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    ends = pa.array(np.arange(count + 1, dtype=np.int32) * FLOATS)
    return pa.ListArray.from_arrays(ends, pa.array(found.ravel()))


def images(rng: np.random.Generator, count: int) -> pa.Array:
    """Images of random pixels."""
    pixels = rng.integers(0, 256, (count, IMAGE_BYTES), np.uint8)
    return pa.array([row.tobytes() for row in pixels], pa.binary())


def measure_tiles(say: Say, turns: int = TURNS) -> dict[str, dict[str, float]]:
    """Pairs per second of processor time, by predicate and kind of function."""
    cases = {
        "cosine": (
            ("array<float>", vectors, COSINE_ROWS),
            {"pairs": cosine_pairs, "tiles": tiles(cosine_tiles), "measure": tiles(cosine_measure)},
        ),
        "image": (
            ("binary", images, IMAGE_ROWS),
            {"pairs": image_pairs, "tiles": tiles(image_tiles), "measure": tiles(image_measure)},
        ),
    }
    found = {}
    for name, (how, tests) in cases.items():
        rows = visited(*how)
        pairs = rows.run.rows * rows.left.count
        best: dict[str, float] = {}
        passed = set()
        for turn in range(turns + 1):
            say({"phase": f"{name} tiles", "batch": turn, "of": turns})
            for kind, test in tests.items():
                seconds, count = rows.found(test)
                passed.add(count)
                # The first turn warms up.
                if turn:
                    best[kind] = max(best.get(kind, 0.0), pairs / max(seconds, 1e-9))
        found[name] = best | {"same": float(max(passed) - min(passed) <= pairs / 1_000_000)}
    return found
