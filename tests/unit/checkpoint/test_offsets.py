"""Spark's offsets are durable before a batch runs, and note and record know which rows it has."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spillway.checkpoint.offsets import SourceOffsets
from spillway.errors import StateError


def written(root: Path, batch: int, text: str = "v1\n{}\n") -> None:
    """What Spark writes before it asks for a batch."""
    for name in (f"offsets/{batch}", f"sources/0/{batch}", "metadata"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}{batch}")
        (path.parent / f".{path.name}.crc").write_text("crc")
    (root / "commits").mkdir(exist_ok=True)
    (root / "commits" / str(batch)).write_text("")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files and directories that were made durable."""
    told: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def record(handle: int, real=real) -> None:
            told.append(os.readlink(f"/proc/self/fd/{handle}"))
            real(handle)

        monkeypatch.setattr(os, name, record)
    return told


def test_files_of_a_batch_are_durable_before_it_runs(tmp_path: Path, synced: list[str]) -> None:
    root = tmp_path / "ck" / "spark"
    offsets = SourceOffsets(str(root))
    written(root, 0)
    assert offsets.settle(0) is not None
    files = ("metadata", "offsets/0", "offsets/.0.crc", "sources/0/0", "sources/0/.0.crc")
    folders = (root, root / "offsets", root / "sources" / "0", root / "sources", root.parent)
    assert {*(str(root / one) for one in files), *map(str, folders), str(tmp_path)} <= set(synced)
    last_file = max(synced.index(str(root / one)) for one in files)
    assert last_file < min(synced.index(str(one)) for one in folders)
    assert not any("commits" in one for one in synced)


def test_later_batches_sync_only_what_is_new(tmp_path: Path, synced: list[str]) -> None:
    offsets = SourceOffsets(str(tmp_path))
    written(tmp_path, 0)
    offsets.settle(0)
    synced.clear()
    path = tmp_path / "offsets" / "1"
    path.write_text("v1")
    offsets.settle(1)
    assert synced == [str(path), str(path.parent)]


def test_checksum_tells_other_offsets(tmp_path: Path) -> None:
    offsets = SourceOffsets(str(tmp_path))
    written(tmp_path, 0)
    written(tmp_path, 1)
    first, second = offsets.settle(0), offsets.settle(1)
    assert len({first, second, None}) == 3
    assert SourceOffsets(str(tmp_path)).settle(1) == second
    written(tmp_path, 1, "v1\n{ }\n")
    assert offsets.settle(1) not in (first, second)


def test_without_fsync_there_is_only_the_checksum(tmp_path: Path, synced: list[str]) -> None:
    written(tmp_path, 0)
    assert SourceOffsets(str(tmp_path), fsync=False).settle(0) is not None
    assert synced == []


def test_place_that_nobody_can_read_has_no_checksum(tmp_path: Path) -> None:
    assert SourceOffsets("unknown://place/spark").settle(0) is None
    assert SourceOffsets(str(tmp_path / "nowhere")).settle(0) is None


def test_offsets_that_are_not_on_disk_stop_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    written(tmp_path, 0)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StateError) as caught:
        SourceOffsets(str(tmp_path)).settle(0)
    assert caught.value.message == (
        f"the checkpoint at {tmp_path} did not confirm that the offsets of Spark are on disk"
    )
    assert caught.value.detail == "Input/output error; the query stopped without data loss"
    assert caught.value.hint == "check the disk and the system log, then start the query again"
