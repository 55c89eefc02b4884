"""Compiles the kernels, and finds a directory for their compiled code.

`kernel` is the only place where Spillway calls numba's compiler. Compiled code is in the user's cache
directory, in a folder for the sources of the kernels and the versions of Python and numba; numba keeps
code for each processor apart. NUMBA_CACHE_DIR names another place. If the home cannot be written to,
numba looks for a place next to the sources, and in a locked-down container the cache is a private
temporary directory. If there is none, every process compiles for itself.

Processes that need the same kernel at the same time compile it once: the others wait for its file
(kernels/once.py). kernels/warming.py compiles before the first batch.

Invariant: a process loads only code that was compiled for the types it asks for, and only from
directories that no other user can write to. numba numbers the files of a kernel by its index, so two
processes that compile at the same time can write different code under one name. Here every saved file
has a unique name. The later index wins; a process compiles code again that the index does not name.

A cache that is full, damaged or gone costs time; it never fails a kernel.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from spillway.kernels.once import Once

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


def is_cached(compiled: Any, types: tuple[Any, ...]) -> bool:
    """Whether a process has compiled a kernel for some types."""
    cache = getattr(compiled, "_cache", None)
    return isinstance(cache, _Cache) and cache.has(types, compiled.targetctx)


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


class _UserFolder(_CacheLocator):
    """A folder in the user's cache directory, for kernels of this version of the sources."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """The same for all installations of one version: the folder tells versions apart."""
        return self._folder.name

    def get_disambiguator(self) -> str:
        """The module, since files are named by function."""
        return self._name

    @classmethod
    def from_function(cls, _: Any, file: str) -> _UserFolder | None:
        """The folder, for a kernel of this package; None: numba looks for another place."""
        config: Any = numba.config
        if Path(file).parent != _HERE or config.CACHE_DIR:
            return None
        folder = user_directory(user_caches(), _version())
        return None if folder is None else cls(folder, Path(file).stem)


class _Places(CompileResultCacheImpl):
    _locator_classes = [_UserFolder, *CompileResultCacheImpl._locator_classes]  # noqa: RUF012 - as numba has it


_HERE = Path(__file__).parent


def user_caches() -> Path:
    """Where programs keep what they can make again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def user_directory(caches: Path, version: str) -> Path | None:
    """The folder of a version in the user's cache directory; None if others could write to it."""
    top = caches / "spillway"
    found = top / version
    try:
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = [os.lstat(path) for path in (top, found)]
        own = all(stat.S_ISDIR(one.st_mode) and one.st_uid == os.getuid() for one in facts)
        if not own or any(one.st_mode & 0o022 for one in facts):
            return None
        with tempfile.TemporaryFile(dir=found):
            return found
    except (OSError, RuntimeError):
        return None


@lru_cache(maxsize=1)
def _version() -> str:
    """Changes with the source of any kernel, because kernels contain the code of others."""
    sources = sorted(_HERE.glob("*.py"))
    known = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    python = f"py{sys.version_info[0]}{sys.version_info[1]}"
    return f"kernels-{python}-numba{numba.__version__}-{known[:16]}"


class _Cache(FunctionCache):
    """numba's cache of one function, for processes that compile at the same time."""

    _impl_class = _Places

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._once = Once(Path(self._cache_path) / f"{self._impl.filename_base}.lock")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code for these types, or None: then this process compiles."""
        return self._once.found(lambda: self._load(sig, target_context))

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except _UNREADABLE:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Saves compiled code under a new name."""
        with self._once.made():
            self._save(sig, data)

    def has(self, types: tuple[Any, ...], target_context: Any) -> bool:
        """Whether there is code for these types."""
        try:
            known = self._cache_file._load_index()
            return self._index_key(types, target_context.codegen()) in known
        except _UNREADABLE:
            return False

    def _save(self, sig: Any, data: Any) -> None:
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
