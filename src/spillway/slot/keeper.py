"""Keeps one slot's state within its memory: which groups leave, and which come back.

`MemoryKeeper` asks the controller (slot/controller.py) and does to the state what it answers. Groups
that leave are one more generation on disk. Before a batch it makes the results that parts of groups
miss between them (slot/cleanup.py): of what expires, of what was asked for, and of what memory has room
for again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from spillway.metrics.events import CleanedUp, Event, ForceSpilled, Reloaded, Spilled
from spillway.metrics.groups import GroupTable
from spillway.metrics.record import SlotRecord
from spillway.operators.operator import Made, Operator
from spillway.operators.stats import OperatorStats
from spillway.slot.cleanup import Ending, few_at_a_time, make_whole
from spillway.slot.controller import Controller
from spillway.slot.limits import ENDLESS, Limits
from spillway.slot.meter import Watch
from spillway.slot.orders import Force
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

#: Room for files in memory, as a multiple of the limit: they keep rows that were cut out of them for
#: a while, so that a spill does not have to write anew what stays.
FILE_SLACK = 1.5
#: Bytes of groups that a batch cleans up before their parts expire; the others wait for the next.
EXPIRY_BYTES = 256 << 20
#: Bytes that a batch brings back into memory.
RELOAD_BYTES = 64 << 20


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
        #: The statistics of the groups when the batch begins.
        self._table: GroupTable = state.manifest.groups
        self.events: list[Event] = []
        self.rows_cleaned = 0
        self._cleaned_up: set[int] = set()
        #: The most bytes that a check found in memory; 0 without a limit.
        self.peak_bytes = 0

    def before_batch(self, watermark_us: int | None, asked: Collection[int]) -> Made:
        """Cleans up what expires, what was asked for, and what memory has room for again."""
        if self._state.moved:
            self._table = self._state.table()
        if not self._state.parts.pending and not self._table.disk_rows.any():
            return
        # Rows that waited for groups on their way may have made parts of them already.
        self._state.parts.note_pending()
        yield from self._clean(self._state.parts.expiring(watermark_us), EXPIRY_BYTES, "expiring")
        yield from self._clean(
            sorted(self._state.parts.pending & set(asked)), math.inf, "asked for"
        )
        if not self._limits.relocating:
            yield from self._bring_back()

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
            self._make_room(held, limit)

    def force(self, order: Force) -> None:
        """Moves groups out of memory because the coordinator says so."""
        self._spill(ForceSpilled, order.bytes, order.below, order.reason)

    def _make_room(self, held: int, limit: int) -> None:
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
            self._note(kind, choice.groups, moved, watch, f"{why}: {choice.reason}")

    def calm_batches(self) -> int:
        """How many batches in a row have now left memory below its low-water mark."""
        if self._state.memory.held_bytes() >= self._limits.low_bytes:
            return 0
        return min(self._state.manifest.calm + 1, self._limits.calm_batches)

    def in_record(self, record: SlotRecord) -> SlotRecord:
        """The record with what happened to memory."""
        return replace(
            record,
            peak_bytes=self.peak_bytes,
            rows_cleaned=self.rows_cleaned,
            events=tuple(self.events),
        )

    def _bring_back(self) -> Iterator[pa.RecordBatch]:
        """Brings groups back into the room that memory has, a bounded part of it in one batch."""
        calm = self._state.manifest.calm >= self._limits.calm_batches
        if not calm or not self._table.disk_rows.any():
            return
        room = int(min(self._limits.fill_bytes - self._state.memory.held_bytes(), RELOAD_BYTES))
        table = self._state.table()
        choice = self._controller.returning(table, room, self._state.version)
        reason = f"room for {room} bytes in memory: {choice.reason}"
        missing = sorted(set(choice.groups) & self._state.parts.pending)
        yield from self._clean(missing, room, reason)
        # A group whose results were just made stays on disk for this batch: if more rows came for it
        # in memory, a cumulative operator would give its results twice.
        whole = sorted(set(choice.groups) - set(missing) - self._cleaned_up)
        if whole:
            watch = Watch()
            with watch:
                self._state.parts.settle(whole, in_memory=True)
            self._note(Reloaded, whole, int(table.disk_bytes[whole].sum()), watch, reason)

    def _clean(
        self, groups: Sequence[int], budget_bytes: float, reason: str, *, to_memory: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Makes the missing results of groups, a few groups at a time, until the budget is spent.

        They return to memory if it has room for them and for what is made of them; with `to_memory`,
        for as long as it has any.
        """
        sizes = self._table.size + self._table.disk_bytes
        for few in few_at_a_time(groups, sorted(self._state.parts.pending), sizes, budget_bytes):
            watch = Watch()
            stats = OperatorStats(self._state.groups)
            rows = 0
            ending = self._ending(few, to_memory=to_memory)
            results = make_whole(self._operator, self._state, few, stats, ending)
            while (batch := watch.next(results)) is not None:
                rows += batch.num_rows
                yield batch
            self._cleaned_up |= set(few)
            self._state.news.cleaned += stats.outputs
            self.rows_cleaned += rows
            kind = Reloaded if ending.in_memory else CleanedUp
            self._note(kind, few, int(sizes[few].sum()), watch, reason, rows_out=rows)

    def _ending(self, groups: Sequence[int], *, to_memory: bool) -> Ending:
        """Where groups end that are cleaned up."""
        more = int(self._table.disk_bytes[groups].sum())
        if to_memory:
            limit = self._limits.memory_bytes
            room = ENDLESS if limit is None else limit
            return Ending(self._state, True, room - more, self._limits.made_bytes)
        fits = self._state.memory.held_bytes() + more <= self._limits.fill_bytes
        return Ending(self._state, fits, self._limits.fill_bytes - more, self._limits.made_bytes)

    def _note(
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
