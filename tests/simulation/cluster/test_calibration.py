"""This machine in the terms of a scenario: measured, written, and taken."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from spillway.cli.main import app
from spillway_lab.simulator.cluster import calibration
from spillway_lab.simulator.cluster.calibration import Calibration, calibrate
from spillway_lab.simulator.cluster.scenario import Scenario

MEASURED = Calibration(2e-6, 1e-7, 24.5, 3e8, 2e9, 1000, 5)


def run(*words):
    return CliRunner().invoke(app, ["simulate", *words])


def test_rows_are_measured_through_the_operator_core():
    told = []
    found = calibrate(rows=4000, batches=2, tell=told.append)
    assert told == ["disk and memory", "operator"]
    assert (found.rows, found.batches) == (8000, 2)
    # Two numbers and a hash are stored of a row.
    assert 16 <= found.row_bytes <= 64
    assert 1e-8 < found.row_s < 1e-3
    assert found.disk_bytes_per_s > 1e5
    assert found.memory_bytes_per_s > 1e6


def test_measured_machine_is_that_of_a_scenario():
    document = json.loads(json.dumps(MEASURED.to_json()))
    machine = Scenario.from_json({"machine": document["machine"]}).machine
    assert machine == MEASURED.machine()
    assert (machine.row_s, machine.produce_s, machine.disk_bytes_per_s) == (2e-6, 0.0, 3e8)


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(calibration, "calibrate", lambda **_: MEASURED)


def test_calibration_is_written_and_taken(measured, tmp_path):
    path = tmp_path / "machine.json"
    found = run("--calibrate", "--machine", str(path), "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout) == json.loads(path.read_text()) == MEASURED.to_json()
    taken = json.loads(run("baseline", "--machine", str(path), "--show").stdout)
    assert taken["machine"]["row_s"] == 2e-6
    assert "row_s" in run("--calibrate").stdout


def test_file_that_is_no_machine_is_refused(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text("{}")
    found = run("baseline", "--machine", str(path), "--json")
    assert found.exit_code == 2
    error = json.loads(found.stdout)["error"]
    assert error["message"] == f"{path} does not hold the measurements of a machine"
    assert error["hint"] == f"run spillway simulate --calibrate --machine {path} to write them"


def test_place_that_cannot_be_written_is_named(measured, tmp_path):
    path = tmp_path / "missing" / "machine.json"
    found = run("--calibrate", "--machine", str(path), "--json")
    assert found.exit_code == 2
    error = json.loads(found.stdout)["error"]
    assert error["message"] == f"cannot write the measurements to {path}"
    assert error["hint"] == "choose another --machine"
