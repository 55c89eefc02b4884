"""Compiles the kernels of joins before the first batch needs them.

    python -m spillway.kernels.warming

A kernel is compiled for the types of its arguments at its first call. `SIGNATURES` lists the types with
which joins, joins on predicates and group-bys of numbers call their kernels, in the order in which a
first batch meets them. A session starts a process that compiles what is not cached yet, while Java
starts (`start`). Workers that need a kernel which is being compiled wait for it (kernels/once.py). The
daemon that forks workers loads what there is (`load`), so that all of them have it at once.

Known limitation: the list is written by hand. A kernel or type that is not in it compiles at its first
call; tests/spark/test_warm_kernels.py fails if a common query meets one.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import numba
from numba.core import types
from numba.core.registry import CPUDispatcher

from spillway.kernels.compiler import cache_directory, is_cached

Types = tuple[Any, ...]

_KIND = {
    "u1": types.uint8, "i2": types.int16, "i4": types.int32, "i8": types.int64,
    "u4": types.uint32, "u8": types.uint64, "f8": types.float64, "b1": types.boolean,
}  # fmt: skip
_INDEX = "(i4[] u8[] i8 i8)"
_WANTED = "(i4[] i8[] i8[] {times} i8[] i8[] {marks} i8)"
_HASHES = tuple(f"{a} {b}" for a in ("u4[]", "u4{}") for b in ("u4[]", "u4{}"))
_WORDS = tuple(f"{a} i4[] {b} i4[] i8" for a in ("i8[]", "i8{}") for b in ("i8[]", "i8{}"))
_LIMITS = [_WANTED.format(times=a, marks=b) for a in ("i8[]", "i8{}") for b in ("i4[]", "i4{}")]
#: The types of arguments by kernel: `i4` is a number, `i4[]` an array, `i4{}` a read-only array,
#: `i4[,]` a table.
SIGNATURES: Mapping[str, tuple[str, ...]] = {
    "order.order_by_stream_and_hash": ("i2[] u4[] i8",),
    "checksum._mix": ("u8{} u1{} i8", "u8[] u1[] i8"),
    "order.bucket_index": ("u4[] i8 i8", "u4{} i8 i8"),
    "many.match_many": ("u4[] i8[,] i8 i4[,]", "u4{} i8[,] i8 i4[,]"),
    "many.gather_words": ("i8[] i8 i4[] i4[]",),
    "many.gather_bytes": ("i8[] i8[] i4[] i4[]",),
    "many.equal_bytes": (
        "(i4[] u1[] i4[]) i8[] i8[] i4[] i4[]",
        "(i4{} u1{} i4[]) i8[] i8[] i4[] i4[]",
    ),
    "probe.match_ranges": tuple(f"{some} {_INDEX} i8 i8" for some in _HASHES),
    "probe.expand": ("i4[] i4[] i4[] i8 i8 i8",),
    "equality._equal_words": _WORDS,
    "probe.expand_within": tuple(f"(i8[] i8[] i8[]) {some} i8 i8 i8" for some in _LIMITS),
    "probe.narrowed": ("f8[] i8[] i8[] f8[] f8[]",),
    "probe.count_groups": ("u4[] i8[] i8[]", "u4{} i8[] i8[]"),
    "grouping._begins": ("u4[] i4[]", "u4{} i4[]"),
    "grouping._order_by_group": ("i4[] i8",),
    "reduce.count_valid": ("b1[] i4[] i8[]",),
    "reduce.sum_ints": ("i8[] b1[] i4[] i8[]", "i8{} b1[] i4[] i8[]"),
    "reduce.sum_floats": ("f8[] b1[] i4[] i8[]", "f8{} b1[] i4[] i8[]"),
    "reduce.least": ("i8[] b1[] i4[] i8[]", "i8{} b1[] i4[] i8[]"),
    "tiling.cut_tiles": ("i8[] i8[] i8 i8 i8",),
    "probe.match_sorted": tuple(f"{some} i8 i8" for some in _HASHES),
    "order.order_by_hash": ("u4[]", "u4{}"),
    "equality._equal_bytes": (
        "i4[] u1[] i4[] i4{} u1{} i4[]",
        "i4[] u1[] i4[] i4[] u1[] i4[]",
    ),
}
_running: list[subprocess.Popen[bytes]] = []


def kernels() -> Iterator[tuple[str, Any, Types]]:
    """The kernels with the types of their arguments; none if the JIT is off."""
    # First every kernel once: a first batch needs most of them, with one kind of arrays.
    for at in range(max(map(len, SIGNATURES.values()))):
        for name, some in SIGNATURES.items():
            module, _, function = name.partition(".")
            found = getattr(import_module(f"spillway.kernels.{module}"), function)
            if at < len(some) and isinstance(found, CPUDispatcher):
                yield name, found, read(some[at])


def read(text: str) -> Types:
    """The types that a text lists.

    Example:
        >>> read("i4 (u4[] i8)")
        (int32, Tuple((Array(uint32, 1, 'C', False, aligned=True), int64)))
    """
    stack: list[list[Any]] = [[]]
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            stack.append([])
        elif word == ")":
            inner = stack.pop()
            stack[-1].append(_tuple(inner))
        else:
            stack[-1].append(_type(word))
    return tuple(stack[0])


def _tuple(inner: list[Any]) -> Any:
    kind: Any = types.BaseTuple
    return kind.from_types(inner)


def _type(word: str) -> Any:
    kind = _KIND[word[:2]]
    if word.endswith("[,]"):
        return types.Array(kind, 2, "C")
    if word.endswith(("[]", "{}")):
        return types.Array(kind, 1, "C", readonly=word.endswith("{}"))
    return kind


def warm() -> Iterator[tuple[str, float]]:
    """Compiles every kernel that is not cached; yields its name and the seconds."""
    for name, compiled, some in kernels():
        if not is_cached(compiled, some):
            since = time.perf_counter()
            compiled.compile(some)
            yield name, time.perf_counter() - since


def load() -> None:
    """Loads every kernel that is cached, so that processes forked from this one have it."""
    for _, compiled, some in kernels():
        if is_cached(compiled, some):
            compiled.compile(some)


def start() -> None:
    """Starts a process that compiles what is not cached, once per process; never fails."""
    if _running or not _can_compile() or cache_directory() is None:
        return
    if all(is_cached(compiled, some) for _, compiled, some in kernels()):
        return
    with suppress(OSError):
        _running.append(
            subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C is for the query.
                start_new_session=True,
            )
        )
        atexit.register(_stop)


def _can_compile() -> bool:
    config: Any = numba.config
    return not config.DISABLE_JIT


def _stop() -> None:
    for one in _running:
        one.terminate()
        one.wait()


if __name__ == "__main__":
    for _ in warm():
        pass
