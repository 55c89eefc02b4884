"""What every operator is, and the capabilities that some operators have.

An operator is a function of values: it reads segments of state, is given the sorted new rows, yields
result batches of bounded size, and never touches a file, a clock or Spark. The slot task adds rows to
the state after the operator has run. So spill, cleanup, moves, scaling and recovery are written once,
for all operators: what FLUX asks of each operator (section 5.1, Figure 5) is done by the state here.

`Operator` is what all of them have. What else one can do it states by having the methods:

    Additive     makes results of new rows as they come, with what is in memory (the equi-joins); a
                 result is a combination of rows, and cleanup adds those between parts later
    Cumulative   needs everything that came before (operators/cumulative.py)
    Tracking     is additive, and two slots can serve its groups for a while (state/slot/tracks.py)
    Shadowing    is cumulative, and can keep rows for which another slot still answers
    Making       stores rows of its own making, and fills in where they are lacking

An operator that is neither additive nor cumulative only stores rows, and visitors look for partners in
them (operators/theta/sliced.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from spillway.metrics.counts import Counts
from spillway.operators.stats import OperatorStats
from spillway.state.layout.gaps import Gaps
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

#: Yields results.
Made = Generator[pa.RecordBatch, None, None]
#: Yields results; returns, for each stream, the rows that are to be kept.
Results = Generator[pa.RecordBatch, None, tuple[RunData, ...]]
#: Takes sorted rows of a stream; returns them as they are kept.
Keep = Callable[[int, RunData], Segment]


def _nowhere(stream: int, rows: RunData) -> Segment:
    raise AssertionError(f"{rows.rows} rows made for stream {stream} are of no parallel track")


@dataclass(frozen=True)
class Keeping:
    """What becomes of rows that an operator makes for streams of its own (state/layout/gaps.py)."""

    keep: Keep
    #: For each made stream, where there is none, and none is to be made.
    gaps: Gaps
    #: Bytes that are kept at a time, so that memory is looked at between them.
    piece_bytes: int
    #: Takes rows that are made of new rows of a parallel track alone (state/slot/tracks.py).
    keep_new: Keep = _nowhere


@dataclass(frozen=True)
class Work:
    """What an additive operator works with, apart from rows."""

    #: Takes what is learned.
    stats: OperatorStats
    #: What earlier batches have counted, to choose an order by.
    known: Counts
    keeping: Keeping


class Operator(Protocol):
    """One stateful operator, as a slot task runs it."""

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """What the state needs to know of each stream that is stored, and how its rows combine."""
        ...

    @property
    def untracked(self) -> str:
        """Why groups cannot be moved by a parallel track; "" if they can (state/slot/tracks.py)."""
        ...

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """The sorted rows of a piece of a batch in the form in which they are kept."""
        ...


@runtime_checkable
class Additive(Protocol):
    """An operator whose results are combinations of rows; it keeps all rows as they are."""

    def process(self, state: SlotState, deltas: Sequence[RunData], work: Work) -> Made:
        """Yields the results that the new rows complete; `state` does not hold them yet.

        An operator that stores rows of its own making keeps those itself, as it makes them: they may be
        many more than the new rows. Groups may leave memory whenever it does, and what it has opened of
        them before stays what it was.
        """
        ...

    def missing(
        self, base: Sequence[Sequence[Segment]], delta: Sequence[Sequence[Segment]], work: Work
    ) -> Made:
        """Yields the results that need rows of both `base` and `delta`, parts of the same groups.

        An operator that stores rows of its own making keeps those that need rows of both.
        """
        ...


@runtime_checkable
class Tracking(Protocol):
    """An additive operator whose groups two slots can serve for a while."""

    def crossing(self, state: SlotState, deltas: Sequence[RunData], work: Work) -> Made:
        """Yields the results that new rows of a parallel track complete and that need an old row.

        The state has the old rows, its track the new ones that came before. Results of new rows alone
        are made elsewhere. Rows of the operator's own making are kept as in `process`, those that are
        made of new rows alone by `keep_new`.
        """
        ...


@runtime_checkable
class Shadowing(Protocol):
    """A cumulative operator that can keep new rows for which another slot answers."""

    def shadow(self, old: Sequence[Segment], delta: RunData) -> RunData:
        """What is kept of new rows, as they are stored, for which another slot answers.

        They are for rows that come when no older ones count any more (state/slot/tracks.py). `old` is
        what has been kept before.
        """
        ...


@runtime_checkable
class Making(Protocol):
    """An operator that stores rows of its own making."""

    def fill(self, state: SlotState, most_bytes: int) -> None:
        """Makes a bounded part of the rows that made streams lack."""
        ...
