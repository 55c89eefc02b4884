"""How new rows reach an operator, and what becomes of them.

An additive operator gets rows as they come; a cumulative one gets them when the batch is whole, without
the rows of groups that have a part on disk (operators/base.py). `Intake` is the one place that knows
the difference for new rows; the other, for cleanup, is slot/control.py.

Of groups in a parallel track (state/slot/tracks.py) an additive operator makes here, at the sender,
only what needs an old row: what has none is made where the new rows are alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from spillway.operators.base import (
    Keep,
    Keeping,
    Made,
    Operator,
    OperatorStats,
    Results,
    empty_rows,
)
from spillway.routing.routing import HashRange, group_ranges, outside
from spillway.state.runs.merging import Segment, inside, merged
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

Deltas = Sequence[RunData]


class Intake:
    """New rows of one slot in one batch, on their way through its operator."""

    def __init__(
        self,
        state: SlotState,
        operator: Operator,
        stats: OperatorStats,
        keep: Keep | None = None,
        made_bytes: int = 1 << 60,
    ) -> None:
        """`keep` takes rows that the operator makes, so many bytes at a time; else they are added."""
        self._state = state
        self._operator = operator
        self._stats = stats
        self._keep = keep or state.add_made
        self._made_bytes = made_bytes

    def ready(self, deltas: Deltas) -> Iterator[Deltas]:
        """Takes sorted rows, in the form they are kept in; gives what can be processed now."""
        if not self._operator.cumulative:
            yield deltas
            return
        for stream, rows in enumerate(deltas):
            self._state.staging.add(stream, rows)

    def waited(self, groups: Collection[int]) -> Iterator[Deltas]:
        """Takes the rows that waited for groups; gives what can be processed now."""
        self._state.staging.add_slices(self._state.spooler.taken(groups))
        if not self._operator.cumulative:
            yield from self.rest()

    def caught_up(self, groups: Collection[int]) -> Iterator[Deltas]:
        """Takes the rows that waited for groups, if each can be processed for itself."""
        if not self._operator.cumulative:
            yield from self.waited(groups)

    def rest(self) -> Iterator[Deltas]:
        """When all rows are there: what waited for that, one hash range after the other."""
        for found in self._state.staging.taken():
            yield [empty_rows() if rows is None else rows for rows in found]

    def results(self, deltas: Deltas) -> Results:
        """Yields the results of rows that are ready; returns what is to be added to the state."""
        deltas = yield from self._beside_others(deltas)
        due, waiting = self._divided(deltas)
        kept = yield from self._operator.process(self._state, due, self._stats, self._keeping())
        return tuple(_together(*pair) for pair in zip(kept, waiting, strict=True))

    def processed(self, ready: Iterable[Deltas]) -> Made:
        """Yields the results of rows, and adds them to the state."""
        for deltas in ready:
            self.add((yield from self.results(deltas)))

    def add(self, kept: Deltas) -> None:
        """Puts what `results` returned into the state, with what was learned."""
        for stream, rows in enumerate(kept):
            self._state.add(stream, rows)
        self._state.news.produced(self._stats.taken())

    def _keeping(self) -> Keeping:
        state = self._state
        return Keeping(self._keep, state.gaps, self._made_bytes, state.follow_made)

    def _beside_others(self, deltas: Deltas) -> Results:
        """Yields what rows of a parallel track need old rows for, and keeps them; returns the rest."""
        state, ranges = self._state, self._state.tracker.ranges
        if self._operator.cumulative or not ranges:
            return tuple(deltas)
        mine = [rows_inside(rows, ranges) for rows in deltas]
        yield from self._operator.crossing(state, mine, self._stats, self._keeping())
        for stream, rows in enumerate(mine):
            state.follow(stream, rows)
        others = outside(ranges)
        return tuple(rows_inside(rows, others) for rows in deltas)

    def _divided(self, deltas: Deltas) -> tuple[Deltas, Deltas]:
        """Rows whose results can be made, and rows of groups with a part on disk."""
        none = [empty_rows() for _ in deltas]
        if not self._operator.cumulative:
            return deltas, none
        deferred = self._state.parts.deferred
        if not deferred.any():
            return deltas, none
        ranges = group_ranges(deferred.nonzero()[0].tolist(), self._state.groups)
        others = outside(ranges)
        due = [rows_inside(rows, others) for rows in deltas]
        return due, [rows_inside(rows, ranges) for rows in deltas]


def _together(a: RunData, b: RunData) -> RunData:
    if a.rows == 0 or b.rows == 0:
        return b if a.rows == 0 else a
    return RunData(merged([a.batch, b.batch]), a.time_column)


def rows_inside(rows: RunData, ranges: Sequence[HashRange]) -> RunData:
    """The rows whose hashes are in the ranges, ascending and disjoint; sorted as they were."""
    return inside(Segment(rows, 0, rows.rows), ranges).data if rows.rows else rows
