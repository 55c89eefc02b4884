"""Simulated durable storage, behind the port of the durable tier.

    "disk"      a local filesystem: a write is visible at once and survives a process, but a loss of
                power keeps only what was synced; the rest is gone, torn or whole, and deleted files
                may be back
    "claims"    the same without hard links and exclusive renames: a name is claimed before its file is
                there, and for ever if the writer dies in between
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

    def before(self, call: str, name: str) -> None:
        """A call is made."""
        ...

    def after(self, call: str, name: str) -> None:
        """Its effect has happened; the answer is on its way."""
        ...


class OpenGate:
    """Lets everything pass: for those who only look."""

    def before(self, call: str, name: str) -> None:
        """Passes."""

    def after(self, call: str, name: str) -> None:
        """Passes."""


@dataclass
class Medium:
    """The files of one location, and what of them is safe."""

    mode: str
    files: dict[str, bytes] = field(default_factory=dict)
    #: What a loss of power leaves.
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
        """Removes a file; on a disk, a loss of power may bring it back."""
        self.files.pop(name, None)
        if self.mode == "objects":
            self.safe.pop(name, None)

    def lose_power(self, chance: Random) -> None:
        """Keeps what is safe; the rest is lost, torn or there."""
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
    """One client of a location; what it wrote is safe when it has synced."""

    def __init__(self, medium: Medium, gate: Gate, location: str, driver: int = -1) -> None:
        self.location = location
        self._medium = medium
        self._gate = gate
        self._driver = driver
        self._unsynced: list[str] = []

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """Writes a new file, visible and not yet safe."""
        self._gate.before("write", name)
        self._medium.put(name, bytes(data), safe=False)
        self._unsynced.append(name)
        self._gate.after("write", name)

    def sync(self) -> None:
        """Makes safe what was written through this object."""
        self._gate.before("sync", "")
        names, self._unsynced = self._unsynced, []
        self._medium.sync(names)
        self._gate.after("sync", "")

    def read(self, name: str) -> pa.Buffer | None:
        """Returns the bytes of a file, or None if it is missing."""
        self._gate.before("read", name)
        data = self._medium.files.get(name)
        return None if data is None else pa.py_buffer(data)

    def publish(self, name: str, data: bytes) -> bool:
        """Writes a whole, safe file; returns False if the name is taken."""
        self._gate.before("publish", name)
        if name in self._medium.files:
            return False
        if self._medium.mode == "claims":
            if name + CLAIM in self._medium.files:
                return False
            self._medium.put(name + CLAIM, b"", safe=True)
            self._gate.before("claimed", name)
        self._medium.put(name, data, safe=True)
        self._medium.published.append((name, self._driver))
        self._gate.after("publish", name)
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Writes a whole, safe file in the place of an older one."""
        self._gate.before("replace", name)
        self._medium.put(name, data, safe=True)
        self._gate.after("replace", name)

    def delete(self, names: Sequence[str]) -> None:
        """Removes files, each in a call of its own."""
        for name in names:
            self._gate.before("delete", name)
            self._medium.remove(name)
            self._gate.after("delete", name)

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, sorted."""
        self._gate.before("names", folder)
        start = f"{folder}/"
        return sorted(n[len(start) :] for n in self._medium.files if n.startswith(start))

    def local_path(self) -> Path | None:
        """Returns a directory if the storage is local; nobody opens it."""
        return None if self._medium.mode == "objects" else Path("simulated")


def checkpoint_on(medium: Medium) -> Checkpoint:
    """A checkpoint as somebody sees it who only looks."""
    client = SimulatedStore(medium, OpenGate(), "simulated://looked-at")
    return Checkpoint(client.location, durable=client)
