"""Compiles the kernels, and finds a directory for their compiled code.

`kernel` is the only place where Spillway calls numba's compiler. numba caches compiled code next to the
source or in the user's cache directory. If it can write to neither, as in a locked-down container, the
cache is a private temporary directory. If there is none, every process compiles for itself.

Invariant: a process loads only code that was compiled for the types it asks for, and only from
directories that no other user can write to. numba numbers the files of a kernel by its index, so two
processes that compile at the same time can write different code under one name. Here every saved file
has a unique name. The later index wins; a process compiles code again that the index does not name.

A cache that is full, damaged or gone costs time; it never fails a kernel.
"""

from __future__ import annotations

import os
import pickle
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

#: What reading a cache file of another version, or one that a crash has torn, can raise.
_UNREADABLE = (
    *(OSError, EOFError, pickle.UnpicklingError, ValueError, LookupError, ImportError),
    *(AttributeError, TypeError),
)


def kernel(function: Kernel) -> Kernel:
    """Compiles a function of arrays on its first call; uses cached code if there is any."""
    compiled: Any = numba.njit(nogil=True)(function)
    # With NUMBA_DISABLE_JIT=1 it is the plain function.
    if compiled is not function and (cache := _cache_of(function)) is not None:
        compiled._cache = cache
    return cast("Kernel", compiled)


def cache_directory() -> str | None:
    """Where the compiled code of kernels is kept; None: nowhere, so each process compiles again."""
    cache = _cache_of(_probe)
    return None if cache is None else str(cache.cache_path)


def private_directory(parent: Path) -> Path | None:
    """A directory that only this user can use; None if `parent` allows none.

    The name is the same in every process, so that workers share compiled code. A directory of another
    user with that name is not used: its owner could put code into it.
    """
    found = parent / f"spillway-kernels-{os.getuid()}"
    with suppress(OSError):
        found.mkdir(mode=0o700)
    try:
        facts = os.lstat(found)
        private = stat.S_ISDIR(facts.st_mode) and not facts.st_mode & 0o077
        if not private or facts.st_uid != os.getuid():
            return None
        with tempfile.TemporaryFile(dir=found):
            return found
    except OSError:
        return None


class _Cache(FunctionCache):
    """numba's cache of one function, for processes that compile at the same time."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code for these types, or None."""
        try:
            return super().load_overload(sig, target_context)
        except _UNREADABLE:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Saves compiled code under a new name."""
        # Chosen here, not at import: workers that Spark forks share what was imported before.
        files = self._cache_file
        files._data_name_pattern = f"{self._impl.filename_base}.{uuid.uuid4().hex}.{{number:d}}.nbc"
        try:
            super().save_overload(sig, data)
        except OSError:
            self.disable()
        except _UNREADABLE:
            # The index is damaged: the next process writes a new one.
            with suppress(OSError):
                self.flush()


def _cache_of(function: Callable[..., Any]) -> _Cache | None:
    try:
        return _Cache(function)
    except (RuntimeError, OSError):
        # numba found no directory that it can write to.
        pass
    try:
        parent = Path(tempfile.gettempdir())
    except OSError:
        return None
    if (private := private_directory(parent)) is None:
        return None
    with _caching_in(private), suppress(RuntimeError, OSError):
        return _Cache(function)
    return None


@contextmanager
def _caching_in(directory: Path) -> Iterator[None]:
    """Puts caches made in the block into `directory`; kernels of other packages keep theirs."""
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(directory)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def _probe() -> None:
    """A function of this package, to ask where numba keeps its code."""
