"""The table of the groups, from their statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spillway.dashboard.feed.news import Heat
from spillway.metrics.groups import GroupTable

_MB = 1 << 20


def heat_of(
    table: GroupTable, routing: Sequence[int], *, stage: int, batch: int, at_s: float
) -> Heat:
    """Returns the groups of all slots at one time; `routing` has the slot of each group.

    Example:
        >>> heat_of(GroupTable.empty(3), (0, 0, 1), stage=0, batch=7, at_s=1.5).slot
        [0, 0, 1]
    """
    groups = len(routing)
    if len(table) != groups:
        table = GroupTable.empty(groups, len(table.rows))
    produced = np.where(table.size > 0, table.produced / np.maximum(table.size, 1) * _MB, 0.0)
    return Heat(
        stage,
        batch,
        round(at_s, 3),
        list(routing),
        table.size.tolist(),
        table.disk_bytes.tolist(),
        _short(table.load),
        _short(produced),
    )


def _short(values: NDArray[np.float64]) -> list[float]:
    """Three significant digits are enough for a colour, and make messages short."""
    with np.errstate(divide="ignore"):
        digits = np.floor(np.log10(np.abs(values)))
    scale = 10.0 ** (2 - np.where(np.isfinite(digits), digits, 0.0))
    found: list[float] = (np.round(values * scale) / scale).tolist()
    return found
