"""Directories that belong to this user alone.

Local tiers are in places where others may write, such as shared memory. A user who can change a file
there can change results. So a tier accepts only a directory with mode 0700 that belongs to this user
and is not a link.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from spillway.errors import StateError

_MODE = 0o700


def make_private(path: Path) -> None:
    """Creates a directory, with its parents, that only this user can enter; rejects any other."""
    _make(path)
    check_private(path)


def _make(path: Path) -> None:
    if not os.path.lexists(path):
        _make(path.parent)
        with suppress(FileExistsError):
            path.mkdir(mode=_MODE)


def check_private(path: Path) -> None:
    """Rejects a directory in which another user may write."""
    problem = _problem(path)
    if problem is not None:
        raise StateError(
            f"the directory {path} is not safe for the state of a query",
            detail=problem,
            hint="remove it, or choose a directory of your own with "
            ".adapt(memory_dir=..., disk_dir=...)",
        )
    if stat.S_IMODE(path.stat().st_mode) != _MODE:
        path.chmod(_MODE)


def is_usable(path: Path) -> bool:
    """Whether a directory is private, or can become so because it does not exist."""
    return not os.path.lexists(path) or _problem(path) is None


def _problem(path: Path) -> str | None:
    """Says who else may write; None: nobody."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        return "it is not a directory" if not stat.S_ISLNK(found.st_mode) else "it is a link"
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid}, not to user {os.geteuid()}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users may write to it: its mode is {stat.S_IMODE(found.st_mode):04o}"
    return None
