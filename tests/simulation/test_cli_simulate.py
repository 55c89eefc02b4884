"""`spillway simulate` on the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from spillway.cli.main import app
from spillway_lab.simulator.cluster.checkers import Checker

SHORT = ["simulate", "baseline", "--seconds", "2", "--slots", "4", "--groups", "64"]


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def test_json_is_one_document_with_series_and_totals():
    found = json.loads(run(*SHORT, "--json").stdout)
    assert found["scenario"]["slots"] == 4
    assert len(found["series"]["rows_per_s"]) == 2
    assert found["violations"] == []
    assert "journal" not in found


def test_journal_is_part_of_the_document_where_it_is_asked_for():
    assert json.loads(run(*SHORT, "--json", "--journal").stdout)["journal"] == []


def test_table_is_for_people():
    text = run(*SHORT).stdout
    assert "rows/s" in text
    assert "in 2 virtual seconds" in text


def test_scenario_can_be_shown_changed_and_given_back(tmp_path):
    shown = run(*SHORT, "--strategy", "lazy-disk", "--seed", "5", "--show").stdout
    path = tmp_path / "mine.json"
    path.write_text(shown)
    found = json.loads(run("simulate", str(path), "--json").stdout)
    assert found["scenario"] == json.loads(shown)
    assert found["scenario"]["adapt"] == {"strategy": "lazy-disk"}
    assert found["scenario"]["seed"] == 5


@pytest.mark.parametrize(("text", "detail"), [(None, "No such file"), ("{", "Expecting property")])
def test_file_that_is_no_scenario_is_refused(tmp_path, text, detail):
    path = tmp_path / "mine.json"
    if text is not None:
        path.write_text(text)
    found = run("simulate", str(path), "--json")
    assert found.exit_code == 2
    error = json.loads(found.stdout)["error"]
    assert error["message"] == f"cannot read {path} as JSON"
    assert detail in error["detail"]
    assert error["hint"] == "run spillway simulate baseline --show > scenario.json to make one"


def test_failed_check_is_told_and_exits_with_one(monkeypatch):
    monkeypatch.setattr(Checker, "violations", ("1 s, rows: one is lost",))
    found = run(*SHORT)
    assert found.exit_code == 1
    assert "check failed: 1 s, rows: one is lost" in found.stdout
