"""Three live cameras whose frames match by their pixels within ten seconds, and a page of matches.

An embedded Spark joins the frames with a user's function, without an equal key. Each second of the
run adds a second of frames. At the end the demonstration compares the committed results with all
combinations of the consumed frames, and writes a page with some matches.
"""

from __future__ import annotations

import base64
import html
import os
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from spillway.errors import QueryError, SettingsError
from spillway.settings import Adapt
from spillway.spark.api.join import join
from spillway.spark.api.query import Query
from spillway.spark.api.session import local_session
from spillway_lab.demo.banks import Live, open_dashboard
from spillway_lab.quiet import java_errors_to
from spillway_lab.workloads.cameras import HEIGHT, NAMES, WIDTH, Cameras, Frame, alike

WINDOW_S = 10
#: Matches that the page shows.
SHOWN = 40
_SCHEMA = "id bigint, ts timestamp, frame binary"
_LOOK_EVERY_S = 0.2
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class SimilaritySpec:
    """The length, rate and parallelism of a demonstration, and the path of its page."""

    seconds: float = 30
    rate: float = 12.0
    slots: int | None = None
    page: Path = Path("similarity.html")

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.rate <= 0:
            raise SettingsError(
                f"--seconds {self.seconds:g} and --rows {self.rate:g} must be positive",
                hint="for example --seconds 30 --rows 12",
            )
        Adapt(slots=self.slots)


@dataclass(frozen=True)
class SimilarityResult:
    """The outcome of a run, and whether it was exact."""

    frames: int
    matches: int
    expected: int
    exact: bool
    batches: int
    #: Median time of a batch.
    batch_ms: float
    page: str

    def document(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"demo": "similarity", **vars(self)}


def run_similarity(spec: SimilaritySpec, show: Callable[[Live], None]) -> SimilarityResult:
    """Runs the cameras, checks the matches, and writes the page."""
    live = Live()
    show(live)
    with tempfile.TemporaryDirectory(prefix="spillway-demo-") as folder:
        root = Path(folder)
        with java_errors_to(root / "spark.log"):
            spark = local_session(
                "spillway-similarity", conf={"spark.local.dir": str(root / "scratch")}
            )
        try:
            consumed = _run(spark, spec, root, live, show)
            live.phase = "checking"
            show(live)
            return _checked(spec, root, live, consumed)
        finally:
            spark.stop()


def _run(
    spark: SparkSession, spec: SimilaritySpec, root: Path, live: Live, show: Callable[[Live], None]
) -> int:
    """Runs the query; returns how many seconds of frames the committed batches consumed."""
    cameras = Cameras(spec.rate)
    first, second, third = NAMES
    _add(cameras, root, 0)
    source = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
    matched = (
        join(**{name: source.parquet(str(root / name)) for name in NAMES})
        .within(f"{WINDOW_S} seconds", time="ts")
        .match(alike, first, second)
        .match(alike, second, third)
    )
    query: Query = (
        matched.writeStream.format("parquet")
        .option("checkpointLocation", str(root / "checkpoint"))
        .adapt(slots=spec.slots, groups=64)
        .trigger(processingTime="1 second")
        .start(str(root / "out"))
    )
    board = open_dashboard(query, live, show)
    live.phase = "running"
    began = time.monotonic()
    made = 1
    try:
        while (elapsed := time.monotonic() - began) < spec.seconds or live.batch + 1 < made:
            if (problem := query.exception()) is not None:
                raise problem
            if elapsed > spec.seconds + _PATIENCE_S:
                raise QueryError(
                    f"the query did not finish within {_PATIENCE_S:g} s of the last frame",
                    hint="run `spillway doctor`, or use fewer --rows",
                )
            if elapsed < spec.seconds and made < elapsed:
                _add(cameras, root, made)
                made += 1
            live.elapsed_s = elapsed
            if live.take(query.recentProgress):
                show(live)
            time.sleep(_LOOK_EVERY_S)
    finally:
        query.stop()
        if board is not None:
            board.close()
    return live.batch + 1


def _add(cameras: Cameras, root: Path, number: int) -> None:
    """Writes a second of frames: a file per camera, visible only when complete."""
    for camera, name in enumerate(NAMES):
        folder = root / name
        folder.mkdir(exist_ok=True)
        hidden = folder / f".{number:06d}.parquet"
        pq.write_table(cameras.second(camera, number), hidden)
        # Spark reads files in the order of their modification times.
        os.utime(hidden, (number, number))
        hidden.replace(folder / hidden.name[1:])


