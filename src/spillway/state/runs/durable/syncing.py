"""Makes files and directories of a local filesystem durable."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

#: Syncs at the same time. A slot writes a few files a batch.
_SYNCERS = 8


def sync_files(paths: Sequence[str]) -> None:
    """Makes the content of files durable. A file that was deleted again needs no sync."""
    _sync_all(_sync_file, paths)


def sync_folders(paths: Sequence[str]) -> None:
    """Makes the names in directories durable."""
    _sync_all(sync_folder, paths)


def sync_folder(path: str) -> None:
    """Makes the names in a directory durable."""
    _synced(path, os.O_RDONLY | os.O_DIRECTORY, os.fsync)


def make_folder(folder: str, *, fsync: bool = True) -> None:
    """Creates a directory and its parents; with `fsync`, the names of new ones are durable at once."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folder(parent, fsync=fsync)
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
    if fsync:
        sync_folder(parent)


def _sync_all(sync: Callable[[str], None], paths: Sequence[str]) -> None:
    """Syncs several at the same time: a filesystem with a journal writes it once for all of them."""
    if len(paths) < 2:
        for path in paths:
            sync(path)
        return
    with ThreadPoolExecutor(min(_SYNCERS, len(paths))) as pool:
        list(pool.map(sync, paths))


def _sync_file(path: str) -> None:
    with suppress(FileNotFoundError):
        _synced(path, os.O_RDONLY, getattr(os, "fdatasync", os.fsync))


def _synced(path: str, flags: int, sync: Callable[[int], None]) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        sync(handle)
    finally:
        os.close(handle)
