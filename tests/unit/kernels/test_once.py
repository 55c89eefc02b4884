"""Of several processes that need the same thing, one makes it."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from spillway.kernels import once
from spillway.kernels.once import Once


def make(folder: str, seconds: float) -> None:
    """Makes a file slowly, unless another process has; says so in another file."""
    lock = Once(Path(folder) / "lock")
    thing = Path(folder) / "thing"
    if lock.found(lambda: thing.exists() or None) is None:
        time.sleep(seconds)
        with lock.made(), (Path(folder) / "made").open("a") as said:
            thing.touch()
            said.write("once\n")


def test_thing_is_made_once_by_processes_that_need_it_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=make, args=(str(tmp_path), 0.3)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert (tmp_path / "made").read_text() == "once\n"


def held_elsewhere(folder: Path) -> multiprocessing.Process:
    """A process that takes the lock and does not make the thing."""
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=make, args=(str(folder), 60.0))
    child.start()
    while not (folder / "lock").exists():
        time.sleep(0.01)
    return child


def test_process_that_dies_does_not_keep_others_waiting(tmp_path: Path) -> None:
    child = held_elsewhere(tmp_path)
    child.kill()
    child.join()
    since = time.monotonic()
    make(str(tmp_path), 0.0)
    assert time.monotonic() - since < once.PATIENCE_S / 2
    assert (tmp_path / "made").read_text() == "once\n"


def test_waiting_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "PATIENCE_S", 0.2)
    child = held_elsewhere(tmp_path)
    try:
        make(str(tmp_path), 0.0)
        assert (tmp_path / "thing").exists()
    finally:
        child.kill()
        child.join()


def test_place_without_locks_does_not_stop_anybody(tmp_path: Path) -> None:
    lock = Once(tmp_path / "nowhere" / "lock")
    assert lock.found(lambda: None) is None
    with lock.made():
        pass
    assert lock.found(lambda: 7) == 7
