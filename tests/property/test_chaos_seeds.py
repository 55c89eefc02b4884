"""Seeded disasters: whatever strikes, the results are those of brute force (spillway/testing/chaos)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from bugs import BUGS
from typer.testing import CliRunner

from spillway.cli.chaos import chaos
from spillway.testing.chaos.drawing import draw
from spillway.testing.chaos.running import read_schedule, run_all
from spillway.testing.chaos.schedule import (
    Schedule,
    ScheduledEvent,
    ScheduledQuery,
    Settings,
    Strike,
)
from spillway.testing.chaos.shrink import Shrinking
from spillway.testing.chaos.world import run_schedule
from spillway.testing.simulated.rows import Row
from tier import few

#: Schedules that failed once, made small.
REGRESSIONS = sorted((Path(__file__).parent / "schedules").glob("*.json"))


@pytest.mark.parametrize("seed", range(12))
def test_disasters_change_no_result(seed: int) -> None:
    outcome = run_schedule(draw(seed))
    assert outcome.differences == [], outcome.trace


@pytest.mark.full
@pytest.mark.parametrize("first", range(12, 432, 20))
def test_more_disasters_change_no_result(first: int) -> None:
    report = run_all(range(first, first + 20))
    assert report.failed == {}
    assert sum(report.disasters.values()) > 50


@pytest.mark.parametrize("path", REGRESSIONS, ids=[path.stem for path in REGRESSIONS])
def test_schedule_that_failed_once_fails_no_more(path: Path) -> None:
    outcome = run_schedule(read_schedule(path))
    assert outcome.differences == [], outcome.trace


@pytest.mark.parametrize("seed", few([3, 11, 19], 0))
def test_a_seed_gives_the_same_run_every_time(seed: int) -> None:
    schedule = draw(seed)
    assert draw(seed) == schedule == Schedule.decode(schedule.encode())
    assert run_schedule(schedule) == run_schedule(schedule)


def with_nulls() -> Schedule:
    """Ten batches of a join with disasters, some rows without a key."""
    events = [
        ScheduledEvent(
            "batch",
            tuple(Row(at % 2, None if at == 3 else at, b, 10 * b + at) for at in range(6)),
            strikes=(Strike("kill", 5 * b), Strike("twice", 0)),
        )
        for b in range(10)
    ]
    start = Settings(2, True, {"memory": 600, "block_rows": 3})
    return Schedule(
        1, ScheduledQuery("join", (5, 5)), "disk", 2, "ids", (start, start), tuple(events)
    )


def test_a_failing_schedule_becomes_small() -> None:
    schedule = with_nulls()
    assert run_schedule(schedule).differences == []
    with BUGS["uncounted_nulls"]():
        small = Shrinking(lambda one: bool(run_schedule(one).differences), 120).shrunk(schedule)
        assert run_schedule(small).differences
    assert run_schedule(small).differences == []
    assert (len(small.events), small.rows, small.strikes) == (1, 1, 0)
    assert len(small.starts) == 1
    assert small.hosts == 1


def command(*args: str):
    app = typer.Typer()
    app.command()(chaos)
    return CliRunner().invoke(app, list(args))


def test_command_prints_one_document() -> None:
    done = command("--seeds", "2", "--first", "3", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["seeds"], found["differences"], found["failed"]) == (2, 0, {})
    assert found["rows_compared"] > 0
    assert set(found["disasters"]) >= {"power", "pause", "coalesce", "speculate"}


def test_failing_seed_prints_its_command_and_a_small_schedule(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given.json").write_bytes(with_nulls().encode())
    with BUGS["uncounted_nulls"]():
        done = command("--schedule", "given.json")
        assert done.exit_code == 1
        assert "repeat it: spillway chaos --seed 1" in done.stderr
        assert "repeat it: spillway chaos --schedule chaos-1.json" in done.stderr
        assert command("--schedule", "chaos-1.json", "--no-shrink").exit_code == 1
    assert command("--schedule", "chaos-1.json").exit_code == 0


def test_file_that_is_not_a_schedule_is_refused(tmp_path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    done = command("--schedule", str(path))
    assert done.exit_code == 2
    assert f"{path} is not a schedule of disasters" in done.stderr.replace("\n", "")
    assert "use a file that `spillway chaos` wrote for a failing seed" in done.stderr
