"""Arrays at an address, so that a kernel can read many runs, whose number is known only at run time.

numba compiles a function anew for every length of a tuple of arrays, and a list of arrays costs more to
pass than it takes to read. An address is a number, so a table of addresses is a plain array. Whoever
makes the table keeps the arrays alive during the call.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic, overload
from numba.np.numpy_support import as_dtype, carray
from numpy.typing import NDArray


def array_at(address: Any, length: Any, like: NDArray[Any]) -> NDArray[Any]:
    """Returns the array of `length` values at an address, of the type of `like`, without a copy."""
    size = int(length) * like.dtype.itemsize
    if size == 0:
        return np.empty(0, like.dtype)
    held: Any = (ctypes.c_char * size).from_address(int(address))
    return np.frombuffer(held, like.dtype)


def _to_pointer(_: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(address), generate


_pointer: Any = intrinsic(_to_pointer)


@overload(array_at)
def _array_at(address: Any, length: Any, like: Any) -> Any:  # noqa: ARG001  (numba needs the names)
    kind = as_dtype(like.dtype)

    def compiled(address: Any, length: Any, like: Any) -> Any:  # noqa: ARG001  (the same)
        return carray(_pointer(np.int64(address)), (length,), kind)

    return compiled
