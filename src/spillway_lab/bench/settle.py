"""Touches the machine's free memory once, before any measurement.

    python -m spillway_lab.bench.settle [SHARE]

On a virtual machine the first touch of a page costs ten times as much as later ones, because the host
allocates it. Without this step the first engine would pay. A separate process does it and frees the
memory at its end.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

#: Fraction of the free memory; the rest is for other processes.
SHARE = 0.6
_CHUNK_BYTES = 1 << 28
_PAGE_BYTES = 4096


def free_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Available memory: the machine's, or the container's if that is less."""
    try:
        facts = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit, used = ((cgroup / f"memory.{what}").read_text() for what in ("max", "current"))
        return min(free, max(0, int(limit) - int(used)))
    except (OSError, ValueError):
        return free


def touch(amount_bytes: int) -> int:
    """Writes one byte to each page of this much new memory; returns the number of bytes."""
    held: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
    while len(held) * _CHUNK_BYTES < amount_bytes:
        chunk = np.empty(_CHUNK_BYTES, np.uint8)
        chunk[::_PAGE_BYTES] = 1
        held.append(chunk)
    return len(held) * _CHUNK_BYTES


if __name__ == "__main__":
    share = float(sys.argv[1]) if len(sys.argv) > 1 else SHARE
    print(touch(int((free_bytes() or 0) * share)))
