"""Frames of cameras, the combinations tried one by one, and the page of pictures."""

from __future__ import annotations

import base64
import re
import zlib

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import SettingsError
from spillway_lab.demo.similarity import WINDOW_S, SimilaritySpec, combinations, page
from spillway_lab.workloads.cameras import HEIGHT, NAMES, WIDTH, Cameras, scene, seen


class Rows:
    """Frames as a predicate sees them."""

    def __init__(self, frames: list[np.ndarray]) -> None:
        self._rows = np.stack([one.ravel() for one in frames])

    def matrix(self, name: str) -> np.ndarray:
        assert name == "frame"
        return self._rows


def test_frames_of_one_scene_are_alike_and_others_are_not() -> None:
    from spillway_lab.workloads.cameras import alike

    rng = np.random.default_rng(1)
    same = [seen(scene(3), rng) for _ in range(20)]
    others = [seen(scene(n), rng) for n in range(4, 24)]
    assert alike(Rows(same), Rows(same[::-1])).all()
    assert not alike(Rows(same), Rows(others)).any()


def test_a_second_of_frames_is_the_same_every_time() -> None:
    cameras = Cameras(rate=20.0)
    one, again = cameras.second(1, 4), cameras.second(1, 4)
    assert one.equals(again)
    assert one.num_rows > 0
    assert not one.equals(cameras.second(2, 4))
    times = one["ts"].cast(pa.int64()).to_numpy()
    assert (times // 1_000_000 == times[0] // 1_000_000).all()


def frames_at(*moments: tuple[int, float]) -> pa.Table:
    """Frames of scenes at seconds."""
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "id": pa.array(range(len(moments)), pa.int64()),
            "ts": pa.array([int(s * 1e6) for _, s in moments], pa.int64()).cast(
                pa.timestamp("us", tz="UTC")
            ),
            "frame": pa.array([seen(scene(n), rng).tobytes() for n, _ in moments], pa.binary()),
        }
    )


def test_combinations_are_alike_and_within_the_window() -> None:
    first = frames_at((1, 0.0), (2, 0.0))
    second = frames_at((1, 1.0), (2, WINDOW_S + 0.5))
    third = frames_at((1, WINDOW_S - 0.1), (1, WINDOW_S + 0.1), (3, 1.0))
    assert combinations([first, second, third]).tolist() == [[0, 0, 0]]


def test_page_has_the_pictures_of_matches() -> None:
    frames = [frames_at((1, 0.0)) for _ in NAMES]
    text = page(frames, np.array([[0, 0, 0]]), exact=True, consumed=1)
    pictures = re.findall(r"data:image/png;base64,([^\"]+)", text)
    assert len(pictures) == len(NAMES)
    data = base64.b64decode(pictures[0])
    assert data.startswith(b"\x89PNG")
    begin = data.index(b"IDAT") + 4
    raw = zlib.decompress(data[begin : data.index(b"IEND") - 8])
    lines = np.frombuffer(raw, np.uint8).reshape(HEIGHT, 3 * WIDTH + 1)[:, 1:]
    assert lines.tobytes() == frames[0]["frame"][0].as_py()
    assert "finds the same" in text
    assert "finds other matches" in page(frames, np.array([[0, 0, 0]]), exact=False, consumed=1)


def test_nothing_to_run_is_refused() -> None:
    with pytest.raises(SettingsError, match="--seconds 0 and --rows 12 must be positive"):
        SimilaritySpec(seconds=0)
