"""Filesystems that are only in memory.

What a crash of the machine empties cannot come back changed, and no disk can change it. The kernel
lists the device and type of every mount; a device that it does not list counts as a disk.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_TYPES = frozenset({"tmpfs", "ramfs"})
_MOUNTS = Path("/proc/self/mountinfo")


def is_volatile(path: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether a directory is only in memory; False if that is unknown."""
    try:
        return _is_volatile(path.stat().st_dev, mounts)
    except OSError:
        return False


@lru_cache(maxsize=64)
def _is_volatile(device: int, mounts: Path) -> bool:
    wanted = f"{os.major(device)}:{os.minor(device)}"
    found = {
        fields[fields.index("-") + 1]
        for line in mounts.read_text(errors="replace").splitlines()
        if len(fields := line.split()) > 2 and fields[2] == wanted and "-" in fields[6:-1]
    }
    return bool(found) and found <= _TYPES
