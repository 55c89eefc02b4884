"""A new checkpoint: the names of its directories survive a loss of power."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.routing.routing import Routing


def test_directories_of_a_new_checkpoint_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    real = os.fsync

    def record(handle: int) -> None:
        told.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", record)
    checkpoint = Checkpoint(str(tmp_path / "a" / "ck" / "spillway"))
    checkpoint.acquire()
    checkpoint.release()
    assert told == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "ck")]


def test_partial_metadata_of_a_start_that_died_is_deleted(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.open({"operator": "x", "streams": [], "key_types": []}, 4, "v")
    for name in ("metadata.json.ab.partial", "mine.partial"):
        (tmp_path / name).write_bytes(b"x")
    checkpoint.recover(1, Routing.even(4, 2))
    assert sorted(os.listdir(tmp_path)) == ["log", "metadata.json", "mine.partial"]
