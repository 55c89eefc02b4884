"""A disk that forgets what was not synced, and stores on it that can be interrupted anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa


class PowerLost(Exception):
    """The machine has stopped."""


class LazyDisk:
    """Files as programs see them, and as a crash of the machine leaves them."""

    def __init__(self) -> None:
        self.seen: dict[str, bytes] = {}
        self.durable: dict[str, bytes] = {}
        #: Called before every operation on a store.
        self.before: Callable[[], None] = lambda: None
        #: What was deleted, in order.
        self.deleted: list[str] = []

    def lose_power(self) -> None:
        self.seen = dict(self.durable)


class LazyStore:
    """One process's view of the disk."""

    location = "lazy"

    def __init__(self, disk: LazyDisk) -> None:
        self._disk = disk
        self._written: set[str] = set()

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        self._disk.before()
        self._disk.seen[name] = bytes(data)
        self._written.add(name)

    def sync(self) -> None:
        self._disk.before()
        for name in self._written & self._disk.seen.keys():
            self._disk.durable[name] = self._disk.seen[name]
        self._written.clear()

    def read(self, name: str) -> pa.Buffer | None:
        self._disk.before()
        data = self._disk.seen.get(name)
        return None if data is None else pa.py_buffer(data)

    def publish(self, name: str, data: bytes) -> bool:
        self._disk.before()
        if name in self._disk.seen:
            return False
        self._disk.seen[name] = self._disk.durable[name] = data
        return True

    def replace(self, name: str, data: bytes) -> None:
        self._disk.before()
        self._disk.seen[name] = self._disk.durable[name] = data

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._disk.before()
            self._disk.deleted.append(name)
            self._disk.seen.pop(name, None)
            self._disk.durable.pop(name, None)

    def names(self, folder: str) -> list[str]:
        self._disk.before()
        found = (name.partition("/") for name in self._disk.seen)
        return sorted(name for where, _, name in found if where == folder)

    def local_path(self) -> Path | None:
        return None
