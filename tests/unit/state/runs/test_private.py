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
from spillway.state.runs import tiers
from spillway.state.runs.durable import open_durable
from spillway.state.runs.merging import WHOLE
from spillway.state.runs.private import make_private
from spillway.state.runs.run import Slice
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.runs.volatile import is_volatile


def modes(root: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in root.rglob("*")}


def store_of(root: Path, opened: OpenRuns) -> Store:
    local = [LocalTier(kind, root / "local" / kind) for kind in ("memory", "disk")]
    return Store(*local, open_durable(str(root / "durable")), opened, 0)


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


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a test directory in shared memory counts as one on a disk."""
    monkeypatch.setattr(tiers, "is_volatile", lambda _: False)


@pytest.mark.usefixtures("on_disk")
@pytest.mark.parametrize("tier", ["memory", "disk"])
def test_changed_file_on_disk_is_found_when_a_process_first_opens_it(
    tmp_path: Path, tier: str
) -> None:
    """Its size and modification time are as they were: only the checksum tells."""
    in_memory = tier == "memory"
    run, _ = store_of(tmp_path, OpenRuns()).write("r", rows(), None, in_memory=in_memory)
    path = tmp_path / "local" / tier / "r"
    found, data = path.stat(), bytearray(path.read_bytes())
    data[data.index(bytes(np.arange(8, dtype=np.uint32)))] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))
    store = store_of(tmp_path, OpenRuns())
    assert store.open(Slice(run, WHOLE), None).batch.equals(rows())
    assert store.restored == ["r"]


@pytest.mark.usefixtures("on_disk")
@pytest.mark.parametrize("tier", ["memory", "disk"])
def test_a_process_compares_a_file_on_disk_once(
    tmp_path: Path, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    real = stores._intact
    monkeypatch.setattr(
        stores, "_intact", lambda buffer, run: (compared.append(run.name), real(buffer, run))[1]
    )
    opened, in_memory = OpenRuns(), tier == "memory"
    run, _ = store_of(tmp_path, opened).write("r", rows(), None, in_memory=in_memory)
    for _ in range(3):
        opened.entries.clear()
        store_of(tmp_path, opened).open(Slice(run, WHOLE), None)
    assert compared == ["r"]
    opened.entries.clear()
    os.utime(tmp_path / "local" / tier / "r")
    store_of(tmp_path, opened).open(Slice(run, WHOLE), None)
    assert compared == ["r", "r"]


def test_a_stamp_is_enough_for_a_file_that_is_only_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "is_volatile", lambda _: True)
    run, _ = store_of(tmp_path, OpenRuns()).write("r", rows(), None, in_memory=True)
    monkeypatch.setattr(stores, "_intact", lambda *_: pytest.fail("the file was compared"))
    assert store_of(tmp_path, OpenRuns()).open(Slice(run, WHOLE), None).batch.equals(rows())


def test_the_mount_tells_whether_a_directory_is_only_in_memory(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"

    def told(*lines: str) -> bool:
        mounts = tmp_path / f"mounts{len(list(tmp_path.iterdir()))}"
        mounts.write_text("".join(f"{line}\n" for line in lines))
        return is_volatile(tmp_path, mounts)

    other = "22 27 0:9999 / /proc rw - tmpfs tmpfs rw"
    assert told(other, f"25 24 {number} / /dev/shm rw,relatime shared:3 - tmpfs tmpfs rw,size=9k")
    assert told(f"25 24 {number} / /ram rw - ramfs none rw")
    assert not told(other, f"27 1 {number} / / rw,relatime - ext4 /dev/root rw")
    assert not told(other)
    assert not told("", "nonsense")
    assert not is_volatile(tmp_path / "missing")
    assert not is_volatile(tmp_path, tmp_path / "no such list")
