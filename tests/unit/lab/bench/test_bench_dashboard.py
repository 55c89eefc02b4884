"""The document of `bench dashboard`: ratios within a round, and the share of a core."""

from __future__ import annotations

from typing import Any

from spillway_lab.bench.figures import board_document
from spillway_lab.bench.tables import table


def state(blocks: list[list[float]], cpu_s: float = 0.0, size: int = 0) -> dict[str, Any]:
    return {"batch_s": blocks, "cpu_s": cpu_s, "wall_s": 10.0, "bytes": size}


RESULT = {
    "none": state([[2.0, 2.0], [1.0, 1.0], [0.5, 0.5]]),
    "idle": state([[2.0, 2.2], [1.0, 1.0], [0.5, 0.5]], cpu_s=0.05),
    # Batches become faster from round to round, and are a tenth slower in each.
    "watched": state([[2.2, 2.2], [1.1, 1.1], [0.55, 0.55]], cpu_s=0.2, size=5000),
    "groups": 1024,
}


def test_ratio_compares_blocks_of_the_same_round() -> None:
    found = board_document(RESULT)
    assert found["ratios"] == {"idle_vs_none": 1.0, "watched_vs_none": 1.1}


def test_processor_time_is_a_share_of_a_core() -> None:
    [figures] = board_document(RESULT)["engines"].values()
    assert (figures["idle_core"], figures["watched_core"]) == (0.005, 0.02)
    assert (figures["bytes_per_s"], figures["batches"]) == (500, 18)


def test_tables_of_the_readme_leave_it_out() -> None:
    assert "dashboard" not in table([board_document(RESULT)])
