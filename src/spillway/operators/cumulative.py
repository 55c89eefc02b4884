"""The base of operators on one stream whose results need all earlier rows.

Group-by and dedup are *cumulative*: a result needs everything that came before. The slot processes
a batch when all its rows are there (state/slot/staging.py). While a group has a part on disk, the
slot only keeps its new rows, as a younger part. Their results wait until the parts meet. So, among
the parts of a group,

    the oldest part has its results, and all younger parts still wait for theirs,

and no result is ever wrong, only late.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from spillway.operators.input import empty_rows
from spillway.operators.operator import Results
from spillway.operators.stats import OperatorStats
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment, sorted_whole
from spillway.state.runs.run import RunData


class Cumulative(ABC):
    """An operator on one stream whose results need all earlier rows."""

    @property
    @abstractmethod
    def layouts(self) -> tuple[StreamLayout, ...]:
        """What the state needs to know about the stream, and how its rows combine."""

    @property
    @abstractmethod
    def untracked(self) -> str:
        """Why groups cannot move by a parallel track; "" if they can."""

    @abstractmethod
    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """Returns the sorted rows of a piece of a batch in their stored form."""

    @abstractmethod
    def results(self, old: Sequence[Segment], delta: RunData, stats: OperatorStats) -> Results:
        """Yields the results of `delta`, which follows all of `old`; returns the rows to keep."""

    def together(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Merges rows of several segments into one sorted batch."""
        return sorted_whole(parts)

    def missing_results(
        self, base: Sequence[Segment], waiting: Sequence[Segment], stats: OperatorStats
    ) -> Results:
        """Yields the results of younger parts, which waited for `base`; returns the rows to keep."""
        parts = [segment.batch() for segment in waiting]
        if not parts:
            return (empty_rows(),)
        rows = RunData(self.together(parts), self.layouts[0].time_column)
        return (yield from self.results(base, rows, stats))
