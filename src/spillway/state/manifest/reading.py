"""Reads manifests from files.

A file has the table of runs and the manifest whose slices refer to it (state/manifest/runtable.py).
The manifest stays raw JSON until the runs are decoded.
"""

from __future__ import annotations

import msgspec

from spillway.errors import StateError
from spillway.formats import read_as
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
    data = durable.read(name)
    if data is None:
        raise StateError(
            f"manifest {name} is missing",
            detail=f"in {durable.location}",
            hint="restore the checkpoint directory from a backup",
        )
    return decode_manifest(bytes(data), name, durable.location)
