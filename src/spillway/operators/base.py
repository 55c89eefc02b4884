"""What every operator is, and the sorted rows of a batch that all of them take.

An operator is a function of values: it reads segments of state, is given the sorted new rows, yields
result batches of bounded size, and returns what is to be kept of the new rows. It never touches a file,
a clock or Spark, and it does not write state; the slot task adds what is kept after the operator has
run. So spill, cleanup, moves, scaling and recovery are written once, for all operators: what FLUX
asks of each operator (section 5.1, Figure 5) is here done by the state they share.

Two kinds of operator differ in what a result needs.

*Additive* (the join): a result is a combination of rows, and those with rows of several parts can be
made later. New rows are processed as they come, with what is in memory, and cleanup adds what is missing
between the parts.

*Cumulative* (group-by, dedup): a result needs everything that came before. A batch is processed when
all its rows are there (state/slot/staging.py). While a group has a part on disk its new rows are only
kept, as a younger part, and their results wait until the parts meet. So of the parts of a group

    the results of the oldest are made, and those of all younger parts are still to be made,

and what has been said is never wrong, only late.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.kernels.order import order_by_stream_and_hash
from spillway.kernels.probe import count_groups
from spillway.routing.groups import group_of
from spillway.routing.routing import HashRange
from spillway.state.layout.gaps import Gaps
from spillway.state.layout.shelf import StreamLayout
from spillway.state.runs.merging import Segment, merged
from spillway.state.runs.run import HASH_COLUMN, RunData, as_numpy
from spillway.state.slot.state import SlotState

#: Weight of older batches in the measured selectivities; and in those that are sampled, of which a
#: slot must know soon that they have changed: after three batches seven eighths are of the new ones.
_DECAY = 0.8
_SAMPLED_DECAY = 0.5
#: Rows, so weighed, below which they are forgotten: plans that are no longer followed leave nothing.
_FORGOTTEN = 1e-6
#: What is between two streams where partners were counted of a few rows.
SAMPLED = "~"
#: What comes before the name of a predicate where its pairs and those that passed are counted, and where
#: its pairs and their seconds are.
MATCHED, SPENT = "match ", "cost "
#: What the number of a stream has more in a row that is there a second time, and was counted before.
AGAIN = 32


@dataclass(frozen=True)
class StreamColumns:
    """One stream's columns: what is stored of it, and which of that is what."""

    name: str
    #: Names of the columns the user sees, the first so many of the stored ones.
    visible: tuple[str, ...]
    #: For each stored column, the column of the exchanged rows that carries it.
    lanes: tuple[int, ...]
    #: For each key, the position of the stored column that holds it.
    keys: tuple[int, ...]
    #: Position of the event time among the stored columns; None without a window.
    time: int | None = None
    window_us: int | None = None
    #: Positions of the columns that results have; None: all that the user sees.
    read: tuple[int, ...] | None = None

    @property
    def shown(self) -> Sequence[int]:
        """Positions of the columns that results have."""
        return range(len(self.visible)) if self.read is None else self.read

    def struct(self, columns: Sequence[pa.Array]) -> pa.StructArray:
        """The shown columns as those of a result have them."""
        return pa.StructArray.from_arrays(columns, names=[self.visible[at] for at in self.shown])


