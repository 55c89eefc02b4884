"""Simulated durable storage, behind the port of the durable tier.

    "disk"      a local filesystem: a write is visible at once and survives its process. A power loss
                keeps synced files; others may disappear or lose their end, and deleted files may return
    "claims"    the same without hard links and exclusive renames: a writer claims a name before it
                writes the file. If it dies in between, the name stays claimed forever
    "objects"   an object store: a write is durable at once, and only a conditional put excludes others

Every call passes the gate (`chaos/gate.py`) before and after its effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

import pyarrow as pa

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.state.manifest.manifest import Manifest
from spillway.state.runs.durable.exclusive import CLAIM


class Gate(Protocol):
    """Sees every call to the store, and may raise."""

    def before(self, call: str) -> None:
        """Called before the effect."""
        ...

    def after(self, call: str) -> None:
        """Called after the effect, before the caller gets its answer."""
        ...


class OpenGate:
    """Lets every call pass; for readers."""

    def before(self, call: str) -> None:
        """Passes."""

    def after(self, call: str) -> None:
        """Passes."""


@dataclass
class Medium:
    """The files of one location, and which of them are safe."""

    mode: str
    files: dict[str, bytes] = field(default_factory=dict)
    #: What a power loss leaves.
    safe: dict[str, bytes] = field(default_factory=dict)
    #: All publications that succeeded: the name, and the number of the driver.
    published: list[tuple[str, int]] = field(default_factory=list)
    #: Files that a checker has compared and manifests that it has read, with the bytes they had then.
    intact: dict[str, bytes] = field(default_factory=dict)
    decoded: dict[str, tuple[bytes, Manifest]] = field(default_factory=dict)

    def put(self, name: str, data: bytes, *, safe: bool) -> None:
        """Writes a file."""
        self.files[name] = data
        if safe or self.mode == "objects":
            self.safe[name] = data

    def sync(self, names: Sequence[str]) -> None:
        """Makes files safe."""
        for name in names:
            if name in self.files:
                self.safe[name] = self.files[name]

    def remove(self, name: str) -> None:
        """Removes a file; on a disk, a power loss may bring it back."""
        self.files.pop(name, None)
        if self.mode == "objects":
            self.safe.pop(name, None)

    def lose_power(self, chance: Random) -> None:
        """Keeps safe files; any other may disappear, lose its end or stay."""
        found = {n: d for n, d in self.safe.items() if n in self.files or chance.random() < 0.5}
        for name in sorted(self.files):
            if name not in self.safe:
                fate = chance.randrange(4)
                data = self.files[name]
                if fate == 0:
                    found[name] = data
                elif fate == 1:
                    found[name] = data[: chance.randrange(len(data) + 1)]
        self.files, self.safe = found, dict(found)


class SimulatedStore:
    """One client of a location; its writes are safe after it has synced."""

    def __init__(self, medium: Medium, gate: Gate, location: str, driver: int = -1) -> None:
        self.location = location
        self._medium = medium
        self._gate = gate
        self._driver = driver
        self._unsynced: list[str] = []

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """Writes a new file, visible and not yet safe."""
        self._gate.before("write")
        self._medium.put(name, bytes(data), safe=False)
        self._unsynced.append(name)
        self._gate.after("write")

    def sync(self) -> None:
        """Makes the writes of this client safe."""
        self._gate.before("sync")
        names, self._unsynced = self._unsynced, []
        self._medium.sync(names)
        self._gate.after("sync")

    def read(self, name: str) -> pa.Buffer | None:
        """Returns the bytes of a file, or None if it is missing."""
        self._gate.before("read")
        data = self._medium.files.get(name)
        return None if data is None else pa.py_buffer(data)

    def publish(self, name: str, data: bytes) -> bool:
        """Writes a whole, safe file; returns False if the name is taken."""
        self._gate.before("publish")
        if name in self._medium.files:
            return False
        if self._medium.mode == "claims":
            if name + CLAIM in self._medium.files:
                return False
            self._medium.put(name + CLAIM, b"", safe=True)
            self._gate.before("claimed")
        self._medium.put(name, data, safe=True)
        self._medium.published.append((name, self._driver))
        self._gate.after("publish")
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Replaces a file by a whole, safe one."""
        self._gate.before("replace")
        self._medium.put(name, data, safe=True)
        self._gate.after("replace")

    def delete(self, names: Sequence[str]) -> None:
        """Removes files, one call each."""
        for name in names:
            self._gate.before("delete")
            self._medium.remove(name)
            self._gate.after("delete")

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, sorted."""
        self._gate.before("names")
        start = f"{folder}/"
        return sorted(n[len(start) :] for n in self._medium.files if n.startswith(start))

    def local_path(self) -> Path | None:
        """Returns a directory if the storage is local; no code opens it."""
        return None if self._medium.mode == "objects" else Path("simulated")


def checkpoint_on(medium: Medium) -> Checkpoint:
    """A read-only checkpoint."""
    client = SimulatedStore(medium, OpenGate(), "simulated://looked-at")
    return Checkpoint(client.location, durable=client)
