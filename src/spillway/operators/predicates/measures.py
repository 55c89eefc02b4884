"""Measures for tiles: which rows of two matrices are similar, exactly.

A matrix product rounds differently for matrices of another shape, and the shape of a tile depends on
which rows are where. So `a @ b.T > limit` may answer differently for the same two rows after a restart,
if their product is the limit up to rounding. The functions here answer for two rows what those two rows
say: the definition is a sum from left to right in double precision. A matrix product decides wherever
its error cannot matter, and only the few pairs near the limit are added up.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.errors import PlanError
from spillway.kernels.measures import dots, near_bytes, near_numbers

Mask = NDArray[np.bool_]
Floats = NDArray[Any]


def dot_above(left: Floats, right: Floats, limit: float) -> Mask:
    """For each pair of rows, whether their scalar product is more than a limit.

    Example:
        >>> dot_above(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0], [0.5, 9.0]]), 0.5).tolist()
        [[True, False]]
    """
    one, other = _floats(left, right)
    return _above(one, other, one, other, limit, None)


def cosine_above(left: Floats, right: Floats, limit: float) -> Mask:
    """For each pair of rows, whether the cosine of their angle is more than a limit.

    A row of zeros has no angle, and is above no limit.

    Example:
        >>> cosine_above(np.array([[2.0, 0.0]]), np.array([[3.0, 0.1], [0.0, 0.0]]), 0.9).tolist()
        [[True, False]]
    """
    one, other = _floats(left, right)
    sizes = _size(one), _size(other)
    with np.errstate(all="ignore"):
        units = [
            (rows / size[:, None]).astype(rows.dtype)
            for rows, size in zip((one, other), sizes, strict=True)
        ]
    return _above(*units, one, other, limit, sizes)


def nearer(left: NDArray[Any], right: NDArray[Any], limit: float) -> Mask:
    """For each pair of rows, whether the mean difference of their values is less than a limit.

    For bytes, such as the pixels of images, sums of parts exclude most pairs that differ in brightness.

    Example:
        >>> nearer(np.array([[0, 9]], np.uint8), np.array([[4, 3], [0, 8]], np.uint8), 5.0).tolist()
        [[False, True]]
    """
    _check(left, right)
    width = left.shape[1]
    if not width:
        return np.zeros((len(left), len(right)), np.bool_)
    one, other = np.ascontiguousarray(left), np.ascontiguousarray(right)
    if one.dtype != np.uint8 or other.dtype != np.uint8:
        return np.asarray(near_numbers(*_floats(left, right), float(limit)))
    if not limit > 0:
        return np.zeros((len(one), len(other)), np.bool_)
    # The least whole sum whose mean is not below the limit.
    most = math.ceil(min(limit * width, 255.0 * width + 1))
    while most and (most - 1) / width >= limit:
        most -= 1
    while most / width < limit and most <= 255 * width:
        most += 1
    return np.asarray(near_bytes(one, other, most))


def _above(
    left: Floats,
    right: Floats,
    one: Floats,
    other: Floats,
    limit: float,
    sizes: tuple[Floats, Floats] | None,
) -> Mask:
    """Which products of `left` and `right` are above a limit; near it, `one` and `other` decide."""
    sides = _size(left), _size(right)
    finite = [np.isfinite(side) for side in sides]
    largest = float(sides[1][finite[1]].max(initial=0.0))
    kind = np.finfo(left.dtype)
    # A sum of n products in any order is off by n units of rounding of the product of the lengths; the
    # definition itself is, too, and dividing by the length adds a few units.
    off = 2.0 * (left.shape[1] + 16) * float(kind.eps) * largest
    slack = off * np.where(finite[0], sides[0], 0.0) + left.shape[1] * float(kind.tiny) * 4
    with np.errstate(all="ignore"):
        product = left @ right.T
        high = np.nextafter((limit + slack).astype(left.dtype), left.dtype.type(np.inf))
        low = np.nextafter((limit - slack).astype(left.dtype), left.dtype.type(-np.inf))
        above = product > high[:, None]
        unsure = ~(above | (product < low[:, None]))
    for side, some in zip((unsure, unsure.T), finite, strict=True):
        side[~some] = True
    mine, theirs = np.divmod(np.flatnonzero(unsure), len(right) or 1)
    if len(mine):
        exact = dots(one, other, mine, theirs)
        size = 1.0 if sizes is None else sizes[0][mine] * sizes[1][theirs]
        with np.errstate(all="ignore"):
            above[mine, theirs] = exact > limit * size
    return np.asarray(above)


def _size(rows: Floats) -> Floats:
    """The length of each row, added up from left to right."""
    at = np.arange(len(rows))
    return np.asarray(np.sqrt(dots(rows, rows, at, at)))


def _floats(left: NDArray[Any], right: NDArray[Any]) -> tuple[Floats, Floats]:
    """Both in single precision if both are, else in double precision."""
    _check(left, right)
    kind = np.float32 if left.dtype == right.dtype == np.float32 else np.float64
    return np.ascontiguousarray(left, kind), np.ascontiguousarray(right, kind)


def _check(left: NDArray[Any], right: NDArray[Any]) -> None:
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
        raise PlanError(
            f"matrices of shapes {left.shape} and {right.shape} have no rows of equal length",
            hint='pass two matrices with as many columns: a.matrix("v") and b.matrix("v")',
        )
