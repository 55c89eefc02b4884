"""Reads manifests from files.

A file has the table of runs and the manifest whose slices refer to it (state/manifest/runtable.py).
The manifest stays raw JSON until the runs are decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from spillway.errors import StateError
from spillway.formats import read_as
from spillway.metrics.groups import GroupTable
from spillway.state.manifest.manifest import FORMAT, Manifest
from spillway.state.runs.durable import DurableStore
from spillway.state.runs.run import Run


class _File(msgspec.Struct):
    """The JSON of a file, without its format number."""

    runs: list[Run]
    manifest: msgspec.Raw


def decode_manifest(data: bytes, name: str, location: str = "") -> Manifest:
    """Decodes a manifest. Rejects a damaged one and an unsupported format."""
    what = f"manifest {name}"
    found = read_as(_File, FORMAT.body_of(data, what, location), what, location)
    return read_as(Manifest, bytes(found.manifest), what, location, found.runs)


def read_manifest(durable: DurableStore, name: str) -> Manifest:
    """Reads one manifest of a checkpoint. Rejects a missing or damaged one."""
    return decode_manifest(_read(durable, name), name, durable.location)


@dataclass(frozen=True)
class Held:
    """What a manifest says about sizes, without its slices, which are most of it."""

    groups: GroupTable = field(default_factory=lambda: GroupTable.empty(0))
    state_rows: tuple[int, ...] = ()
    state_bytes: tuple[int, ...] = ()
    disk_rows: tuple[int, ...] = ()
    disk_bytes: tuple[int, ...] = ()


class _Sizes(msgspec.Struct):
    """The same JSON, of which only the manifest is wanted."""

    manifest: msgspec.Raw


def read_held(durable: DurableStore, name: str) -> Held:
    """Reads the sizes in one manifest. Rejects a missing or damaged one."""
    what, location = f"manifest {name}", durable.location
    body = FORMAT.body_of(_read(durable, name), what, location)
    found = read_as(_Sizes, body, what, location)
    return read_as(Held, bytes(found.manifest), what, location)


def _read(durable: DurableStore, name: str) -> bytes:
    data = durable.read(name)
    if data is None:
        raise StateError(
            f"manifest {name} is missing",
            detail=f"in {durable.location}",
            hint="restore the checkpoint directory from a backup",
        )
    return bytes(data)
