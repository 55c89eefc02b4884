"""Cleanup: merges the parts of groups and produces the results missing between them (DCAPE-TR 4.2).

For an additive operator, cleanup adds the parts one by one, oldest first. Each step produces the
combinations of the parts so far with the next one, including those that the operator stores. For a
cumulative operator, it produces the results of all parts except the oldest. Any other operator
misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.operators.cumulative import Cumulative
from spillway.operators.operator import Additive, Keeping, Operator, Work
from spillway.operators.stats import OperatorStats
from spillway.slot.limits import ENDLESS
from spillway.state.runs.merging import Segment, ranges_in_order
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

#: Bytes of groups that cleanup handles at a time.
CLEAN_STEP_BYTES = 32 << 20


@dataclass
class Ending:
    """Where merged groups end: in memory, if they and their results fit there."""

    state: SlotState
    in_memory: bool
    #: Bytes that memory may hold before the groups have returned.
    room_bytes: float = ENDLESS
    #: Bytes that cleanup keeps at a time.
    made_bytes: int = ENDLESS

    def keep(self, stream: int, rows: RunData) -> Sequence[Segment]:
        """Keeps made rows in memory until there is no room; then everything ends on disk."""
        if self.in_memory:
            held = self.state.held_bytes() + rows.batch.nbytes
            self.in_memory = held <= self.room_bytes
        keep = self.state.keep if self.in_memory else self.state.parts.keep_on_disk
        return keep(stream, rows)


def make_whole(
    operator: Operator,
    state: SlotState,
    groups: Sequence[int],
    stats: OperatorStats,
    ending: Ending,
) -> Iterator[pa.RecordBatch]:
    """Merges the parts of groups, and yields the results missing between them."""
    if isinstance(operator, Cumulative):
        yield from _make_younger(operator, state, groups, stats, ending)
        return
    if isinstance(operator, Additive):
        gaps = state.parts.gaps_between(groups)
        keeping = Keeping(ending.keep, gaps, ending.made_bytes)
        work = Work(stats, state.manifest.selectivity, keeping)
        yield from between(operator, state.parts.of(groups), work)
    state.parts.settle(groups, in_memory=ending.in_memory)


def _make_younger(
    operator: Cumulative,
    state: SlotState,
    groups: Sequence[int],
    stats: OperatorStats,
    ending: Ending,
) -> Iterator[pa.RecordBatch]:
    """Produces the results of all parts except the oldest.

    If the groups return to memory, more of their rows may follow in this batch. The slot processes
    both together, so that a batch gives each result once.
    """
    waiting = state.parts.take_waiting(groups)
    if ending.in_memory:
        state.parts.settle(groups, in_memory=True)
        for stream, segments in enumerate(waiting):
            state.staging.add_segments(stream, segments)
        return
    base = state.parts.frozen(groups)
    for some in ranges_in_order(waiting[0]):
        kept = yield from operator.missing_results(base[0], some, stats)
        for stream, rows in enumerate(kept):
            state.add(stream, rows)
    state.parts.settle(groups, in_memory=False)


def between(
    operator: Additive, parts: Sequence[list[list[Segment]]], work: Work
) -> Iterator[pa.RecordBatch]:
    """Yields the combinations that have rows of several parts, oldest first."""
    if not parts:
        return
    made: list[list[Segment]]

    def kept(stream: int, rows: RunData) -> Sequence[Segment]:
        segments = work.keeping.keep(stream, rows)
        made[stream] += segments
        return segments

    making = replace(work, keeping=replace(work.keeping, keep=kept))
    base = parts[0]
    for delta in parts[1:]:
        made = [[] for _ in base]
        yield from operator.missing(base, delta, making)
        base = [[*old, *new, *more] for old, new, more in zip(base, delta, made, strict=True)]


def few_at_a_time(
    groups: Sequence[int], pending: Sequence[int], sizes: NDArray[np.int64], budget_bytes: float
) -> Iterator[list[int]]:
    """Splits groups into steps of bounded size, each of neighbours among the pending groups."""
    place = {group: at for at, group in enumerate(pending)}
    held: list[int] = []
    total = spent = 0
    for group in groups:
        if spent >= budget_bytes:
            break
        size = int(sizes[group])
        apart = held and place[group] != place[held[-1]] + 1
        if held and (apart or total + size > CLEAN_STEP_BYTES):
            yield held
            held, total = [], 0
        held.append(group)
        total += size
        spent += size
    if held:
        yield held
