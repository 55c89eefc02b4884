"""What a version cannot read it refuses, and says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spillway.checkpoint import checkpoint as metadata
from spillway.checkpoint import log
from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.log import Log
from spillway.coordinator.batch.committed import Mark, initial
from spillway.coordinator.batch.plan import new_note
from spillway.errors import StateError
from spillway.formats import Format
from spillway.ids import SlotId
from spillway.kernels.checksum import sealed, unsealed
from spillway.routing.routing import Routing
from spillway.state.manifest import manifest
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.durable import open_durable

OLDER = (
    "finish the query with the version that wrote the checkpoint, or use a new checkpoint location"
)
NEWER = "upgrade Spillway, or use another checkpoint location"
MANIFEST, RECORD, NOTE = "manifests/m.json", "log/000000000.json", "log/000000001.000001.begun"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A checkpoint with one file of each kind."""
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.open({"streams": [], "key_types": []}, 4, "0.1.0")
    checkpoint.durable.write(MANIFEST, empty_manifest(SlotId(0), 2).encode())
    state = initial(Routing.even(4, 2), 2)
    checkpoint.log.take_over()
    checkpoint.log.begin(Mark(0), new_note(state, {}))
    return tmp_path


def set_format(path: Path, number: int) -> None:
    found = json.loads(unsealed(path.read_bytes()) or b"")
    assert next(iter(found)) == "format"
    path.write_bytes(sealed(json.dumps(found | {"format": number}).encode()))


#: The file, how messages call it, its format, and what reads it.
KINDS = {
    "metadata": ("metadata.json", "the checkpoint at {place}", metadata.FORMAT),
    "manifest": (MANIFEST, f"manifest {MANIFEST}", manifest.FORMAT),
    "record": (RECORD, f"log record {RECORD}", log.FORMAT),
    "note": (NOTE, f"log record {NOTE}", log.FORMAT),
}


def read(kind: str, place: Path) -> object:
    durable = open_durable(str(place))
    readers = {
        "metadata": lambda: Checkpoint(str(place)).metadata(),
        "manifest": lambda: read_manifest(durable, MANIFEST),
        "record": lambda: Log(durable).read(0),
        "note": lambda: Log(durable).open_note(Log(durable).newest()),
    }
    return readers[kind]()


@pytest.mark.parametrize("kind", KINDS)
def test_older_format_is_refused_with_who_reads_it_and_what_to_do(kind: str, place: Path) -> None:
    path, what, known = KINDS[kind]
    assert read(kind, place)
    set_format(place / path, known.oldest - 1)
    with pytest.raises(StateError) as refused:
        read(kind, place)
    what = what.format(place=place)
    assert refused.value.message == f"{what} was written by an older version of Spillway"
    older = known.oldest - 1
    assert str(refused.value.detail).startswith(
        f"its format is {older}, this version reads format {known.number}, "
        f"builds of Spillway before the release of 0.1.0 read format {older}"
    )
    assert str(place) in str(refused.value)
    assert refused.value.hint == OLDER


@pytest.mark.parametrize("kind", KINDS)
def test_newer_format_is_refused(kind: str, place: Path) -> None:
    path, what, known = KINDS[kind]
    set_format(place / path, known.number + 1)
    with pytest.raises(StateError) as refused:
        read(kind, place)
    what = what.format(place=place)
    assert refused.value.message == f"{what} was written by a newer version of Spillway"
    assert str(refused.value.detail).startswith(
        f"its format is {known.number + 1}, this version reads format {known.number}"
    )
    assert str(place) in str(refused.value)
    assert refused.value.hint == NEWER


def test_several_formats_can_be_readable() -> None:
    known = Format(9, 7)
    for number in (7, 8, 9):
        body = b'{"format":%d}' % number
        assert known.body_of(sealed(body), "it") == body
    with pytest.raises(StateError) as refused:
        known.checked(b'{"format":6}', "it")
    assert "this version reads formats 7 to 9" in str(refused.value.detail)


def test_whole_file_of_the_right_format_with_wrong_content_is_refused_by_name(place: Path) -> None:
    (place / RECORD).write_bytes(log.FORMAT.written(b'{"sequence":"three"}'))
    with pytest.raises(StateError) as refused:
        read("record", place)
    assert refused.value.message == f"log record {RECORD} cannot be read"
    assert "Expected `int`, got `str` - at `$.sequence`" in str(refused.value.detail)