@dataclass
class OperatorStats:
    """What an operator learns while it runs, per group and per pair of streams."""

    groups: int
    outputs: NDArray[np.int64] = field(init=False)
    selectivity: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outputs = np.zeros(self.groups, np.int64)

    def produced(self, h: NDArray[np.uint32]) -> None:
        """Counts results by the hash of the row that completed them."""
        self.outputs += np.bincount(group_of(h, self.groups), minlength=self.groups)

    def produced_of(self, h: NDArray[np.uint32], rows: NDArray[np.int64]) -> None:
        """Counts results by rows that are in them, of a run with these hashes."""
        count_groups(h, rows, self.outputs)

    def taken(self) -> NDArray[np.int64]:
        """The results counted since the last call."""
        outputs, self.outputs = self.outputs, np.zeros(self.groups, np.int64)
        return outputs

    def probed(self, source: str, target: str, rows: int, matched: int) -> None:
        """Counts how many partners the rows of one side found in another."""
        self._count(f"{source}>{target}", rows, matched)

    def sampled(self, source: str, target: str, pairs: int, matched: int) -> None:
        """Counts how many pairs of rows of two streams were looked at, and how many matched."""
        self._count(f"{source}{SAMPLED}{target}", pairs, matched)

    def judged(self, predicate: str, pairs: int, passed: int, seconds: float) -> None:
        """Counts the pairs that a predicate decided on, and how long it took."""
        self._count(MATCHED + predicate, pairs, passed)
        self._count(SPENT + predicate, pairs, seconds)

    def _count(self, key: str, rows: int, matched: float) -> None:
        before = self.selectivity.get(key, (0.0, 0.0))
        self.selectivity[key] = (before[0] + rows, before[1] + matched)

    def blended(self, older: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """The selectivities with those of earlier batches, which weigh less and less."""
        blend = {}
        for key, (probed, matched) in older.items():
            weight = _SAMPLED_DECAY if SAMPLED in key else _DECAY
            if probed > _FORGOTTEN:
                blend[key] = (probed * weight, matched * weight)
        for key, (probed, matched) in self.selectivity.items():
            before = blend.get(key, (0.0, 0.0))
            blend[key] = (before[0] + probed, before[1] + matched)
        return blend


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
    beside: Keep = _nowhere


class Operator(Protocol):
    """One stateful operator, as a slot task runs it."""

    #: Whether a result needs everything that came before it; see above.
    cumulative: bool

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """What the state needs to know of each stream that is stored, and how its rows combine."""
        ...

    def stored(self, deltas: Sequence[RunData], batch: int) -> tuple[RunData, ...]:
        """The sorted rows of a piece of a batch in the form in which they are kept."""
        ...

    def process(
        self,
        state: SlotState,
        deltas: Sequence[RunData],
        stats: OperatorStats,
        keeping: Keeping,
    ) -> Results:
        """Yields the results that the new rows complete; `state` does not hold them yet.

        An operator that stores rows of its own making keeps those itself, as it makes them: they may be
        many more than the new rows. Groups may leave memory whenever it does, and what it has opened of
        them before stays what it was.
        """
        ...

    def missing(
        self,
        base: Sequence[Sequence[Segment]],
        delta: Sequence[Sequence[Segment]],
        stats: OperatorStats,
        selectivity: dict[str, tuple[float, float]],
        keeping: Keeping,
    ) -> Results:
        """Yields the results that are missing when `delta` is added to `base`.

        Of an additive operator, those that need rows of both; of a cumulative one, those of `delta`.
        Returns what a cumulative operator keeps of `delta`. An operator that stores rows of its own
        making keeps those that need rows of both.
        """
        ...

    @property
    def untracked(self) -> str:
        """Why groups cannot be moved by a parallel track; "" if they can (state/slot/tracks.py)."""
        ...

    def crossing(
        self,
        state: SlotState,
        deltas: Sequence[RunData],
        stats: OperatorStats,
        keeping: Keeping,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the results that new rows of a parallel track complete and that need an old row.

        The state has the old rows, its track the new ones that came before. Results of new rows alone
        are made elsewhere. Rows of the operator's own making are kept as in `process`, those that are
        made of new rows alone beside the others. Additive operators only.
        """
        ...

    def fill(self, state: SlotState, most_bytes: int) -> None:
        """Makes a bounded part of the rows that made streams lack."""
        ...


class Guests(Protocol):
    """Rows that come to a slot to look for partners in its state, and not all to stay (PSP)."""

    @property
    def complete(self) -> bool:
        """Whether what they find are results."""
        ...

    @property
    def copied(self) -> tuple[HashRange, ...]:
        """The hashes of rows that stay and are counted elsewhere."""
        ...

    def admitted(self, batches: Sequence[pa.RecordBatch], state: SlotState) -> list[pa.RecordBatch]:
        """Takes rows of the batch; gives those that stay."""
        ...

    def results(self, state: SlotState, stats: OperatorStats) -> Made:
        """What they find, when all rows that stay are in the state."""
        ...


class Undivided:
    """What operators have in common of which one slot answers for a group, and that make no rows."""

    def crossing(
        self,
        state: SlotState,  # noqa: ARG002
        deltas: Sequence[RunData],  # noqa: ARG002
        stats: OperatorStats,  # noqa: ARG002
        keeping: Keeping,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        """Nothing: one slot answers for a group."""
        yield from ()

    def fill(self, state: SlotState, most_bytes: int) -> None:
        """Nothing is made."""


class Cumulative(Undivided):
    """What operators of one stream have in common whose results need all that came before."""

    cumulative = True

    @property
    def untracked(self) -> str:
        """Why groups cannot be moved by a parallel track."""
        raise NotImplementedError

    @property
    def layouts(self) -> tuple[StreamLayout, ...]:
        """What the state needs to know of the stream, and how its rows combine."""
        raise NotImplementedError

    def results(self, old: Sequence[Segment], delta: RunData, stats: OperatorStats) -> Results:
        """Yields the results of `delta`, which come after all of `old`; returns what is kept of it."""
        raise NotImplementedError

    def shadow(self, old: Sequence[Segment], delta: RunData) -> RunData:  # noqa: ARG002
        """What is kept of new rows, as they are stored, for which another slot answers.

        They are for rows that come when no older ones count any more (state/slot/tracks.py). `old` is
        what has been kept before.
        """
        return delta

    def together(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Rows of several segments as one sorted batch."""
        return merged(parts)

    def process(
        self,
        state: SlotState,
        deltas: Sequence[RunData],
        stats: OperatorStats,
        keeping: Keeping,  # noqa: ARG002
    ) -> Results:
        """The results of the new rows."""
        return (yield from self.results(state.segments(0), deltas[0], stats))

    def missing(
        self,
        base: Sequence[Sequence[Segment]],
        delta: Sequence[Sequence[Segment]],
        stats: OperatorStats,
        selectivity: dict[str, tuple[float, float]],  # noqa: ARG002
        keeping: Keeping,  # noqa: ARG002
    ) -> Results:
        """The results of `delta`."""
        parts = [segment.batch() for segment in delta[0]]
        if not parts:
            return (empty_rows(),)
        rows = RunData(self.together(parts), self.layouts[0].time_column)
        return (yield from self.results(base[0], rows, stats))


@dataclass(frozen=True)
class Sorted:
    """The rows of a piece of input, by stream, sorted by hash; and what was not let in."""

    deltas: tuple[RunData, ...]
    rows: tuple[int, ...]
    late: tuple[int, ...]
    #: Largest event time per stream, late rows included; None where there was no row or no window.
    max_times: tuple[int | None, ...]


def sort_input(
    batches: Sequence[pa.RecordBatch],
    streams: Sequence[StreamColumns],
    watermark_us: int | None,
    copied: Sequence[HashRange] = (),
) -> Sorted:
    """Splits exchanged rows by stream, drops the late ones, and sorts each stream by hash.

    The exchanged rows have the stream's number, the hash, and then the lanes (see
    spark/runtime/lanes.py). Rows with hashes in `copied` are not counted: another slot has them too;
    nor are those that are there again.
    """
    if not batches:
        empty = tuple(empty_rows() for _ in streams)
        return Sorted(empty, (0,) * len(streams), (0,) * len(streams), (None,) * len(streams))
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    stream = as_numpy(whole.column(0), np.uint8)
    h = as_numpy(whole.column(1), np.uint32)
    again = stream >= AGAIN if stream.max() >= AGAIN else None
    order, bounds = order_by_stream_and_hash(stream % AGAIN, h, len(streams))
    deltas, rows, late, max_times = [], [], [], []
    for number, columns in enumerate(streams):
        mine = order[bounds[number] : bounds[number + 1]]
        rows.append(_counted(mine, h, again, copied))
        mine, newest = _without_late(whole, mine, columns, watermark_us)
        late.append(rows[-1] - _counted(mine, h, again, copied))
        max_times.append(newest)
        deltas.append(RunData(_stored(whole, h, mine, columns), columns.time))
    return Sorted(tuple(deltas), tuple(rows), tuple(late), tuple(max_times))


def _without_late(
    whole: pa.RecordBatch,
    mine: NDArray[np.int32],
    columns: StreamColumns,
    watermark_us: int | None,
) -> tuple[NDArray[np.int32], int | None]:
    if columns.time is None or len(mine) == 0:
        return mine, None
    times = as_numpy(whole.column(2 + columns.lanes[columns.time]), np.int64)[mine]
    newest = int(times.max())
    if watermark_us is None:
        return mine, newest
    return mine[times >= watermark_us], newest


def _counted(
    mine: NDArray[np.int32],
    h: NDArray[np.uint32],
    again: NDArray[np.bool_] | None,
    copied: Sequence[HashRange],
) -> int:
    """How many of some rows, by hash, are counted here."""
    own = mine if again is None else mine[~again[mine]]
    return len(own) - _inside(h[own], copied)


def _inside(h: NDArray[np.uint32], ranges: Sequence[HashRange]) -> int:
    """How many of some hashes, ascending, are in the ranges."""
    ends = (np.searchsorted(h, [one.lo, one.hi]) for one in ranges)
    return sum(int(end - begin) for begin, end in ends)


def _stored(
    whole: pa.RecordBatch, h: NDArray[np.uint32], mine: NDArray[np.int32], columns: StreamColumns
) -> pa.RecordBatch:
    at = pa.array(mine)
    lanes = [whole.column(2 + lane).take(at) for lane in columns.lanes]
    names = [HASH_COLUMN, *(f"c{i}" for i in range(len(lanes)))]
    return pa.RecordBatch.from_arrays([pa.array(h[mine]), *lanes], names=names)


def empty_rows() -> RunData:
    """No rows of a stream."""
    none = pa.RecordBatch.from_arrays([pa.array([], pa.uint32())], names=[HASH_COLUMN])
    return RunData(none)