def _checked(spec: SimilaritySpec, root: Path, live: Live, consumed: int) -> SimilarityResult:
    cameras = Cameras(spec.rate)
    frames = [
        pa.concat_tables([cameras.second(camera, number) for number in range(consumed)])
        for camera in range(len(NAMES))
    ]
    wanted = combinations(frames)
    found = _written(root / "out")
    exact = len(found) == len(wanted) and bool(np.array_equal(_ordered(found), _ordered(wanted)))
    spec.page.write_text(page(frames, found, exact=exact, consumed=consumed))
    return SimilarityResult(
        frames=sum(one.num_rows for one in frames),
        matches=len(found),
        expected=len(wanted),
        exact=exact,
        batches=consumed,
        batch_ms=round(float(np.median(live.batch_ms)), 1),
        page=str(spec.page),
    )


def _written(folder: Path) -> NDArray[np.int64]:
    """The ids of the matched frames, three per match."""
    table = pq.read_table(folder)
    columns = [pc.struct_field(table[name], "id").to_numpy() for name in NAMES]
    return np.stack(columns, axis=1) if table.num_rows else np.empty((0, len(NAMES)), np.int64)


def combinations(frames: Sequence[pa.Table]) -> NDArray[np.int64]:
    """All matches, from comparing every frame with every other; three ids each."""
    times = [one["ts"].cast(pa.int64()).to_numpy() for one in frames]
    pixels = [_pixels(one) for one in frames]
    near = [_alike(pixels[at], pixels[at + 1]) for at in range(2)]
    window = WINDOW_S * 1_000_000
    found = []
    for i, j in np.argwhere(near[0]):
        for k in np.flatnonzero(near[1][j]):
            at = (times[0][i], times[1][j], times[2][k])
            if max(at) - min(at) < window:
                found.append((i, j, k))
    ids = [one["id"].to_numpy() for one in frames]
    return np.array([[ids[c][at[c]] for c in range(3)] for at in found], np.int64).reshape(-1, 3)


def _alike(left: Frame, right: Frame) -> NDArray[np.bool_]:
    """For each frame of one camera, which frames of another match."""
    rows = [alike(_Shown(np.broadcast_to(one, right.shape)), _Shown(right)) for one in left]
    return np.stack(rows) if rows else np.empty((0, len(right)), np.bool_)


class _Shown(SimpleNamespace):
    """Frames as a predicate sees them."""

    def __init__(self, rows: Frame) -> None:
        super().__init__(matrix=lambda _: rows)


def _pixels(frames: pa.Table) -> Frame:
    rows = [np.frombuffer(one.as_py(), np.uint8) for one in frames["frame"]]
    return np.stack(rows) if rows else np.empty((0, 3 * WIDTH * HEIGHT), np.uint8)


def _ordered(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    return ids[np.lexsort(ids.T)]


def page(
    frames: Sequence[pa.Table], found: NDArray[np.int64], *, exact: bool, consumed: int
) -> str:
    """The matches as a page of pictures."""
    by_id = [{row["id"]: row for row in one.to_pylist()} for one in frames]
    rows = []
    for ids in found[:: max(1, len(found) // SHOWN)][:SHOWN].tolist():
        shown = [by_id[camera][one] for camera, one in enumerate(ids)]
        cells = (
            f'<figure><img src="{_png(one["frame"])}" alt="frame {one["id"]}">'
            f"<figcaption>{name} {one['ts']:%H:%M:%S.%f}</figcaption></figure>"
            for name, one in zip(NAMES, shown, strict=True)
        )
        rows.append(f'<div class="match">{"".join(cells)}</div>')
    total = sum(one.num_rows for one in frames)
    verdict = (
        "a test of all combinations finds the same"
        if exact
        else "a test of all combinations finds other matches"
    )
    told = (
        f"{total:,} frames of {len(frames)} cameras in {consumed} seconds, {len(found):,} matches "
        f"within {WINDOW_S} seconds: {verdict}. This page shows {len(rows)} of them."
    )
    return _PAGE.format(told=html.escape(told), rows="\n".join(rows))


def _png(frame: bytes) -> str:
    """A frame as a data URL that a page can embed."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    lines = np.frombuffer(frame, np.uint8).reshape(HEIGHT, 3 * WIDTH)
    raw = np.hstack([np.zeros((HEIGHT, 1), np.uint8), lines]).tobytes()
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(raw)), chunk(b"IEND", b""))
    encoded = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()
    return f"data:image/png;base64,{encoded}"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Matching frames</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }}
main {{ display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); }}
.match {{ border: 1px solid #ccc; border-radius: 6px; display: flex; gap: 6px; padding: 6px; }}
figure {{ margin: 0; flex: 1; }}
img {{ display: block; image-rendering: pixelated; width: 100%; }}
figcaption {{ color: #666; font-size: 11px; }}
</style>
</head>
<body>
<h1>Matching frames</h1>
<p>{told}</p>
<main>
{rows}
</main>
</body>
</html>
"""
