"""What three executors show of FLUX, from made-up batches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from spillway_lab.reproduce.disturbed import ROWS, Measured, Recorded
from spillway_lab.reproduce.flux.real import (
    BALANCED,
    BUFFERED,
    CLAIM,
    NAME,
    STATIC,
    UNBUFFERED,
    allowed_rows_per_s,
    judged,
    words,
)
from spillway_lab.reproduce.page import rendered
from spillway_lab.simulator.cluster.calibration import Calibration

KNOWN = Calibration(2e-6, 1e-7, 24.5, 3e8, 2e9, 1000, 5)
EVEN = (ROWS // 4, ROWS // 4, ROWS // 2)


def batches(*seconds: float, first: int = 0, disturbed: bool = False) -> list[Measured]:
    """Batches of which the slots take all but half a second."""
    return [
        Measured(
            first + at,
            took,
            0.0,
            ROWS,
            disturbed,
            EVEN,
            (1.0, 1.0, took - 0.5),
            waiting=(0, 0, 0),
        )
        for at, took in enumerate(seconds)
    ]


def recorded(quiet: float, disturbed: float, after: float, trigger_s: float = 0.0) -> Recorded:
    found = batches(*[quiet] * 10)
    found += batches(*[disturbed] * 20, first=10, disturbed=True)
    found += batches(*[after] * 5, first=30)
    return Recorded(found, [12], trigger_s, True)


def runs() -> dict[str, Recorded]:
    return {
        STATIC: recorded(1.5, 2.5, 1.5),
        BALANCED: recorded(1.5, 1.9, 1.5),
        UNBUFFERED: recorded(1.5, 2.5, 1.5, 2.0),
        BUFFERED: recorded(1.5, 1.7, 1.5, 2.0),
    }


def test_what_is_allowed_comes_from_the_speeds_of_the_slots() -> None:
    found = runs()[STATIC].batches
    # Undisturbed, slots have speeds 1/4, 1/4 and 1/2 of a batch a second; disturbed the third has 1/4.
    allowed = allowed_rows_per_s(found[:10], found[10:30])
    assert allowed == pytest.approx(ROWS / (0.5 + 1 / (1 / 4 + 1 / 4 + 1 / 4)))


def test_verdict_is_that_of_the_data() -> None:
    found = judged(runs(), KNOWN)
    assert found["holds"]
    assert found["measured"]["overrun"] == {UNBUFFERED: 20, BUFFERED: 0}
    assert found["measured"]["balanced_vs_allowed"] == pytest.approx((0.5 + 4 / 3) / 1.9, abs=0.001)


@pytest.mark.parametrize("line", [BALANCED, BUFFERED])
def test_claim_needs_balance_and_a_buffer_that_absorbs(line: str) -> None:
    assert not judged({**runs(), line: recorded(1.5, 2.5, 1.5, 2.0)}, KNOWN)["holds"]


def test_claim_needs_an_empty_buffer_and_exact_runs() -> None:
    left = runs()
    left[BUFFERED].batches[-1] = replace(left[BUFFERED].batches[-1], waiting=(0, 0, 7))
    assert not judged(left, KNOWN)["holds"]
    wrong = runs()
    wrong[STATIC].exact = False
    assert not judged(wrong, KNOWN)["holds"]
    assert not judged(wrong, KNOWN)["measured"]["exact"]


def test_page_has_a_section_of_it() -> None:
    page = rendered([judged(runs(), KNOWN)])
    assert "# FLUX, on Spark" in page
    assert CLAIM in page
    assert "![FLUX 5.4 and 4.2 on Spark" in page


def test_measured_document_has_the_text_of_today() -> None:
    path = Path(__file__).parents[4] / "bench" / "reproduction" / f"{NAME}.json"
    found = json.loads(path.read_text())
    assert found["claim"] == CLAIM
    assert words(found["measured"])
    assert set(found["series"]) == {STATIC, BALANCED, UNBUFFERED, BUFFERED}
