"""Spark's own part of a checkpoint: the offsets and source logs that say which rows a batch has.

    offsets/<batch>       how far the batch reads each source
    sources/<n>/<entry>   what a source itself must remember, for example names of files

Spark writes both before it asks for the batch, and does not sync them. If a loss of power took them,
Spark would give the batch other rows, although a sink has its results or the log says that it is
committed. So `settle` makes them durable on a local filesystem before anything happens because of the
rows. It returns the checksum of the offsets, which note and record keep. A start compares it, and
refuses other rows.

Known limitation: Spark's checkpoint may be in a place that Spillway cannot open, if the state has a
place of its own (setting `durable`). Then there is no checksum.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from spillway.errors import SpillwayError, StateError
from spillway.kernels.checksum import checksum
from spillway.state.runs.durable import DurableStore, open_durable
from spillway.state.runs.durable.syncing import sync_files, sync_folders

#: Spark repeats a batch without them, and Spillway recognises it.
_NOT_NEEDED = "commits"


class SourceOffsets:
    """The offsets of one query, in the directory that Spark uses."""

    def __init__(self, location: str, *, fsync: bool = True) -> None:
        self._store = _opened(location)
        local = None if self._store is None or not fsync else self._store.local_path()
        #: The directory, if there is something to sync.
        self._local = None if local is None else str(local)
        #: The files that are there and durable.
        self._durable: set[str] = set()

    def settle(self, batch: int) -> str | None:
        """Makes durable which rows a batch has; returns their checksum, or None if it is unknown."""
        if self._local is not None:
            self._sync(self._local)
        if self._store is None or not (data := self._store.read(f"offsets/{batch}")):
            return None
        return f"{checksum(data):016x}"

    def _sync(self, root: str) -> None:
        """Syncs the files that came since the last call, and their directories."""
        found = set(_files_in(root))
        if not (new := sorted(found - self._durable)):
            return
        folders = {os.path.dirname(path) for path in new}
        if not self._durable:
            # The first call of a start: the directories are perhaps new, too.
            folders |= {root, *map(str, Path(root).parents[:2]), *map(os.path.dirname, folders)}
        try:
            sync_files(new)
            sync_folders(sorted(folders))
        except OSError as problem:
            raise StateError(
                f"the checkpoint at {root} did not confirm that the offsets of Spark are on disk",
                detail=f"{problem.strerror or problem}; the query stopped without data loss",
                hint="check the disk and the system log, then start the query again",
            ) from problem
        self._durable = found


def _files_in(folder: str) -> Iterator[str]:
    """Returns all files that a batch needs, with the checksums that Hadoop keeps next to them."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for one in entries:
        if one.is_dir():
            if one.name != _NOT_NEEDED:
                yield from _files_in(one.path)
        elif not one.name.endswith(".tmp"):
            yield one.path


def _opened(location: str) -> DurableStore | None:
    """Returns Spark's directory, or None if Spillway cannot read there."""
    try:
        store = open_durable(location, fsync=False)
        store.names("offsets")
    except (OSError, SpillwayError):
        return None
    return store
