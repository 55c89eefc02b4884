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
Positions = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


def dot_above(left: Floats, right: Floats, limit: float) -> Mask:
    """For each pair of rows, whether their scalar product is more than a limit.

    Example:
        >>> dot_above(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0], [0.5, 9.0]]), 0.5).tolist()
        [[True, False]]
    """
    one, other = _floats(left, right)
    above, mine, theirs = _sure(one, other, _rough(one), _rough(other), limit)
    if len(mine):
        above[mine, theirs] = dots(one, other, mine, theirs) > limit
    return above


def cosine_above(left: Floats, right: Floats, limit: float) -> Mask:
    """For each pair of rows, whether the cosine of their angle is more than a limit.

    A row of zeros has no angle, and is above no limit.

    Example:
        >>> cosine_above(np.array([[2.0, 0.0]]), np.array([[3.0, 0.1], [0.0, 0.0]]), 0.9).tolist()
        [[True, False]]
    """
    one, other = _floats(left, right)
    units, lengths = [], []
    with np.errstate(all="ignore"):
        for rows in (one, other):
            inverse = (1.0 / _rough(rows)).astype(rows.dtype)
            units.append(rows * inverse[:, None])
            # Rows of zeros, and of numbers that are too large or small to square, are never sure.
            lengths.append(np.where(np.isfinite(inverse) & (inverse > 0), 1.01, np.inf))
    above, mine, theirs = _sure(units[0], units[1], lengths[0], lengths[1], limit)
    if len(mine):
        sizes = np.sqrt(dots(one, one, mine, mine)), np.sqrt(dots(other, other, theirs, theirs))
        with np.errstate(all="ignore"):
            above[mine, theirs] = dots(one, other, mine, theirs) > limit * (sizes[0] * sizes[1])
    return above


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


def _sure(
    left: Floats, right: Floats, mine: Floats, theirs: Floats, limit: float
) -> tuple[Mask, Positions, Positions]:
    """Which products are above a limit, and the pairs for which a matrix product cannot tell.

    A sum of n products in any order is off by n units of rounding of the product of the lengths. So is
    the definition; with cosines, so are both lengths, which adds as much. A length that is not finite
    is that of a row for which nothing is sure.
    """
    kind, width = np.finfo(left.dtype), left.shape[1]
    finite = np.isfinite(mine), np.isfinite(theirs)
    longest = float(theirs[finite[1]].max(initial=0.0))
    off = 4.0 * (width + 16) * float(kind.eps) * longest
    slack = off * np.where(finite[0], mine, 0.0) + 4.0 * width * float(kind.tiny)
    with np.errstate(all="ignore"):
        product = left @ right.T
        high = np.nextafter((limit + slack).astype(left.dtype), left.dtype.type(np.inf))
        low = np.nextafter((limit - slack).astype(left.dtype), left.dtype.type(-np.inf))
        above = product > high[:, None]
        perhaps = product >= low[:, None]
    perhaps[~finite[0]] = True
    perhaps[:, ~finite[1]] = True
    above[~finite[0]] = False
    above[:, ~finite[1]] = False
    if np.count_nonzero(above) == np.count_nonzero(perhaps):
        return above, _NONE, _NONE
    return above, *np.divmod(np.flatnonzero(perhaps & ~above), perhaps.shape[1])


def _rough(rows: Floats) -> Floats:
    """The length of each row, at least; infinite where its square is too large."""
    width, kind = rows.shape[1], np.finfo(rows.dtype)
    if width * float(kind.eps) > 0.01:
        return np.full(len(rows), np.inf)
    with np.errstate(all="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows).astype(np.float64)
        # Squares of small numbers may vanish.
        found = np.sqrt(squares + 2.0 * width * float(kind.tiny))
    return np.where(np.isfinite(squares), found, np.inf)


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
