"""Manifests from files.

A file has the table of runs and, next to it, the manifest whose slices refer to it
(state/manifest/runtable.py). The manifest stays raw JSON until the runs are known.
"""

from __future__ import annotations

import msgspec

from spillway.errors import StateError
from spillway.formats import read_as
from spillway.state.manifest.manifest import FORMAT, Manifest
from spillway.state.runs.run import Run
from spillway.state.runs.tiers import DurableTier


class _File(msgspec.Struct):
    """The JSON of a file, without its format."""

    runs: list[Run]
    manifest: msgspec.Raw


def decode_manifest(data: bytes, name: str, location: str = "") -> Manifest:
    """Reads a manifest back; refuses one that is damaged, or of a format that it cannot read."""
    what = f"manifest {name}"
    found = read_as(_File, FORMAT.body_of(data, what, location), what, location)
    return read_as(Manifest, bytes(found.manifest), what, location, found.runs)


def read_manifest(durable: DurableTier, name: str) -> Manifest:
    """One manifest of a checkpoint, refused if it is missing or damaged."""
    data = durable.read(name)
    if data is None:
        raise StateError(
            f"manifest {name} is missing",
            detail=f"in {durable.location}",
            hint="restore the checkpoint directory from a copy",
        )
    return decode_manifest(bytes(data), name, durable.location)
