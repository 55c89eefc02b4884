"""Group-by over windows with one final result for each key and window.

The operator stores partials and looks nothing up. When the watermark has passed the end of a window,
its rows expire, and the operator gives their results (`Expiring` in operators/operator.py). So a part
of a group on disk misses nothing, and the slot never has to bring it back.

A session ends when no row can touch it any more. A part of a session that expires stays as long as the
youngest part of that session (operators/grouping/sessions.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from spillway.operators.grouping.marks import Sessions
from spillway.operators.grouping.sessions import ended
from spillway.operators.grouping.totals import Totals
from spillway.operators.operator import Results
from spillway.operators.stats import OperatorStats
from spillway.rows.cutting import cut_rows
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData


class ClosingOperator(Totals):
    """Aggregates one stream by key and window; gives a result when a window has ended."""

    @property
    def untracked(self) -> str:
        """Why there is no parallel track: a session may go on for ever."""
        if isinstance(self.marks, Sessions):
            return "a session goes on as long as rows come, and needs all its rows in one slot"
        return ""

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """The layout: keys, window and partials."""
        return (self.layout(final=True, visited=True),)

    def shadow(self, _: Sequence[Segment], delta: RunData) -> RunData:
        """Returns all rows: results of their windows need them."""
        return delta

    def expiring(
        self,
        _: int,
        due: RunData,
        left: Sequence[Segment],
        stats: OperatorStats,
        /,
    ) -> Results:
        """Yields the results of windows that have ended; keeps sessions that go on."""
        kept: tuple[RunData, ...] = ()
        if isinstance(self.marks, Sessions):
            due, longer = ended(self, due, left)
            kept = (longer,) if longer.rows else ()
        if due.rows:
            stats.count_outputs(due.h)
            columns, keys = due.payload.columns, len(self.key_at)
            marks = columns[keys : self.first_partial]
            result = self.shown(columns[:keys], marks, self.partials_in(due.payload))
            yield from cut_rows(result, most_rows=self.block_rows)
        return kept
