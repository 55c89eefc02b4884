"""The demonstration and the benchmark, small, as a user starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spillway_lab.bench.figures import RATIOS
from spillway_lab.workloads.banks import BANKS

FIGURES = {"rows_per_s", "batch_p50_s", "batch_p99_s", "state_rows"}
ENGINES = {"spillway", "spillway-unsynced", "identity", "spark-memory", "spark-rocksdb"}


def spillway(*arguments: object, cwd: Path) -> tuple[int, dict[str, Any], str]:
    """The command in a process of its own: exit code, document, standard error."""
    command = [sys.executable, "-m", "spillway.cli.main", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_demo_is_exact_and_quiet(tmp_path: Path) -> None:
    code, found, said = spillway("demo", "--seconds", 4, "--rows", 2000, cwd=tmp_path)
    assert found["exact"] is True
    assert code == 0
    assert found["rows_in"] == dict.fromkeys(BANKS, 2000 * found["batches"])
    assert found["check"]["differing_rows"] == 0
    assert found["check"]["expected_rows"] == found["rows_out"] > 0
    assert found["check"]["expected_late"] == found["rows_late"]
    assert found["query1"]
    assert "WARN" not in said
    assert "ERROR" not in said
    assert said.splitlines()[0] == "starting Spark"
    # Nothing is left where the user stands.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_benchmark_runs_every_engine_and_compares_them(tmp_path: Path) -> None:
    small = ("--rows", 2000, "--batches", 4, "--warmup", 0, "--driver-memory", "1g", "--no-settle")
    code, found, _ = spillway("bench", "join2", *small, "--dir", tmp_path, cwd=tmp_path)
    assert code == 0
    assert found["name"] == "join2"
    assert set(found["engines"]) == ENGINES
    for engine, figures in found["engines"].items():
        assert figures.keys() >= FIGURES
        assert figures["rows_per_s"] > 0
        assert 0 < figures["batch_p50_s"] <= figures["batch_p99_s"]
        assert figures["state_rows"] == (0 if engine == "identity" else 4 * 2 * 2000)
    ours = found["engines"]["spillway"]
    assert ours["plain_arrow_bytes_per_row"] == 16
    assert ours["bytes_per_state_row"] <= 1.5 * ours["plain_arrow_bytes_per_row"]
    for ratio, value in found["ratios"].items():
        other = found["engines"][RATIOS[ratio]]
        assert value == pytest.approx(ours["rows_per_s"] / other["rows_per_s"], abs=1e-3)
    assert list(tmp_path.iterdir()) == []
