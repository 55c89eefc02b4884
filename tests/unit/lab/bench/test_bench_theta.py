"""The document of `bench theta`, and the pairs that it counts by arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spillway_lab.bench import theta as bench_theta
from spillway_lab.bench import tiles as bench_tiles
from spillway_lab.bench.figures import theta_document
from spillway_lab.bench.tables import table
from spillway_lab.bench.theta import WINDOW, _pairs, _times_ms, _window_rows
from spillway_lab.workloads.scenes import Scenes


def run(pairs: int, seconds: float, cpu_s: float, **more: Any) -> dict[str, Any]:
    return {
        "pairs": pairs,
        "rows": 10,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "rows_out": 5,
        "state_rows": 8,
        "window_rows": 8,
        **more,
    }


def result(**more: Any) -> dict[str, Any]:
    return {
        "engine": "spillway",
        "spark": "4",
        "numpy_pairs_per_cpu_s": 100.0,
        "one": run(900, 10.0, 10.0),
        "two": run(900, 5.0, 10.0),
        "band": run(1000, 1.0, 0.5),
        "all_pairs": run(1000, 12.0, 10.0),
        "tiles": {
            "cosine": {"pairs": 10.0, "tiles": 800.0, "measure": 600.0, "same": 1.0},
            "image": {"pairs": 10.0, "tiles": 30.0, "measure": 200.0, "same": 1.0},
        },
        **more,
    }


def test_ratios_are_those_of_the_runs() -> None:
    document = theta_document(result())
    assert document["ratios"] == {
        "vs_numpy": 0.9,
        "two_slots_vs_one": 2.0,
        "band_vs_all_pairs": 20.0,
        "band_vs_all_pairs_whole": 12.048,
        "cosine_tiles_vs_pairs": 80.0,
        "image_tiles_vs_pairs": 3.0,
    }
    figures = document["engines"]["spillway"]
    assert figures["image_measure_per_cpu_s"] == 200
    assert figures["stored_once"]
    assert figures["same_results"]
    assert "| `theta` | 90 | 0.90 | 2.00 | 20.00 | 12.05 | yes |" in table([document])


def test_a_row_too_many_is_told() -> None:
    document = theta_document(result(two=run(900, 5.0, 10.0, state_rows=9, rows_out=6)))
    figures = document["engines"]["spillway"]
    assert not figures["stored_once"]
    assert not figures["same_results"]


def test_functions_of_pairs_and_tiles_let_the_same_pairs_pass(monkeypatch) -> None:
    monkeypatch.setattr(bench_tiles, "COSINE_ROWS", (200, 40))
    monkeypatch.setattr(bench_tiles, "IMAGE_ROWS", (30, 8))
    monkeypatch.setattr(bench_tiles, "IMAGE_BYTES", 300)
    found = bench_tiles.measure_tiles(lambda told: None, turns=1)
    assert [rates["same"] for rates in found.values()] == [1.0, 1.0]
    assert all(rate > 0 for rates in found.values() for rate in rates.values())


def test_plain_loop_is_timed_as_slots_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = (WINDOW * 2) ** 2
    block = pairs // 4

    class Clock:
        """Two seconds of processor time from the second block to the last, whatever else goes on."""

        times = iter([1.0, 3.0])

        def thread_time(self) -> float:
            return next(self.times)

    monkeypatch.setattr(bench_theta, "PIXELS", 4)
    monkeypatch.setattr(bench_theta, "BLOCK_BYTES", block * 2 * 3 * 4)
    monkeypatch.setattr(bench_theta, "time", Clock())
    found = bench_theta._numpy_pairs_per_cpu_s(Scenes(rows=2), lambda told: None)
    assert found == (pairs - block) / 2.0


def test_pairs_within_the_window_are_counted() -> None:
    scenes = Scenes(rows=3)
    first, last = WINDOW, WINDOW + 2
    times = _times_ms(scenes, np.arange(last * scenes.rows))
    batch = np.arange(len(times)) // scenes.rows
    near = np.abs(times[:, None] - times[None, :]) < WINDOW * scenes.advance_ms
    new = (np.maximum(batch[:, None], batch[None, :]) >= first) & near
    assert _pairs(scenes, first, last) == int(new.sum())


def test_window_has_the_rows_that_can_find_partners() -> None:
    scenes = Scenes(rows=4)
    entry = {"batchId": WINDOW + 3}
    # The window, and what came since the watermark that the batch began with.
    assert _window_rows(scenes, entry) == 2 * scenes.rows * (WINDOW + 1)
