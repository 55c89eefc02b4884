"""Local files that another user could have made or changed are not used."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import StateError
from spillway.settings import Adapt
from spillway.spark.runtime import home
from spillway.spark.runtime.home import Home, LocalFolders
from spillway.state.runs import store as stores
from spillway.state.runs.durable import open_durable
from spillway.state.runs.merging import WHOLE
from spillway.state.runs.private import make_private
from spillway.state.runs.run import Slice
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier


def modes(root: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in root.rglob("*")}


def store_of(root: Path, opened: OpenRuns) -> Store:
    tiers = [LocalTier(kind, root / "local" / kind) for kind in ("memory", "disk")]
    return Store(*tiers, open_durable(str(root / "durable")), opened, 0)


def rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(np.arange(100, dtype=np.uint32))], ["_h"])


def test_directories_and_files_belong_to_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = store_of(tmp_path, OpenRuns())
        store.write("a", rows(), None, in_memory=True)
        store.write("b", rows(), None, in_memory=False)
    finally:
        os.umask(before)
    assert (tmp_path / "local").stat().st_mode & 0o777 == 0o700
    assert modes(tmp_path / "local") == {0o700, 0o600}


@pytest.mark.parametrize("kind", ["writable", "link", "file", "foreign"])
def test_directory_of_others_is_rejected(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "memory"
    (tmp_path / "other").mkdir()
    if kind == "link":
        root.symlink_to(tmp_path / "other")
    elif kind == "file":
        root.write_bytes(b"")
    else:
        root.mkdir()
        root.chmod(0o777 if kind == "writable" else 0o700)
    me = os.geteuid()
    if kind == "foreign":
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    said = {
        "writable": "other users may write to it: its mode is 0777",
        "link": "it is a link",
        "file": "it is not a directory",
        "foreign": f"it belongs to user {me}, not to user {me + 1}",
    }[kind]
    tier = LocalTier("memory", root)
    for use in (lambda: tier.map("a"), lambda: tier.write("a", pa.py_buffer(b"x"), 1)):
        with pytest.raises(StateError) as refused:
            use()
        assert refused.value.message == f"the directory {root} is not safe for the state of a query"
        assert refused.value.detail == said
        assert refused.value.hint == (
            "remove it, or choose a directory of your own with .adapt(memory_dir=..., disk_dir=...)"
        )


def test_own_directory_that_others_can_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir(mode=0o755)
    make_private(tmp_path / "memory")
    assert (tmp_path / "memory").stat().st_mode & 0o777 == 0o700


def test_name_that_another_user_took_first_is_avoided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "default_memory_root", lambda: tmp_path)
    usual, _ = LocalFolders.roots("abc", Adapt())
    assert usual == tmp_path / f"spillway-{os.getuid()}" / "abc"
    usual.parent.mkdir()
    usual.parent.chmod(0o777)
    other, _ = LocalFolders.roots("abc", Adapt())
    assert other == tmp_path / f"spillway-{os.getuid()}-abc" / "abc"


def test_a_task_makes_the_directory_of_its_query_private(tmp_path: Path) -> None:
    adapt = Adapt(memory_dir=str(tmp_path / "m"), disk_dir=str(tmp_path / "d"))
    Home("q", 1, str(tmp_path / "ck"), adapt).store(0, 0)
    # The directory, and the file that says that it is in use.
    assert modes(tmp_path / "m") == {0o700, 0o600}
    (tmp_path / "d" / "q").chmod(0o770)
    with pytest.raises(StateError, match="is not safe for the state of a query"):
        Home("q", 1, str(tmp_path / "ck"), adapt).store(1, 0)


def test_changed_file_on_disk_is_found_when_a_process_first_opens_it(tmp_path: Path) -> None:
    """Its size and modification time are as they were: only the checksum tells."""
    run, _ = store_of(tmp_path, OpenRuns()).write("r", rows(), None, in_memory=False)
    path = tmp_path / "local" / "disk" / "r"
    found, data = path.stat(), bytearray(path.read_bytes())
    data[data.index(bytes(np.arange(8, dtype=np.uint32)))] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))
    store = store_of(tmp_path, OpenRuns())
    assert store.open(Slice(run, WHOLE), None).batch.equals(rows())
    assert store.restored == ["r"]


def test_a_process_compares_a_file_on_disk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    real = stores._intact
    monkeypatch.setattr(
        stores, "_intact", lambda buffer, run: (compared.append(run.name), real(buffer, run))[1]
    )
    opened = OpenRuns()
    run, _ = store_of(tmp_path, opened).write("r", rows(), None, in_memory=False)
    for _ in range(3):
        opened.entries.clear()
        store_of(tmp_path, opened).open(Slice(run, WHOLE), None)
    assert compared == ["r"]
    opened.entries.clear()
    os.utime(tmp_path / "local" / "disk" / "r")
    store_of(tmp_path, opened).open(Slice(run, WHOLE), None)
    assert compared == ["r", "r"]
