"""What is said of PSP on Spark follows from what was measured."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from spillway_lab.reproduce.page import rendered
from spillway_lab.reproduce.psp.judged import (
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
    judged,
    spread,
    words,
)
from spillway_lab.reproduce.psp.real import batch_of, expected, window_rows
from spillway_lab.simulator.ring.counterpart import RingBatch, RingCosts, scenario_of
from spillway_lab.simulator.ring.simulation import simulate_ring
from spillway_lab.workloads.images import PIXELS, Images, alike

MIDDLE, LARGE = SIZES["middle"], SIZES["large"]
WINDOW = {PSP: 100, ATR: 100, CTR: 100, MIDDLE: 70, LARGE: 50}
KEPT = {**WINDOW, ATR: 150, CTR: COPIES * 100}
#: Pairs of larger images are fewer, and each is dearer.
COSTS = {size: RingCosts(9e-6 * PIXELS[size] / PIXELS["small"], 5e-5, 2e-5, 0.7) for size in PIXELS}


@cache
def run(line: str, slots: int) -> Run:
    """A run whose batches are those of the simulator, at known costs."""
    costs = COSTS[LINES[line].size]
    bare = Run(line, slots, (), KEPT[line], WINDOW[line], True)
    found = simulate_ring(scenario_of(bare.described, costs)).series["response_s"]
    rows = round(3 * IMAGES[LINES[line].size].rate * BATCH_S)
    batches = (
        RingBatch(took, rows, (took - 0.7,) * slots, rows * 5e-5, rows * 2e-5)
        for took in found[bare.described.first :]
    )
    return replace(bare, batches=tuple(batches))


def runs() -> list[Run]:
    return [run(name, slots) for name, line in LINES.items() for slots in line.slots]


def slower(one: Run, times: float) -> Run:
    """The same run with batches that take so many times as long."""
    batches = (replace(batch, seconds=batch.seconds * times) for batch in one.batches)
    return replace(one, batches=tuple(batches))


def test_claim_holds_where_all_its_parts_do() -> None:
    found = judged(runs())
    assert found["holds"]
    took = [round(run(MIDDLE, slots).took_s, 3) for slots in (1, 2, 3)]
    assert found["series"]["PSP, 10k pixels"] == {"x": [1, 2, 3], "y": took}
    assert found["measured"]["window_rows"] == WINDOW
    assert found["measured"]["busy_s"]["CTR 3"] == [round(run(CTR, 3).took_s - 0.7, 3)] * 3


def test_costs_are_those_of_one_slot_and_all_other_runs_are_simulated_with_them() -> None:
    found = judged(runs())["measured"]
    for size, costs in found["costs"].items():
        assert costs["pair_s"] == pytest.approx(COSTS[size].pair_s, rel=0.02)
        assert costs["fixed_s"] == pytest.approx(0.7)
    others = {one.name for one in runs()} - {f"{line} 1" for line in SIZES.values()}
    assert set(found["ratios"]) == set(found["simulated_batch_s"]) == others
    assert "ATR 1" in others
    assert all(ratio == pytest.approx(1, abs=0.03) for ratio in found["ratios"].values())


def test_one_slot_of_a_size_tells_of_its_own_images_alone() -> None:
    """Where one slot of the middle images was twice as slow, two of them are foretold too slow."""
    alone = run(MIDDLE, 1)
    dear = (
        replace(one, seconds=2 * one.seconds, busy_s=(one.busy_s[0] * 2,)) for one in alone.batches
    )
    changed = [replace(one, batches=tuple(dear)) if one == alone else one for one in runs()]
    found = judged(changed)["measured"]
    wrong = {name for name, ratio in found["ratios"].items() if abs(ratio - 1) > found["within"]}
    assert wrong == {f"{MIDDLE} 2", f"{MIDDLE} 3"}
    assert not found["checks"]["simulated_agrees"]


def test_words_tell_of_each_line_with_its_slots_and_rows() -> None:
    measured = judged(runs())["measured"]
    *said, simulated = words(measured).split(". ")
    assert said == [
        *(
            f"{name}: {listed([f'{run(name, n).took_s:.2f}' for n in line.slots])} s with "
            f"{listed(list(map(str, line.slots)))} slots, {KEPT[name]} rows kept"
            for name, line in LINES.items()
        ),
        "PSP's rows are those of the windows",
    ]
    assert (
        simulated == f"Simulated, batches take {spread(measured['ratios'])} of what they take here"
    )


def listed(some: list[str]) -> str:
    return f"{', '.join(some[:-1])} and {some[-1]}"


def test_words_of_a_claim_that_failed_say_what_is_not_so() -> None:
    changed = [replace(one, kept=one.kept + one.slots) for one in runs()]
    said = words(judged(changed)["measured"])
    assert "with 1, 2 and 3 slots, 51, 52 and 53 rows kept" in said
    assert "those of the windows" not in said
    assert said.endswith(". Not so: psp_keeps_the_windows, ctr_keeps_copies")


def test_page_of_simulated_figures_says_how_far_they_were_checked() -> None:
    simulated = {"figure": "psp-8b", "claim": "", "paper": "memory", "holds": True, "series": {}}
    simulated["measured"] = {"window_rows": 1, "least_part": 1.0, "most_part": 1.0, "exact": True}
    good = judged(runs())
    wrong = judged([slower(one, 1.4) if one.slots == 3 else one for one in runs()])
    ratios = good["measured"]["ratios"]
    assert "**Checked** against psp-real" not in rendered([simulated])
    page = rendered([simulated, good])
    assert f"{len(ratios)} of {len(ratios)} runs within 20%" in page
    assert spread(ratios) in page
    assert (
        "a pair takes 9 µs with 5,000 pixels, 18 µs with 10,000 pixels, 36 µs with 20,000" in page
    )
    assert f"{len(ratios) - len(LINES)} of {len(ratios)} runs within" in rendered(
        [simulated, wrong]
    )


def test_larger_images_are_fewer_so_that_as_many_pixels_are_compared() -> None:
    small = IMAGES["small"]
    for size, images in IMAGES.items():
        pixels = PIXELS[size] * images.rate**2
        assert pixels == pytest.approx(PIXELS["small"] * small.rate**2, rel=0.01)
        assert images.rate / images.scenes == pytest.approx(small.rate / small.scenes, rel=0.01)


@pytest.mark.parametrize(
    ("line", "slots", "change", "failed"),
    [
        (PSP, 2, 1.2, "psp_falls"),
        (MIDDLE, 2, 1.2, "psp_falls"),
        (LARGE, 2, 1.2, "psp_falls"),
        (ATR, 3, 0.84, "atr_stays"),
        (PSP, 3, {"kept": 101}, "psp_keeps_the_windows"),
        (LARGE, 3, {"kept": 49}, "psp_keeps_the_windows"),
        (CTR, 3, {"kept": 100}, "ctr_keeps_copies"),
        (ATR, 1, {"kept": 100}, "atr_keeps_more"),
        (PSP, 2, 0.7, "simulated_agrees"),
        (LARGE, 3, 1.3, "simulated_agrees"),
        (CTR, 2, 1.3, "simulated_agrees"),
        (ATR, 2, {"exact": False}, "exact"),
        (MIDDLE, 1, {"exact": False}, "exact"),
    ],
)
def test_each_part_of_the_claim_can_fail(
    line: str, slots: int, change: float | dict[str, Any], failed: str
) -> None:
    """A number makes the batches of the run longer."""

    def changed(one: Run) -> Run:
        if one != run(line, slots):
            return one
        return replace(one, **change) if isinstance(change, dict) else slower(one, change)

    found = judged([changed(one) for one in runs()])
    assert not found["holds"]
    assert [name for name, held in found["measured"]["checks"].items() if not held] == [failed]
    assert failed in words(found["measured"])


def test_a_batch_is_what_progress_says_of_its_slots() -> None:
    cpu = {"sort": 5.0, "operator": 900.0, "store": 2.0, "commit": 1.0}
    entry = {
        "rowsIn": {"a": 60, "b": 61, "c": 62},
        "slots": [{"busyMs": 950.0, "cpuMs": cpu}, {"busyMs": 850.0, "cpuMs": {"sort": 4.0}}],
    }
    found = batch_of(entry, 1.5)
    assert (found.seconds, found.rows, found.busy_s) == (1.5, 183, (0.95, 0.85))
    assert (found.received_s, found.stored_s) == pytest.approx((0.009, 0.003))


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
