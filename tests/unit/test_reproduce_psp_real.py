"""What is said of PSP on Spark follows from what was measured."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from spillway.experiments.reproduce_psp_real import (
    ATR,
    BATCH_S,
    COPIES,
    CTR,
    IMAGES,
    LINES,
    PSP,
    SIZES,
    WINDOW_S,
    Run,
    expected,
    judged,
    window_rows,
    words,
)
from spillway.workloads.images import PIXELS, Images, alike

MIDDLE, LARGE = SIZES["middle"], SIZES["large"]
WINDOW = {PSP: 100, ATR: 100, CTR: 100, MIDDLE: 70, LARGE: 50}
KEPT = {**WINDOW, ATR: 150, CTR: COPIES * 100}
TOOK = {
    PSP: {1: 3.0, 2: 1.6, 3: 1.7},
    ATR: {1: 3.0, 2: 3.1, 3: 2.9},
    CTR: {2: 1.8, 3: 1.9},
    MIDDLE: {1: 3.2, 2: 1.8, 3: 1.9},
    LARGE: {1: 3.4, 2: 2.0, 3: 2.1},
}


def runs() -> list[Run]:
    return [
        Run(name, slots, (TOOK[name][slots],) * 3, KEPT[name], WINDOW[name], True)
        for name, line in LINES.items()
        for slots in line.slots
    ]


def test_claim_holds_where_all_its_parts_do() -> None:
    found = judged(runs())
    assert found["holds"]
    assert found["series"][PSP] == {"x": [1, 2, 3], "y": [3.0, 1.6, 1.7]}
    assert found["series"]["PSP, 10k pixels"] == {"x": [1, 2, 3], "y": [3.2, 1.8, 1.9]}
    assert found["measured"]["window_rows"] == WINDOW


def test_words_tell_of_each_line_with_its_slots_and_rows() -> None:
    assert words(judged(runs())["measured"]).split("; ") == [
        "PSP: 3.00, 1.60 and 1.70 s with 1, 2 and 3 slots, 100 rows kept",
        "ATR: 3.00, 3.10 and 2.90 s with 1, 2 and 3 slots, 150 rows kept",
        "CTR: 1.80 and 1.90 s with 2 and 3 slots, 200 rows kept",
        "PSP, 10k pixels: 3.20, 1.80 and 1.90 s with 1, 2 and 3 slots, 70 rows kept",
        "PSP, 20k pixels: 3.40, 2.00 and 2.10 s with 1, 2 and 3 slots, 50 rows kept",
        "PSP's rows are those of the windows",
    ]


def test_words_of_a_claim_that_failed_say_what_is_not_so() -> None:
    changed = [replace(run, kept=run.kept + run.slots) for run in runs()]
    said = words(judged(changed)["measured"])
    assert "with 1, 2 and 3 slots, 51, 52 and 53 rows kept" in said
    assert "those of the windows" not in said
    assert said.endswith(". Not so: psp_keeps_the_windows, ctr_keeps_copies")


def test_larger_images_are_fewer_so_that_as_many_pixels_are_compared() -> None:
    small = IMAGES["small"]
    for size, images in IMAGES.items():
        pixels = PIXELS[size] * images.rate**2
        assert pixels == pytest.approx(PIXELS["small"] * small.rate**2, rel=0.01)
        assert images.rate / images.scenes == pytest.approx(small.rate / small.scenes, rel=0.01)


@pytest.mark.parametrize(
    ("line", "slots", "change", "failed"),
    [
        (PSP, 2, {"batch_s": (2.9,)}, "psp_falls"),
        (MIDDLE, 2, {"batch_s": (2.9,)}, "psp_falls"),
        (LARGE, 2, {"batch_s": (2.9,)}, "psp_falls"),
        (ATR, 3, {"batch_s": (1.0,)}, "atr_stays"),
        (PSP, 3, {"kept": 101}, "psp_keeps_the_windows"),
        (LARGE, 3, {"kept": 49}, "psp_keeps_the_windows"),
        (CTR, 3, {"kept": 100}, "ctr_keeps_copies"),
        (ATR, 1, {"kept": 100}, "atr_keeps_more"),
        (ATR, 2, {"exact": False}, "exact"),
        (MIDDLE, 1, {"exact": False}, "exact"),
    ],
)
def test_each_part_of_the_claim_can_fail(line, slots, change, failed) -> None:
    changed = [
        replace(run, **change) if (run.line, run.slots) == (line, slots) else run for run in runs()
    ]
    found = judged(changed)
    assert not found["holds"]
    assert [name for name, held in found["measured"]["checks"].items() if not held] == [failed]
    assert failed in words(found["measured"])


class _Rows:
    def __init__(self, images: np.ndarray) -> None:
        self._images = images

    def matrix(self, name: str) -> np.ndarray:
        assert name == "image"
        return self._images


def test_expected_are_the_images_that_are_alike_within_the_window() -> None:
    images = Images(streams=2, rate=3.0, seconds=24.0, scenes=4)
    tables = [images.table(at, 0.0, 24.0) for at in range(2)]
    pixels = [
        np.array([np.frombuffer(one.as_py(), np.uint8) for one in table["image"]])
        for table in tables
    ]
    times = [table["ts"].cast("int64").to_numpy() for table in tables]
    wanted = set()
    for a, b in itertools.product(*(range(len(some)) for some in times)):
        near = abs(int(times[0][a]) - int(times[1][b])) < WINDOW_S * 1_000_000
        if near and alike(_Rows(pixels[0][[a]]), _Rows(pixels[1][[b]]))[0]:
            wanted.add((a, b))
    assert wanted
    assert expected(images) == dict.fromkeys(wanted, 1)


def test_rows_of_the_window_are_those_that_the_watermark_leaves() -> None:
    images = Images(streams=2, rate=3.0, seconds=24.0)
    mark = min(times[times < 8 * BATCH_S].max() for times in images.times)
    there = [times[(times < 9 * BATCH_S) & (times + WINDOW_S > mark)] for times in images.times]
    assert window_rows(images, 8) == sum(map(len, there))
