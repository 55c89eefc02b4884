"""The runs of a manifest in a file: each of them once, and slices that name them by number.

A run is cut into many slices, and a run's description is longer than a slice. So a manifest is stored
next to the table of its runs, and a slice as [number of its run, lo, hi].
"""

from __future__ import annotations

from collections.abc import Sequence

from spillway.codec import stored_within
from spillway.routing.routing import HashRange
from spillway.state.runs.run import Run, Slice


class RunTable:
    """Runs in the order in which slices named them first."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.runs: list[Run] = []

    def number_of(self, run: Run) -> int:
        """The number of a run, which is added if it is new."""
        number = self._numbers.setdefault(run.name, len(self.runs))
        if number == len(self.runs):
            self.runs.append(run)
        return number


def _written(piece: Slice, table: RunTable) -> tuple[int, int, int]:
    return table.number_of(piece.run), piece.range.lo, piece.range.hi


def _read(found: tuple[int, int, int], runs: Sequence[Run]) -> Slice:
    number, lo, hi = found
    return Slice(runs[number], HashRange(lo, hi))


stored_within(Slice, tuple[int, int, int], _written, _read)
