"""Directories of ended processes go, those of live ones stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spillway.cli.main import app
from spillway.state.runs import reaping
from spillway.state.runs.orphans import orphans
from spillway.state.runs.reaping import IN_USE, Abandoned, abandoned, hold, reap, release

NOW_S, HOUR_S = 2_000_000_000.0, 3600.0
HOLDER = (
    "import sys; from pathlib import Path; from spillway.state.runs.reaping import hold\n"
    "hold(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
)


def directory(path: Path, content: bytes = b"12345", used_s: float = NOW_S - 2 * HOUR_S) -> Path:
    (path / "memory").mkdir(parents=True)
    (path / "memory" / "run.arrow").write_bytes(content)
    (path / IN_USE).touch()
    os.utime(path / IN_USE, (used_s, used_s))
    return path


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that uses a directory."""
    path = directory(tmp_path / "held")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], **pipes) as process:
        assert process.stdout.readline() == "held\n"
        os.utime(path / IN_USE, (NOW_S - 2 * HOUR_S,) * 2)
        yield process
        process.kill()


def test_directory_of_a_killed_process_goes_and_that_of_a_live_one_stays(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    directory(tmp_path / "gone")
    directory(tmp_path / "fresh", used_s=NOW_S - 60)
    (tmp_path / "unmarked").mkdir()
    [found] = abandoned([tmp_path, tmp_path / "missing"], NOW_S, HOUR_S)
    assert found == Abandoned(tmp_path / "gone", 5, 2, 2 * HOUR_S)
    assert reap(found)
    assert not (tmp_path / "gone").exists()
    holder.kill()
    holder.wait()
    [found] = abandoned([tmp_path], NOW_S, HOUR_S)
    assert found.path == tmp_path / "held"


def test_directory_that_is_used_again_is_not_reaped(tmp_path: Path) -> None:
    path = directory(tmp_path / "query")
    [found] = abandoned([tmp_path], NOW_S, HOUR_S)
    hold(path)
    try:
        assert not reap(found)
        assert path.exists()
    finally:
        release(path)
    assert reap(found)


def test_directory_that_was_removed_is_held_anew(tmp_path: Path) -> None:
    path = directory(tmp_path / "query")
    hold(path)
    reaping.shutil.rmtree(path)
    directory(path)
    hold(path)
    try:
        assert abandoned([tmp_path], NOW_S + 9 * HOUR_S, HOUR_S) == []
    finally:
        release(path)


def test_executors_of_one_query_are_reaped_apart(tmp_path: Path) -> None:
    directory(tmp_path / "query" / "executor-7")
    live = directory(tmp_path / "query" / "executor-8")
    hold(live)
    try:
        [found] = abandoned([tmp_path], NOW_S, HOUR_S)
        assert found.path.name == "executor-7"
    finally:
        release(live)


def test_link_is_not_followed(tmp_path: Path) -> None:
    directory(tmp_path / "elsewhere" / "query")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "query").symlink_to(tmp_path / "elsewhere" / "query")
    assert abandoned([tmp_path / "here"], NOW_S, HOUR_S) == []


def test_doctor_sweeps_and_says_what(tmp_path: Path) -> None:
    gone = directory(tmp_path / "gone", used_s=0)
    command = ["doctor", "--sweep", "--in", str(tmp_path)]
    done = CliRunner().invoke(app, [*command, "--json"])
    [swept] = json.loads(done.stdout)["swept"]
    assert swept.pop("idle_seconds") > HOUR_S
    assert swept == {"path": str(gone), "bytes": 5, "files": 2, "removed": True}
    assert not gone.exists()
    directory(tmp_path / "gone", used_s=0)
    done = CliRunner().invoke(app, command)
    assert f"removed {gone}: 2 files, 5 bytes" in done.stdout
    assert "swept 5 bytes of 1 ended queries" in done.stdout


def test_only_unnamed_files_of_earlier_batches_are_orphans() -> None:
    named = "000000001-0-0-0-e1.000000000000.arrow"
    old = "000000002-0-0-0-e1.000000000000.arrow"
    writing = f".{old}.4711"
    running = "000000003-0-0-0-e1.000000000000.arrow"
    names = [named, old, writing, f".{named}.4711", running, "lock", "strange-1.arrow"]
    assert orphans(names, {named}, before=3) == [old, writing]
