"""Gives a written file its name, only if the name is free: three ways, the safest first.

    link      a hard link; most local filesystems
    rename    an exclusive rename (Linux renameat2 with RENAME_NOREPLACE); exFAT, VFAT, some of FUSE
    claim     exclusive creation of a second file, then a rename; what every filesystem has

All three show the whole file or nothing. After a crash, the third leaves a claim without a file, and
nobody can publish the name any more. Its owner may still rename, however late.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from functools import lru_cache

#: Answers of filesystems that do not have an operation. A container may forbid the system call too.
_LACKING = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EMLINK, errno.EOPNOTSUPP)
#: What the name of a claim has more than the name that it claims.
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

    The claim stays: another process may have seen that there was no file, and come for it now.
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


#: In this order; each may find that the filesystem lacks it.
WAYS: tuple[Callable[[str, str], bool], ...] = (link, rename, claim)


def give_name(partial: str, target: str) -> bool:
    """Gives a synced file its name if that is free; the partial name is gone afterwards."""
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
