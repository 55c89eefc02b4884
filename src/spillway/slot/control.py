"""The local controller of a slot: which groups leave memory, and which come back.

The coordinator says how much memory a slot has; the controller, inside the slot task, sees the
statistics of its groups and chooses among them. `Limits` is what it is told, `Controller` is what it
must answer, and `MemoryKeeper` does what it says to a state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.metrics.events import CleanedUp, Event, ForceSpilled, Reloaded, Spilled
from spillway.metrics.groups import Floats, GroupTable, Ints
from spillway.operators.base import Keeping, Made, Operator, OperatorStats
from spillway.slot.orders import Force, Pick
from spillway.slot.turns import Turn, Waiting
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

#: Room for files in memory, as a multiple of the limit: they keep rows that were cut out of them for
#: a while, so that a spill does not have to write anew what stays.
FILE_SLACK = 1.5
#: Memory without a limit, in bytes.
ENDLESS = 1 << 60
#: The least bytes of rows that an operator makes which are kept before memory is checked.
LEAST_MADE_BYTES = 1 << 18
#: Bytes of groups whose missing results are made at a time.
CLEAN_STEP_BYTES = 32 << 20
#: Bytes of groups that a batch cleans up before their parts expire; the others wait for the next.
EXPIRY_BYTES = 256 << 20
#: Bytes that a batch brings back into memory.
RELOAD_BYTES = 64 << 20


@dataclass(frozen=True)
class Limits:
    """What a slot is told about its memory."""

    #: Bytes of state in memory at which groups leave it; None: no limit.
    memory_bytes: int | None = None
    #: Part of what is in memory that leaves it at a time.
    spill_fraction: float = 0.3
    #: Groups come back when memory was filled less than this, for so many batches.
    low_water: float = 0.5
    calm_batches: int = 3
    #: Whether groups of the slot are being moved, so that none leave memory or come back meanwhile.
    relocating: bool = False
    #: Seconds from one turn to the next, where groups take turns (slot/rotation.py); None: they
    #: leave in generations.
    t_gap_s: float | None = None

    @property
    def low_bytes(self) -> float:
        """The low-water mark."""
        return math.inf if self.memory_bytes is None else self.memory_bytes * self.low_water

    @property
    def fill_bytes(self) -> float:
        """How far memory is filled with groups that come back: halfway to the limit."""
        return (self.low_bytes + (self.memory_bytes or 0)) / 2

    @property
    def made_bytes(self) -> int:
        """Bytes of rows that an operator makes which are kept at a time, before memory is checked."""
        limit = self.memory_bytes
        return ENDLESS if limit is None else max(LEAST_MADE_BYTES, limit // 8)


@dataclass(frozen=True)
class Choice:
    """Groups, in the order they were chosen, and why."""

    groups: tuple[int, ...]
    reason: str


class Controller(Protocol):
    """Chooses groups from their statistics; pure."""

    def victims(
        self, table: GroupTable, wanted_bytes: int, batch: int, below: int | None = None
    ) -> Choice:
        """Groups to move out of memory, with so many bytes together or all there are.

        `below` leaves out those of a higher class of productivity (metrics/view.py).
        """
        ...

    def returning(self, table: GroupTable, room_bytes: int, batch: int) -> Choice:
        """Groups with a part on disk to bring back, with at most so many bytes on disk."""
        ...

    def opened(
        self,
        expected_rows: Floats,
        waiting_rows: Ints,
        since_s: Floats,
        budget_rows: int | None,
        buffer_rows: float,
    ) -> NDArray[np.bool_]:
        """For each group, whether its rows are processed in this batch; the others wait."""
        ...

    def turn(self, waiting: Waiting, limit_bytes: int, now_s: float, t_gap_s: float) -> Turn:
        """Who leaves memory and who comes, where groups take turns."""
        ...

    def movers(
        self,
        table: GroupTable,
        owned: Collection[int],
        wanted_bytes: int,
        *,
        least_groups: int,
        everything: bool,
        pick: Pick | None = None,
    ) -> Choice:
        """Groups to send to another slot, with about so many bytes; or all of them; or one."""
        ...


class MemoryKeeper:
    """Keeps one slot's state within its limits, and makes up for what that cost."""

    def __init__(
        self,
        state: SlotState,
        operator: Operator,
        controller: Controller,
        limits: Limits,
    ) -> None:
        self._state = state
        self._operator = operator
        self._controller = controller
        self._limits = limits
        self._table: GroupTable = state.table() if state.moved else state.manifest.groups
        self.events: list[Event] = []
        self.rows_cleaned = 0
        self._cleaned_up: set[int] = set()
        #: The most bytes that a check found in memory; 0 without a limit.
        self.peak_bytes = 0

    def before_batch(self, watermark_us: int | None, asked: Collection[int]) -> Made:
        """Cleans up what expires, what was asked for, and what memory has room for again."""
        if not self._state.parts.pending and not self._table.disk_rows.any():
            return
        # Rows that waited for groups on their way may have made parts of them already.
        self._state.parts.note_pending()
        yield from self._cleaned(self._state.parts.expiring(watermark_us), EXPIRY_BYTES, "expiring")
        yield from self._cleaned(
            sorted(self._state.parts.pending & set(asked)), math.inf, "asked for"
        )
        if not self._limits.relocating:
            yield from self._returned()

    def keep(self, stream: int, rows: RunData) -> Segment:
        """Adds rows that the operator makes of the batch's, and then looks at memory.

        The operator may go on with what it has opened of groups that leave: they are probed where they
        went until the batch ends, and what is made of them follows.
        """
        segment = self._state.add_made(stream, rows)
        self.check()
        return segment

    def check(self) -> None:
        """Moves groups out of memory if it holds more than it may."""
        limit = self._limits.memory_bytes
        if limit is None:
            return
        self._keep_below(limit)
        self._state.parts.trim(int(limit * FILE_SLACK))
        # Rows that are written anew have bits of their own, which may be a byte for each column more.
        self._keep_below(limit)

    def _keep_below(self, limit: int) -> None:
        held = self._state.memory.held_bytes()
        self.peak_bytes = max(self.peak_bytes, held)
        if held > limit and not self._limits.relocating:
            self._made_room(held, limit)

    def force(self, order: Force) -> None:
        """Moves groups out of memory because the coordinator says so."""
        self._spill(ForceSpilled, order.bytes, order.below, order.reason)

    def _made_room(self, held: int, limit: int) -> None:
        """Moves groups out of memory, which holds more than it may."""
        wanted = max(int(held * self._limits.spill_fraction), held - limit)
        self._spill(Spilled, wanted, None, f"{held} bytes in memory, limit {limit}")

    def _spill(self, kind: type[Event], wanted: int, below: int | None, why: str) -> None:
        watch = Watch()
        with watch:
            table = self._state.table()
            choice = self._controller.victims(table, wanted, self._state.version, below)
            self._state.parts.spill(choice.groups)
        if choice.groups:
            moved = int(table.size[list(choice.groups)].sum())
            self._happened(kind, choice.groups, moved, watch, f"{why}: {choice.reason}")

    def after_batch(self) -> int:
        """How many batches in a row have now left memory below its low-water mark."""
        if self._state.memory.held_bytes() >= self._limits.low_bytes:
            return 0
        return min(self._state.manifest.calm + 1, self._limits.calm_batches)

    def _returned(self) -> Iterator[pa.RecordBatch]:
        """Brings groups back into the room that memory has, a bounded part of it in one batch."""
        calm = self._state.manifest.calm >= self._limits.calm_batches
        if not calm or not self._table.disk_rows.any():
            return
        room = int(min(self._limits.fill_bytes - self._state.memory.held_bytes(), RELOAD_BYTES))
        table = self._state.table()
        choice = self._controller.returning(table, room, self._state.version)
        reason = f"room for {room} bytes in memory: {choice.reason}"
        missing = sorted(set(choice.groups) & self._state.parts.pending)
        yield from self._cleaned(missing, room, reason)
        # A group whose results were just made stays on disk for this batch: if more rows came for it
        # in memory, a cumulative operator would speak of it twice.
        whole = sorted(set(choice.groups) - set(missing) - self._cleaned_up)
        if whole:
            watch = Watch()
            with watch:
                self._state.parts.settle(whole, in_memory=True)
            self._happened(Reloaded, whole, int(table.disk_bytes[whole].sum()), watch, reason)

    def _cleaned(
        self,
        groups: Sequence[int],
        budget_bytes: float,
        reason: str,
        *,
        in_memory: bool | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Makes the missing results of groups, a few groups at a time, until the budget is spent.

        They return to memory if it has room for them and for what is made of them, or, if they are told
        to, for as long as it has any.
        """
        sizes = self._table.size + self._table.disk_bytes
        for few in _turns(groups, sorted(self._state.parts.pending), sizes, budget_bytes):
            watch = Watch()
            stats = OperatorStats(self._state.groups)
            rows = 0
            more = int(self._table.disk_bytes[few].sum())
            fits = self._state.memory.held_bytes() + more <= self._limits.fill_bytes
            room = self._limits.fill_bytes if in_memory is None else self._limits.memory_bytes
            ending = Ending(
                self._state,
                fits if in_memory is None else in_memory,
                (ENDLESS if room is None else room) - more,
                self._limits.made_bytes,
            )
            results = made_whole(self._operator, self._state, few, stats, ending)
            while (batch := watch.next(results)) is not None:
                rows += batch.num_rows
                yield batch
            self._cleaned_up |= set(few)
            self._state.news.cleaned += stats.outputs
            self.rows_cleaned += rows
            kind = Reloaded if ending.in_memory else CleanedUp
            self._happened(kind, few, int(sizes[few].sum()), watch, reason, rows_out=rows)

    def _happened(
        self,
        kind: type[Event],
        groups: Sequence[int],
        size: int,
        watch: Watch,
        reason: str,
        **more: int,
    ) -> None:
        batch, slot = int(self._state.version), int(self._state.manifest.slot)
        ordered = tuple(sorted(int(group) for group in groups))
        seconds = round(watch.seconds, 6)
        self.events.append(kind(batch, slot, ordered, size, seconds, reason, **more))


class Watch:
    """Seconds spent in work, without the time that results wait to be taken."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._since

    def next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        """The next result, with the time it takes to make it."""
        with self:
            return next(batches, None)


@dataclass
class Ending:
    """Where groups end that are made whole: in memory, if what is made of them has room there too."""

    state: SlotState
    in_memory: bool
    #: Bytes that memory may hold before the groups have come back.
    room_bytes: float = ENDLESS
    #: Bytes that are kept at a time.
    made_bytes: int = ENDLESS

    def keep(self, stream: int, rows: RunData) -> Segment:
        """Keeps rows that the operator makes, in memory until there is no room; then all end on disk."""
        if self.in_memory:
            held = self.state.memory.held_bytes() + rows.batch.nbytes
            self.in_memory = held <= self.room_bytes
        keep = self.state.keep if self.in_memory else self.state.parts.keep_on_disk
        return keep(stream, rows)


def made_whole(
    operator: Operator,
    state: SlotState,
    groups: Sequence[int],
    stats: OperatorStats,
    ending: Ending,
) -> Iterator[pa.RecordBatch]:
    """Makes the parts of some groups one, and yields what they have not produced together.

    This is the cleanup of DCAPE-TR 4.2. Of an additive operator the parts are added up one by one,
    oldest first; each step gives the combinations of what is there with what is added, also those that
    the operator stores. Of a cumulative one the results of all parts but the oldest are to be made. If
    the groups return to memory, their rows may be followed by others in this batch: they are processed
    together with those, so that a batch says a thing once.
    """
    gaps = state.parts.gaps_between(groups)
    keeping = Keeping(ending.keep, gaps, ending.made_bytes)
    if not operator.cumulative:
        yield from _between_parts(operator, state, groups, stats, keeping)
        state.parts.settle(groups, in_memory=ending.in_memory)
        return
    waiting = state.parts.take_waiting(groups)
    if ending.in_memory:
        state.parts.settle(groups, in_memory=True)
        for stream, segments in enumerate(waiting):
            state.staging.add_segments(stream, segments)
        return
    base = state.parts.frozen(groups)
    kept = yield from operator.missing(base, waiting, stats, state.manifest.selectivity, keeping)
    for stream, rows in enumerate(kept):
        state.add(stream, rows)
    state.parts.settle(groups, in_memory=False)


def _between_parts(
    operator: Operator,
    state: SlotState,
    groups: Sequence[int],
    stats: OperatorStats,
    keeping: Keeping,
) -> Iterator[pa.RecordBatch]:
    parts = state.parts.of(groups)
    if not parts:
        return
    made: list[list[Segment]]

    def kept(stream: int, rows: RunData) -> Segment:
        segment = keeping.keep(stream, rows)
        made[stream].append(segment)
        return segment

    base = parts[0]
    for delta in parts[1:]:
        made = [[] for _ in base]
        making = replace(keeping, keep=kept)
        yield from operator.missing(base, delta, stats, state.manifest.selectivity, making)
        base = [[*old, *new, *more] for old, new, more in zip(base, delta, made, strict=True)]


def _turns(
    groups: Sequence[int], pending: Sequence[int], sizes: NDArray[np.int64], budget_bytes: float
) -> Iterator[list[int]]:
    """The groups in turns of bounded size, each of neighbours among the pending ones."""
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
