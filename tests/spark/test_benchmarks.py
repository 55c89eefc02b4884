"""Every benchmark runs at a tiny size: its document is complete, and its results are exact.

test_demo_live runs `join2`. Nothing here says how fast anything is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spillway_lab.bench.figures import RATIOS, SPILL_RATIOS, relocate_document
from spillway_lab.bench.spec import CASES, BenchSettings, EngineOrder

ROWS, BATCHES = 1000, 4
#: Cases whose engines run the same number of small batches.
PLAIN = (
    *("join3", "join2-strings", "join2-window", "join2-left", "groupby", "window-agg"),
    *("spill", "identity"),
)
#: `relocate` has its sizes in its module: a child process makes them smaller before it measures.
SMALL_MOVES = """
import sys
from spillway_lab.bench import move
from spillway_lab.bench.engine import answer

move.MOVE_BYTES, move.SENT_BYTES, move.STATE_BYTES = 1 << 20, 1 << 18, 3 << 19
move.MOVES, move.QUIET_BATCHES, move.START_BATCHES, move.REST_BATCHES = 2, 2, 1, 1
move.TRIGGER_S = 0.5
answer(move.measure, *sys.argv[1:])
"""

pytestmark = pytest.mark.timeout(1200)


def bench(name: str, folder: Path, *more: object) -> dict[str, Any]:
    """The document of `spillway bench`, in a process of its own."""
    small = ("--rows", ROWS, "--batches", BATCHES, "--warmup", 0, "--driver-memory", "1g")
    command = [sys.executable, "-m", "spillway.cli.main", "bench", name, *map(str, small)]
    done = subprocess.run(
        [*command, "--no-settle", "--json", "--dir", str(folder), *map(str, more)],
        capture_output=True, text=True, cwd=folder, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["name"] == name
    assert found["setup"]["rows"] == ROWS
    assert found["machine"]["spark"]
    assert list(folder.iterdir()) == []
    return found


def complete(figures: dict[str, Any]) -> bool:
    return all(value is not None for value in figures.values())


@pytest.mark.full
@pytest.mark.parametrize("name", PLAIN)
def test_benchmark_has_figures_of_every_engine_and_every_ratio(name: str, tmp_path: Path) -> None:
    found, case = bench(name, tmp_path), CASES[name]
    assert set(found["engines"]) == set(case.engines)
    ratios = RATIOS if case.memory_share is None else SPILL_RATIOS
    assert found["ratios"].keys() >= {
        ratio for ratio, engine in ratios.items() if engine in case.engines
    }
    assert all(complete(figures) for figures in found["engines"].values())
    if name.startswith("join") and not case.windowed:
        # Spark's chain of joins stores combinations too.
        assert found["engines"]["spillway"]["state_rows"] == BATCHES * case.streams * ROWS
    if name != "identity":
        assert complete(found["ratios"])


@pytest.mark.full
def test_benchmark_of_plans_is_exact(tmp_path: Path) -> None:
    found = bench("plans", tmp_path)
    assert found["exact"] is True
    assert set(found["engines"]) == set(CASES["plans"].engines)
    assert all(complete(figures) for figures in found["engines"].values())
    assert complete(found["ratios"])


@pytest.mark.full
def test_benchmark_of_predicates_stores_rows_once_and_gives_the_same_results(
    tmp_path: Path,
) -> None:
    found = bench("theta", tmp_path)
    [figures] = found["engines"].values()
    assert figures["stored_once"] is True
    assert figures["same_results"] is True
    assert complete(figures)
    assert complete(found["ratios"])


@pytest.mark.full
def test_benchmark_of_the_dashboard_has_figures_of_every_state(tmp_path: Path) -> None:
    found = bench("dashboard", tmp_path)
    [figures] = found["engines"].values()
    assert figures["batches"] >= 3
    assert figures["bytes_per_s"] > 0
    assert complete(found["ratios"])


@pytest.mark.full
def test_benchmark_of_moves_is_exact(tmp_path: Path) -> None:
    settings = BenchSettings(rows=ROWS, batches=BATCHES, warmup_s=0, driver_memory="1g")
    order = EngineOrder.of("relocate", "spillway", settings, str(tmp_path))
    given, result = tmp_path / "order.json", tmp_path / "result.json"
    given.write_text(json.dumps(order.to_json()))
    done = subprocess.run(
        [sys.executable, "-c", SMALL_MOVES, str(given), str(result)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = relocate_document(json.loads(result.read_text()))
    [figures] = found["engines"].values()
    assert figures["exact"] is True
    assert figures["parts"] >= 2
    assert complete(figures)
    assert complete(found["ratios"])


def test_every_benchmark_has_a_small_run() -> None:
    assert {*PLAIN, "join2", "plans", "theta", "relocate", "dashboard"} == set(CASES)
