"""How much memory is free for state on this host, and which limit says so.

Several limits hold at the same time: each control group above this process (version 1 and 2), the
memory of the machine, and the size of the directory of the memory tier. `free_memory` reads
all of them; the smallest counts. Files that the kernel can drop from its cache count as free, as in
`MemAvailable`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Version 1 writes a number near 2^63 for "no limit".
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Free:
    """Bytes that are free by one limit."""

    bytes: int
    #: What sets the limit.
    source: str


def free_memory(directory: Path, root: Path = Path("/")) -> tuple[Free, ...]:
    """The free bytes by each limit; `directory` has the memory tier, `root` has /proc and /sys."""
    found = [*_groups(root), *_machine(root), *_room(directory)]
    return tuple(Free(max(0, one.bytes), one.source) for one in found)


def _machine(root: Path) -> Iterator[Free]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield Free(int(line.split()[1]) << 10, "the memory of the machine")


def _room(directory: Path) -> Iterator[Free]:
    """The free space at the directory, or where it will be."""
    for place in (directory, *directory.parents):
        try:
            facts = os.statvfs(place)
        except OSError:
            continue
        yield Free(facts.f_bavail * facts.f_frsize, f"the size of {place}")
        return


def _groups(root: Path) -> Iterator[Free]:
    """The limits of the control group of this process and of all groups above it."""
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if number == "0" and not kinds:
            names = ("memory.max", "memory.current", "inactive_file")
            yield from _levels(root / "sys/fs/cgroup", path, names)
        elif "memory" in kinds.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _levels(root / "sys/fs/cgroup/memory", path, names)


def _levels(top: Path, path: str, names: tuple[str, str, str]) -> Iterator[Free]:
    # A container may see its own group as the top, under a path that only the host has.
    below = top / path.strip("/")
    for place in (below, *below.parents):
        if place == top or top in place.parents:
            yield from _level(place, *names)


def _level(place: Path, limit_name: str, used_name: str, cached_name: str) -> Iterator[Free]:
    limit, used = _number(place / limit_name), _number(place / used_name)
    if limit is None or used is None or limit >= _NO_LIMIT:
        return
    cached = 0
    for line in _lines(place / "memory.stat"):
        name, _, value = line.partition(" ")
        cached = int(value) if name == cached_name else cached
    yield Free(limit - used + min(cached, used), "the memory limit of the container")


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
