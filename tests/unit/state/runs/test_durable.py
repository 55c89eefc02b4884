"""Every implementation of the durable tier keeps the promises of the port."""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from obstore.store import LocalStore, MemoryStore
from pyarrow import fs

from spillway.errors import EnvironmentMissing, StateError
from spillway.state.runs.durable import DurableStore, exclusive, local, open_durable, opening
from spillway.state.runs.durable.arrow import ArrowDurable
from spillway.state.runs.durable.exclusive import CLAIM
from spillway.state.runs.durable.local import LocalDurable
from spillway.state.runs.durable.objects import ObjectDurable, client_config


def _without_links(monkeypatch: pytest.MonkeyPatch, *, renames: bool) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    if not renames:
        monkeypatch.setattr(exclusive, "_renameat2", lambda: None)


@pytest.fixture(
    params=["links", "renames", "creations", "lazy", "arrow", "memory objects", "local objects"]
)
def durable(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> DurableStore:
    place = str(tmp_path / "ck")
    match request.param:
        case "memory objects":
            return ObjectDurable("memory:///", MemoryStore())
        case "local objects":
            return ObjectDurable(place, LocalStore(place, mkdir=True))
        case "arrow":
            return ArrowDurable(place, fs.LocalFileSystem(), place)
        case "renames" | "creations" as kind:
            _without_links(monkeypatch, renames=kind == "renames")
    return open_durable(place, fsync=request.param != "lazy")


def test_files_are_written_read_listed_and_deleted(durable: DurableStore) -> None:
    assert durable.read("runs/r") is None
    assert durable.names("runs") == []
    durable.write("runs/r", b"abc")
    durable.write("runs/s", pa.py_buffer(b"\xff\x00def"))
    durable.write("runs/empty", b"")
    durable.sync()
    assert bytes(durable.read("runs/r")) == b"abc"
    assert bytes(durable.read("runs/s")) == b"\xff\x00def"
    assert bytes(durable.read("runs/empty")) == b""
    assert durable.names("runs") == ["empty", "r", "s"]
    durable.delete(["runs/r", "runs/missing", "runs/s", "nowhere/x"])
    durable.delete([])
    assert durable.names("runs") == ["empty"]


def test_a_name_is_published_once(durable: DurableStore) -> None:
    assert durable.publish("log/1.json", b"one")
    assert not durable.publish("log/1.json", b"two")
    assert bytes(durable.read("log/1.json")) == b"one"
    assert [name for name in durable.names("log") if not name.endswith(CLAIM)] == ["1.json"]


def test_one_of_many_threads_publishes_a_name(durable: DurableStore) -> None:
    if isinstance(durable, ArrowDurable):
        pytest.skip("pyarrow has no exclusive creation (durable/arrow.py)")
    for number in range(20):
        won: list[int] = []
        barrier = threading.Barrier(4)

        def run(who: int, at: int = number, ready=barrier, winners=won) -> None:
            ready.wait()
            if durable.publish(f"log/{at}", b"%d" % who):
                winners.append(who)

        threads = [threading.Thread(target=run, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert bytes(durable.read(f"log/{number}")) == b"%d" % won[0]


def test_a_file_is_replaced(durable: DurableStore) -> None:
    durable.replace("metadata.json", b"1")
    durable.replace("metadata.json", b"22")
    assert bytes(durable.read("metadata.json")) == b"22"
    assert durable.names("") == ["metadata.json"]


def test_partial_files_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for renames in (None, True, False):
        if renames is not None:
            _without_links(monkeypatch, renames=renames)
        durable = open_durable(str(tmp_path))
        durable.replace("log/note", b"1")
        assert durable.publish(f"log/{renames}", b"1")
        assert not durable.publish(f"log/{renames}", b"2")
    assert sorted(os.listdir(tmp_path / "log")) == ["False", "False.claim", "None", "True", "note"]


def test_many_missing_objects_are_deleted_too(tmp_path: Path) -> None:
    durable = ObjectDurable("x", LocalStore(str(tmp_path), mkdir=True))
    names = [f"runs/{number}" for number in range(2500)]
    for name in names[::7]:
        durable.write(name, b"x")
    durable.delete(names)
    assert durable.names("runs") == []


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of the operating system that make files and directories durable, in order."""
    told: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def record(handle: int, real=real) -> None:
            told.append(os.readlink(f"/proc/self/fd/{handle}"))
            real(handle)

        monkeypatch.setattr(local.os, name, record)
    return told


def test_sync_reaches_files_then_their_directories(tmp_path: Path, synced: list[str]) -> None:
    root = str(tmp_path / "a" / "ck")
    durable = LocalDurable(root, root)
    durable.write("runs/r", b"1")
    durable.write("manifests/m", b"2")
    # The names of new directories.
    made = [str(tmp_path), str(tmp_path / "a"), root, root]
    assert synced == made
    durable.sync()
    files = [f"{root}/runs/r", f"{root}/manifests/m"]
    # Several at the same time, but all files before their directories.
    assert sorted(synced[len(made) :][:2]) == sorted(files)
    assert sorted(synced[len(made) :][2:]) == [f"{root}/manifests", f"{root}/runs"]
    durable.sync()
    assert len(synced) == len(made) + 4


def test_publish_syncs_the_file_before_its_name(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    real = os.link
    monkeypatch.setattr(os, "link", lambda *at: (synced.append("link"), real(*at)))
    durable = LocalDurable("x", str(tmp_path))
    assert durable.publish("log/1", b"1")
    assert [Path(one).suffix or Path(one).name for one in synced] == [".partial", "link", "log"]
    synced.clear()
    durable.replace("log/2", b"1")
    assert [Path(one).suffix or Path(one).name for one in synced] == [".partial", "log"]


def test_name_whose_partial_file_was_swept_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another start has published the name, and deletes what an older one left."""
    durable = LocalDurable("x", str(tmp_path))
    real = durable._partial

    def swept(target: str, data: bytes) -> str:
        partial = real(target, data)
        os.unlink(partial)
        Path(target).write_bytes(b"other")
        return partial

    monkeypatch.setattr(durable, "_partial", swept)
    assert not durable.publish("log/1", b"1")


def test_without_fsync_nothing_is_synced(tmp_path: Path, synced: list[str]) -> None:
    durable = open_durable(str(tmp_path / "ck"), fsync=False)
    durable.write("runs/r", b"1")
    durable.publish("log/1", b"1")
    durable.replace("log/2", b"1")
    durable.sync()
    assert synced == []


def test_a_failed_sync_stays_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable = open_durable(str(tmp_path))
    durable.write("runs/r", b"1")

    def fail(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(local.os, "fdatasync", fail)
        with pytest.raises(StateError) as caught:
            durable.sync()
    assert caught.value.message.endswith("did not confirm that written data is on disk")
    assert "Input/output error" in caught.value.detail
    assert caught.value.hint == "check the disk and the system log, then start the query again"
    with pytest.raises(StateError):
        durable.sync()
    open_durable(str(tmp_path)).sync()


def test_a_missing_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(EnvironmentMissing) as caught:
        open_durable("s3://nobody-has-this/ck")
    assert caught.value.message == "a checkpoint in an object store needs the package obstore"
    assert caught.value.detail == "the location begins with s3://"
    assert 'pip install "spillway[object-store]"' in caught.value.hint


def test_clients_are_made_once_for_each_location() -> None:
    first, second = (open_durable("s3://some-bucket/ck?region=eu-west-1") for _ in range(2))
    assert first is not second
    assert first._store is second._store


def test_sizes_of_objects_come_from_the_client_of_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another client would look for credentials and address elsewhere."""
    store = MemoryStore()
    monkeypatch.setattr(opening, "_object_client", lambda _: store)
    durable = open_durable("s3://bucket/ck")
    assert opening.file_sizes("s3://bucket/ck", "runs") == {}
    durable.write("runs/a", b"12345")
    durable.write("log/b", b"1")
    assert opening.file_sizes("s3://bucket/ck", "runs") == {"a": 5}


def test_settings_in_a_uri_reach_the_client() -> None:
    uri = "s3n://k%2F:s@bucket/a/b/?endpoint_override=127.0.0.1:9000&scheme=http"
    url, config = client_config(uri)
    assert url == "s3://bucket/a/b"
    assert config == {
        "access_key_id": "k/",
        "secret_access_key": "s",
        "endpoint": "http://127.0.0.1:9000",
        "allow_http": "true",
    }
    assert client_config("gs://bucket/a/") == ("gs://bucket/a", {})
