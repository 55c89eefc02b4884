"""The port to durable storage: what a checkpoint needs from its filesystem or object store.

    write      writes a new file, complete, but perhaps not yet durable
    sync       makes all writes of this object durable
    publish    writes a whole, durable file, only if the name is free: the commit primitive
    replace    writes a whole, durable file over another

These four give the order of durability. A slot task writes its runs and its manifest, syncs, and
reports. The driver writes and syncs what it adds, and publishes the record last. No code assumes that a
rename is atomic, except on a local filesystem.

The caller handles two cases. An answer can get lost after success: then `publish` raises an `OSError`,
or returns False although it wrote the file. So the caller compares the content. A file that is there but
perhaps not durable is a `StateError`. And on a local filesystem without hard links and exclusive
renames, a crash can leave a claimed name without a file (durable/exclusive.py). The log skips such a
record (checkpoint/log.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa


class DurableStore(Protocol):
    """A directory of durable files. Names are relative to it and contain at most one folder."""

    @property
    def location(self) -> str:
        """The path or URI, as errors name it."""
        ...

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """Writes a new file; after `sync`, it is durable."""
        ...

    def sync(self) -> None:
        """Makes all writes of this object since the last call durable, from any thread."""
        ...

    def read(self, name: str) -> pa.Buffer | None:
        """Returns the bytes of a file, or None if it is missing."""
        ...

    def publish(self, name: str, data: bytes) -> bool:
        """Writes a whole, durable file; returns False if the name is taken, and changes nothing."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Writes a whole, durable file; replaces an older one atomically."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Removes files. A missing file is not an error, since deletions repeat after a crash."""
        ...

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, sorted; none if the folder is missing.

        Partial files are among them (`state.runs.names.whole_name`).
        """
        ...

    def local_path(self) -> Path | None:
        """Returns the directory, if it is local."""
        ...
