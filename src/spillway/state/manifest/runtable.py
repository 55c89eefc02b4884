"""The run table of a manifest file: it stores each run once, and slices refer to it by number.

A run has many slices, and its description is longer than a slice. So a file stores the table of
runs next to the manifest, and each slice as [number of its run, lo, hi].
"""

from __future__ import annotations

from collections.abc import Sequence

from spillway.codec import store_within
from spillway.routing.routing import HashRange
from spillway.state.runs.run import Run, Slice


class RunTable:
    """Runs in the order in which slices first name them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.runs: list[Run] = []

    def number_of(self, run: Run) -> int:
        """Returns the number of a run; adds the run if it is new."""
        number = self._numbers.setdefault(run.name, len(self.runs))
        if number == len(self.runs):
            self.runs.append(run)
        return number


def _written(piece: Slice, table: RunTable) -> tuple[int, int, int]:
    return table.number_of(piece.run), piece.range.lo, piece.range.hi


def _read(found: tuple[int, int, int], runs: Sequence[Run]) -> Slice:
    number, lo, hi = found
    return Slice(runs[number], HashRange(lo, hi))


store_within(Slice, tuple[int, int, int], _written, _read)
