"""What operators of one stream have in common whose results need all that came before.

Group-by and dedup are *cumulative*: a result needs everything that came before. A batch is processed
when all its rows are there (state/slot/staging.py). While a group has a part on disk its new rows are
only kept, as a younger part, and their results wait until the parts meet. So of the parts of a group

    the results of the oldest are made, and those of all younger parts are still to be made,

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
from spillway.state.runs.merging import Segment, merged
from spillway.state.runs.run import RunData


class Cumulative(ABC):
    """An operator of one stream whose results need all that came before."""

    @property
    @abstractmethod
    def layouts(self) -> tuple[StreamLayout, ...]:
        """What the state needs to know of the stream, and how its rows combine."""

    @property
    @abstractmethod
    def untracked(self) -> str:
        """Why groups cannot be moved by a parallel track; "" if they can."""

    @abstractmethod
    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """The sorted rows of a piece of a batch in the form in which they are kept."""

    @abstractmethod
    def results(self, old: Sequence[Segment], delta: RunData, stats: OperatorStats) -> Results:
        """Yields the results of `delta`, which come after all of `old`; returns what is kept of it."""

    def together(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Rows of several segments as one sorted batch."""
        return merged(parts)

    def missing_results(
        self, base: Sequence[Segment], waiting: Sequence[Segment], stats: OperatorStats
    ) -> Results:
        """The results of rows that waited, as younger parts, for what `base` is; and what is kept."""
        parts = [segment.batch() for segment in waiting]
        if not parts:
            return (empty_rows(),)
        rows = RunData(self.together(parts), self.layouts[0].time_column)
        return (yield from self.results(base, rows, stats))
