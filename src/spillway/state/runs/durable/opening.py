"""Opens the durable tier at a location: the one place that chooses among its implementations.

A process makes one client for each location: connecting takes longer than a small request. Every call
returns a new object around it, because `sync` covers the writes of one caller.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from spillway.errors import StateError
from spillway.state.runs.durable.arrow import ArrowDurable
from spillway.state.runs.durable.local import LocalDurable
from spillway.state.runs.durable.objects import SCHEMES, ObjectDurable, as_os_errors, open_objects
from spillway.state.runs.durable.port import DurableStore

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Locations whose clients a process keeps.
_KEEP_CLIENTS = 32


def open_durable(location: str, *, fsync: bool = True) -> DurableStore:
    """Returns the durable tier at a path or URI; `fsync` matters on local filesystems only.

    Example:
        >>> open_durable("/tmp/ck").local_path()
        PosixPath('/tmp/ck')
    """
    if urlsplit(location).scheme in SCHEMES:
        return ObjectDurable(location, _object_client(location))
    system, root = open_filesystem(location)
    if isinstance(system, fs.LocalFileSystem):
        return LocalDurable(location, root, fsync=fsync)
    return ArrowDurable(location, system, root)


def file_sizes(location: str, folder: str) -> dict[str, int]:
    """Returns the files in a folder of the durable tier, with their sizes, for inspection."""
    if urlsplit(location).scheme in SCHEMES:
        with as_os_errors(location):
            found = _object_client(location).list_with_delimiter(folder)["objects"]
        return {one["path"].rpartition("/")[2]: one["size"] for one in found}
    system, root = open_filesystem(location)
    selector = fs.FileSelector(f"{root}/{folder}", allow_not_found=True)
    files = (info for info in system.get_file_info(selector) if info.type == fs.FileType.File)
    return {info.base_name: info.size for info in files}


@lru_cache(maxsize=_KEEP_CLIENTS)
def _object_client(location: str) -> ObjectStore:
    try:
        return open_objects(location)
    except (ValueError, OSError) as problem:
        raise not_opened(location, problem) from problem


def open_filesystem(location: str) -> tuple[fs.FileSystem, str]:
    """Returns the pyarrow filesystem of a path or URI, and the path in it.

    Example:
        >>> open_filesystem("/tmp/ck")[1]
        '/tmp/ck'
    """
    if not urlsplit(location).scheme or re.match(r"^[A-Za-z]:[\\/]", location):
        return fs.LocalFileSystem(), os.path.abspath(location)
    return _from_uri(location)


@lru_cache(maxsize=_KEEP_CLIENTS)
def _from_uri(location: str) -> tuple[fs.FileSystem, str]:
    # Hadoop's names for object stores, and its file:/ with one slash, mean the same location.
    uri = re.sub(r"^s3[an]://", "s3://", location)
    uri = re.sub(r"^file:/+", "file:///", uri)
    try:
        found, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as problem:
        raise not_opened(location, problem) from problem
    return found, path.rstrip("/")


def not_opened(location: str, problem: Exception) -> StateError:
    """Returns the error for a durable location that is missing or unreachable."""
    return StateError(
        f"the durable location {location!r} cannot be opened",
        detail=str(problem),
        hint="use a local path, file://, hdfs://, s3://, gs:// or az:// that this machine can reach",
    )
