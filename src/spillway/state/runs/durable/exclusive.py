"""Gives a written file its name if the name is free, in one of three ways, the safest first.

    link      a hard link; most local filesystems
    rename    an exclusive rename (Linux renameat2 with RENAME_NOREPLACE); exFAT, VFAT, some of FUSE
    claim     exclusive creation of a second file, then a rename; works on every filesystem

Readers see the whole file or nothing. A crash in the third way leaves a claim without a file. Then no
other process can publish the name, but the owner of the claim may still rename, at any later time.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from functools import lru_cache

#: Errors of filesystems that lack an operation, or of containers that forbid the system call.
_LACKING = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EMLINK, errno.EOPNOTSUPP)
#: The suffix of a claim: its name is the claimed name plus this.
CLAIM = ".claim"
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


class Lacking(Exception):
    """The filesystem does not have the operation."""


def link(partial: str, target: str) -> bool:
    """Gives the file its name by a hard link; False if the name is taken."""
    try:
        os.link(partial, target)
    except FileExistsError:
        os.unlink(partial)
        return False
    except OSError as problem:
        raise _lacking(problem) from problem
    os.unlink(partial)
    return True


def rename(partial: str, target: str) -> bool:
    """Gives the file its name by an exclusive rename; False if the name is taken."""
    call = _renameat2()
    if call is None:
        raise Lacking
    ctypes.set_errno(0)
    done = call(_AT_FDCWD, os.fsencode(partial), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE)
    if done == 0:
        return True
    problem = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)
    if problem.errno == errno.EEXIST:
        os.unlink(partial)
        return False
    raise _lacking(problem)


def claim(partial: str, target: str) -> bool:
    """Creates the claim exclusively, then renames the file; False if the name is taken.

    The claim stays: another process may have seen no file, and may try to claim the name now.
    """
    try:
        os.close(
            os.open(target + CLAIM, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        )
    except FileExistsError:
        os.unlink(partial)
        return False
    os.replace(partial, target)
    return True


#: The ways, in order; give_name skips one that the filesystem lacks.
WAYS: tuple[Callable[[str, str], bool], ...] = (link, rename, claim)


def give_name(partial: str, target: str) -> bool:
    """Gives a synced file its name if that is free; removes the partial name."""
    for way in WAYS:
        try:
            return way(partial, target)
        except Lacking:
            continue
    raise AssertionError("the last way exists everywhere")


def _lacking(problem: OSError) -> BaseException:
    return Lacking() if problem.errno in _LACKING else problem


@lru_cache(maxsize=1)
def _renameat2() -> Callable[..., int] | None:
    try:
        return ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
