"""The durable tier in an object store: S3, Google Cloud Storage, Azure.

A put is atomic and durable on return. `publish` is a put that the store rejects if the object exists,
so two drivers cannot both succeed. It never renames an object.

obstore is an optional dependency (`pip install "spillway[object-store]"`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from spillway.errors import EnvironmentMissing

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: The schemes of object stores, with Hadoop's names for them.
SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs", "az", "adl", "azure", "abfs", "abfss")
_S3 = ("s3", "s3a", "s3n")
#: Most names in one delete request of S3.
_MOST_DELETED = 1000
#: Concurrent requests, if the store deletes one object per request.
_DELETERS = 16


class ObjectDurable:
    """A prefix of an object store."""

    def __init__(self, location: str, store: ObjectStore) -> None:
        self.location = location
        self._store = store

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """Writes a new object, durable on return."""
        with as_os_errors(self.location):
            self._store.put(name, memoryview(data).cast("B"))

    def sync(self) -> None:
        """Does nothing: a put is durable."""

    def read(self, name: str) -> pa.Buffer | None:
        """Returns the bytes of an object, or None if it is missing."""
        with as_os_errors(self.location):
            try:
                return pa.py_buffer(self._store.get(name).bytes())
            except FileNotFoundError:
                return None

    def publish(self, name: str, data: bytes) -> bool:
        """Writes an object; returns False if the name is taken."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with as_os_errors(self.location):
            try:
                self._store.put(name, data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Writes an object; replaces an older one atomically."""
        self.write(name, data)

    def delete(self, names: Sequence[str]) -> None:
        """Removes objects, many per request if the store can."""
        for start in range(0, len(names), _MOST_DELETED):
            some = list(names[start : start + _MOST_DELETED])
            try:
                with as_os_errors(self.location):
                    self._store.delete(some)
            except FileNotFoundError:
                # Some stores stop at the first object that is missing.
                with ThreadPoolExecutor(_DELETERS) as pool:
                    list(pool.map(self._delete, some))

    def names(self, folder: str) -> list[str]:
        """Returns the names of the objects in a folder, sorted."""
        with as_os_errors(self.location):
            found = self._store.list_with_delimiter(folder)["objects"]
            return sorted(one["path"].rpartition("/")[2] for one in found)

    def local_path(self) -> Path | None:
        """Returns None: the location is not local."""
        return None

    def _delete(self, name: str) -> None:
        with as_os_errors(self.location):
            try:
                self._store.delete(name)
            except FileNotFoundError:
                return


def open_objects(location: str) -> ObjectStore:
    """Returns the client of a location. Credentials come from the URI or from the environment."""
    try:
        from obstore.store import from_url
    except ImportError as problem:
        raise EnvironmentMissing(
            "a checkpoint in an object store needs the package obstore",
            detail=f"the location begins with {urlsplit(location).scheme}://",
            hint='install it on the driver and on all executors: pip install "spillway[object-store]"',
        ) from problem
    url, config = client_config(location)
    return from_url(url, config=cast("Any", config))


def client_config(location: str) -> tuple[str, dict[str, Any]]:
    """Returns the plain URL of a location, and the settings in its parameters (in pyarrow's form).

    Example:
        >>> client_config("s3a://bucket/ck?region=eu-west-1")
        ('s3://bucket/ck', {'region': 'eu-west-1'})
    """
    parts = urlsplit(location)
    if parts.scheme not in _S3:
        return location.rstrip("/"), {}
    given = dict(parse_qsl(parts.query))
    config: dict[str, Any] = {}
    user, _, host = parts.netloc.rpartition("@")
    if user:
        key, _, secret = user.partition(":")
        config |= {"access_key_id": unquote(key), "secret_access_key": unquote(secret)}
    if "region" in given:
        config["region"] = given["region"]
    if "endpoint_override" in given:
        scheme = given.get("scheme", "https")
        config["endpoint"] = f"{scheme}://{given['endpoint_override']}"
        config["allow_http"] = str(scheme == "http").lower()
    return f"s3://{host}{parts.path.rstrip('/')}", config


@contextmanager
def as_os_errors(location: str) -> Iterator[None]:
    """Turns failures of the store into I/O errors, which callers of a filesystem know."""
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as problem:
        first = str(problem).partition("\n")[0]
        raise OSError(f"the object store at {location} failed: {first}") from problem
