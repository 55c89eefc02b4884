"""Intake: passes new rows to an operator and does what their fate says.

An additive operator gets rows as they arrive; a cumulative one gets them when the batch is complete
(operators/cumulative.py). `Intake` applies the fate of each row (slot/admission.py). Only this
module and slot/cleanup.py know the difference between the two kinds of operators.

For groups in a parallel track (state/slot/tracks.py), an additive operator at the sender produces
only results that need an old row. The receiver produces the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from spillway.operators.cumulative import Cumulative
from spillway.operators.input import empty_rows, rows_inside
from spillway.operators.operator import (
    Additive,
    Keep,
    Keeping,
    Made,
    Operator,
    Results,
    Shadowing,
    Tracking,
    Work,
)
from spillway.operators.stats import OperatorStats
from spillway.rows.joining import conserve
from spillway.slot.admission import Admission, Cut, Deltas, Fate, Fates, admitted_fates
from spillway.slot.limits import ENDLESS
from spillway.state.runs.merging import sorted_whole
from spillway.state.runs.run import RunData, Slice
from spillway.state.slot.state import SlotState


class Intake:
    """Passes the new rows of one batch of one slot through its operator."""

    def __init__(
        self,
        state: SlotState,
        operator: Operator,
        stats: OperatorStats,
        admission: Admission | None = None,
        keep: Keep | None = None,
        made_bytes: int = ENDLESS,
    ) -> None:
        """Takes the rows of one batch.

        Args:
            state: The state that new rows probe, and that stores them.
            operator: Produces the results.
            stats: Collects what the operator measures.
            admission: The fates of the batch. None while groups still come and go: then fates
                follow from the state at the time of processing.
            keep: Takes rows that the operator makes; by default they are added to the state.
            made_bytes: How many bytes of made rows it takes at a time.
        """
        self._state = state
        self._operator = operator
        self._cumulative = isinstance(operator, Cumulative)
        self._stats = stats
        self._admission = admission
        self._keep = keep or state.add_made
        self._made_bytes = made_bytes

    # Input

    def admit(self, deltas: Deltas) -> Iterator[Cut]:
        """Takes new rows of the batch; yields those that can be processed now."""
        assert self._admission is not None, "rows came before the batch began"
        self._state.news.brought += self._admission.brought(deltas)
        cut = self._admission.arriving.cut(deltas)
        self._park(cut.get(Fate.PARK, ()), self._admission)
        self._shadow(cut.get(Fate.SHADOW, ()))
        for stream, rows in enumerate(cut.get(Fate.SPOOL, ())):
            self._state.spooler.add(stream, rows)
        if not self._cumulative:
            yield cut
            return
        for stream, rows in enumerate(cut.get(Fate.PROCESS, ())):
            self._state.staging.add(stream, rows)

    def take(self, waited: Sequence[Sequence[Slice]]) -> Iterator[Cut]:
        """Takes rows that waited, for each stream; yields those that can be processed now."""
        self._state.staging.add_slices(waited)
        if not self._cumulative:
            yield from self.take_staged()

    def take_spooled(self, groups: Collection[int]) -> Iterator[Cut]:
        """Takes the spooled rows of groups; yields those that can be processed now."""
        yield from self.take(self._state.spooler.take(groups))

    def catch_up(self, groups: Collection[int]) -> Iterator[Cut]:
        """Yields the spooled rows of groups, if each row can be processed on its own."""
        if not self._cumulative:
            yield from self.take_spooled(groups)

    def take_staged(self) -> Iterator[Cut]:
        """Yields the staged rows when the batch is complete, one hash range after the other."""
        for found in self._state.staging.take(whole=self._cumulative):
            yield self._fates.cut([empty_rows() if rows is None else rows for rows in found])

    # Processing

    def results(self, cut: Cut) -> Results:
        """Yields the results of rows that are ready; returns what to add to the state."""
        if Fate.TRACK in cut:
            yield from self._cross(cut[Fate.TRACK])
        kept: Deltas = ()
        if Fate.PROCESS in cut:
            kept = yield from self._process(cut[Fate.PROCESS])
        waiting = cut.get(Fate.DEFER, ())
        if not kept or not waiting:
            return tuple(kept or waiting)
        return tuple(_together(*pair) for pair in zip(kept, waiting, strict=True))

    def process(self, ready: Iterable[Cut]) -> Made:
        """Yields the results of rows, and adds the rows to the state."""
        for cut in ready:
            self.add((yield from self.results(cut)))

    def add(self, kept: Deltas) -> None:
        """Adds what `results` returned to the state, with the measurements."""
        for stream, rows in enumerate(kept):
            self._state.add(stream, rows)
        self._state.news.add_outputs(self._stats.take_outputs())

    def _process(self, due: Deltas) -> Results:
        operator = self._operator
        if isinstance(operator, Cumulative):
            return (yield from operator.results(self._state.segments(0), due[0], self._stats))
        if isinstance(operator, Additive):
            yield from operator.process(self._state, due, self._work)
        return tuple(due)

    def _cross(self, mine: Deltas) -> Made:
        """Yields the results that rows of a parallel track form with old rows, and keeps the rows."""
        assert isinstance(self._operator, Tracking)
        yield from self._operator.crossing(self._state, mine, self._work)
        for stream, rows in enumerate(mine):
            self._state.follow(stream, rows)

    def _park(self, mine: Deltas, admission: Admission) -> None:
        for stream, rows in enumerate(mine):
            parked = 0
            for move, ranges in admission.parks:
                waiting = rows_inside(rows, ranges)
                self._state.park(move, stream, waiting)
                parked += waiting.rows
            conserve("parking rows", rows.rows, parked)

    def _shadow(self, mine: Deltas) -> None:
        """Keeps what is needed of rows whose results the slot with the old rows produces."""
        for stream, rows in enumerate(mine):
            assert isinstance(self._operator, Shadowing)
            old = self._state.segments(stream)
            self._state.add(stream, self._operator.shadow(old, rows))

    @property
    def _fates(self) -> Fates:
        if self._admission is None:
            return admitted_fates(self._state, self._operator)
        return self._admission.admitted

    @property
    def _work(self) -> Work:
        state = self._state
        keeping = Keeping(self._keep, state.gaps, self._made_bytes, state.follow_made)
        return Work(self._stats, state.manifest.selectivity, keeping)


def rows_of(cut: Cut) -> int:
    """Counts the rows that an operator gets, or that wait for it."""
    inside = (Fate.PROCESS, Fate.TRACK, Fate.DEFER)
    return sum(rows.rows for fate in inside for rows in cut.get(fate, ()))


def _together(a: RunData, b: RunData) -> RunData:
    if a.rows == 0 or b.rows == 0:
        return b if a.rows == 0 else a
    return RunData(sorted_whole([a.batch, b.batch]), a.time_column)
