"""The operator interface, and the capabilities that some operators have.

An operator is a function of values. It reads segments of state and the sorted new rows, and yields
result batches of bounded size. It never touches a file or Spark, and reads the clock only to measure
predicates. The slot task adds rows to the state after the operator has run. So spill, cleanup, moves,
scaling and recovery exist once: the state does what FLUX asks of each operator (section 5.1, Figure 5).

All implement `Operator`. An operator declares a capability by having its methods:

    Additive     joins new rows with rows in memory as they come (the equi-joins); a result is a
                 combination of rows, and cleanup adds those between parts later
    Cumulative   needs everything that came before (operators/cumulative.py)
    Tracking     is additive, and two slots can serve its groups for a while (state/slot/tracks.py)
    Shadowing    is cumulative, and can keep rows whose results another slot still produces
    Making       stores rows that it makes, and fills in missing ones
    Deciding     is additive, and gives rows that stay without partners (state/slot/decided.py)
    Expiring     gives results when rows expire, once for each (slot/expiring.py)

Any other operator only stores rows, which visitors search (operators/theta/sliced.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from spillway.metrics.counts import Counts
from spillway.operators.input import StreamColumns
from spillway.operators.stats import OperatorStats
from spillway.state.layout.gaps import Gaps
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

#: Yields results.
Made = Generator[pa.RecordBatch, None, None]
#: Yields results; returns the rows to keep for each stream.
Results = Generator[pa.RecordBatch, None, tuple[RunData, ...]]
#: Takes sorted rows of a stream; returns them as they are kept.
Keep = Callable[[int, RunData], Sequence[Segment]]


def _nowhere(stream: int, rows: RunData) -> Sequence[Segment]:
    raise AssertionError(f"{rows.rows} rows made for stream {stream} belong to no parallel track")


@dataclass(frozen=True)
class Keeping:
    """What happens to rows that an operator makes for its own streams (state/layout/gaps.py)."""

    keep: Keep
    #: For each made stream, where it is missing and must not be made.
    gaps: Gaps
    #: Bytes kept at a time, so that the slot can check memory in between.
    piece_bytes: int
    #: Takes rows made only from new rows of a parallel track (state/slot/tracks.py).
    keep_new: Keep = _nowhere


@dataclass(frozen=True)
class Work:
    """What an additive operator works with, apart from rows."""

    #: Collects measurements.
    stats: OperatorStats
    #: Counts of earlier batches, used to choose a probe order.
    known: Counts
    keeping: Keeping


class Operator(Protocol):
    """One stateful operator, as a slot task runs it."""

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """What the state needs to know about each stored stream."""
        ...

    @property
    def untracked(self) -> str:
        """Why groups cannot move by a parallel track; "" if they can."""
        ...

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """Returns the sorted rows of a piece of a batch in their stored form."""
        ...


@runtime_checkable
class Additive(Protocol):
    """An operator whose results are combinations of rows; it keeps all rows as they are."""

    def process(self, state: SlotState, deltas: Sequence[RunData], work: Work) -> Made:
        """Yields the results that the new rows complete; `state` does not hold them yet.

        An operator that makes rows keeps them itself, because they may be many more than the new
        rows. Groups may spill each time it does; data that it opened before stays valid.
        """
        ...

    def missing(
        self, base: Sequence[Sequence[Segment]], delta: Sequence[Sequence[Segment]], work: Work
    ) -> Made:
        """Yields the results that need rows of both `base` and `delta`, parts of the same groups.

        An operator that makes rows keeps those that need rows of both.
        """
        ...


@runtime_checkable
class Tracking(Protocol):
    """An additive operator whose groups two slots can serve for a while."""

    def crossing(self, state: SlotState, deltas: Sequence[RunData], work: Work) -> Made:
        """Yields the results that new rows of a parallel track complete with an old row.

        The state has the old rows, its track the earlier new rows. Another slot produces results of
        only new rows. The operator keeps made rows as in `process`; it keeps rows made only from
        new ones with `keep_new`.
        """
        ...


@runtime_checkable
class Shadowing(Protocol):
    """A cumulative operator that can keep new rows whose results another slot produces."""

    def shadow(self, old: Sequence[Segment], delta: RunData) -> RunData:
        """Returns what to keep of new rows whose results another slot produces.

        They serve rows that come when older rows no longer count (state/slot/tracks.py). `old` is
        what was kept before.
        """
        ...


@runtime_checkable
class Deciding(Protocol):
    """An additive operator that gives rows when it is known that they stay without partners."""

    #: The most rows of a block of results, and the input streams.
    block_rows: int
    streams: tuple[StreamColumns, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        """The streams whose rows it gives."""
        ...

    @property
    def kept(self) -> tuple[int, ...]:
        """Those of them whose rows all come out, also rows with a NULL key or time."""
        ...

    @property
    def step_us(self) -> int:
        """How far the watermark must come before the slot decides again; at least 1."""
        ...

    def decide(self, state: SlotState, watermark_us: int, stats: OperatorStats) -> Made:
        """Yields the results of rows that find no partner any more at or after the watermark."""
        ...

    def alone(self, number: int, columns: Sequence[pa.Array], count: int) -> pa.RecordBatch:
        """Returns the results of rows of a stream that match nothing, from the columns of results."""
        ...


@runtime_checkable
class Making(Protocol):
    """An operator that stores rows that it makes."""

    def fill(self, state: SlotState, most_bytes: int) -> None:
        """Makes a bounded part of the rows that are missing in made streams."""
        ...


@runtime_checkable
class Expiring(Protocol):
    """An operator that gives results when rows of a stream expire.

    The layout of such a stream says so (`StreamLayout.final`). Rows that have expired are gone, except
    those that the operator keeps longer.
    """

    def expiring(
        self,
        stream: int,
        due: RunData,
        left: Sequence[Segment],
        stats: OperatorStats,
        /,
    ) -> Results:
        """Yields the results of rows that expire now; returns the rows to keep longer, later in time.

        `due` has all rows of its hashes that expire, combined as the layout says. `left` has the later
        rows of the stream, in memory and on disk; in its runs, rows that have expired count as gone
        (operators/lookup.py).
        """
        ...
