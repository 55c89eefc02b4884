"""Keeps one slot's state within its memory: which groups spill, and which return.

`MemoryKeeper` asks the controller (slot/controller.py) and carries out its answer. Groups that
spill become one more generation on disk. Before a batch, the keeper produces results that are
missing between parts of groups (slot/cleanup.py): for groups that expire, groups that the
coordinator asked for, and groups for which memory has room again. It unites parts of groups that
have many (slot/uniting.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from spillway.metrics.events import CleanedUp, Event, ForceSpilled, Reloaded, Spilled
from spillway.metrics.groups import GroupTable
from spillway.metrics.record import SlotRecord
from spillway.operators.cumulative import Cumulative
from spillway.operators.operator import Made, Operator
from spillway.operators.stats import OperatorStats
from spillway.slot.cleanup import Ending, few_at_a_time, make_whole
from spillway.slot.controller import Controller
from spillway.slot.limits import ENDLESS, Limits
from spillway.slot.meter import Watch
from spillway.slot.orders import Force
from spillway.slot.uniting import Uniting
from spillway.state.runs.merging import Segment
from spillway.state.runs.run import RunData
from spillway.state.slot.state import SlotState

#: Room for files in memory, as a multiple of the limit. Files keep removed rows for a while, so a
#: spill does not have to rewrite the rows that stay.
FILE_SLACK = 1.5
#: Bytes of groups that one batch cleans up before their parts expire; the rest wait for the next.
EXPIRY_BYTES = 256 << 20
#: Bytes that one batch loads back into memory.
RELOAD_BYTES = 64 << 20


class MemoryKeeper:
    """Keeps one slot's state within its limits, and produces the results that spilling deferred."""

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
        #: The statistics of the groups at batch start.
        self._table: GroupTable = state.manifest.groups
        self.events: list[Event] = []
        self.rows_cleaned = 0
        self._cleaned_up: set[int] = set()
        #: The most bytes that a check found in memory; 0 without a limit.
        self.peak_bytes = 0

    def before_batch(self, watermark_us: int | None, asked: Collection[int]) -> Made:
        """Cleans up groups that expire, groups asked for, and groups that fit into memory again."""
        if self._state.moved:
            self._table = self._state.table()
        if not self._state.parts.pending and not self._table.disk_rows.any():
            return
        # Rows that waited for groups in transit may already have created parts of them.
        self._state.parts.note_pending()
        expiring = self._state.parts.expiring(watermark_us, self._state.decided.until)
        yield from self._clean(expiring, EXPIRY_BYTES, "expiring")
        yield from self._clean(
            sorted(self._state.parts.pending & set(asked)), math.inf, "requested by cleanup()"
        )
        yield from self._unite_parts()
        yield from self._bring_back()

    @property
    def answered(self) -> Collection[int]:
        """The groups whose earlier rows give results in this batch, so that new rows must wait.

        Otherwise a cumulative operator would give two results for one key.
        """
        return self._cleaned_up if isinstance(self._operator, Cumulative) else ()

    def keep(self, stream: int, rows: RunData) -> list[Segment]:
        """Adds rows that the operator made in this batch, then checks memory.

        The operator may continue with opened data of groups that spill. The slot probes these
        groups on disk until the batch ends, and rows made from them follow.
        """
        segments = self._state.add_made(stream, rows)
        self.check()
        return segments

    def check(self) -> None:
        """Spills groups if memory is above its limit."""
        limit = self._limits.memory_bytes
        if limit is None:
            return
        self._keep_below(limit)
        self._state.parts.trim(int(limit * FILE_SLACK))
        # Rewritten rows have their own validity bits: up to one byte more per column.
        self._keep_below(limit)

    def _keep_below(self, limit: int) -> None:
        held = self._state.held_bytes()
        self.peak_bytes = max(self.peak_bytes, held)
        if held > limit:
            self._make_room(held, limit)
        if self._state.held_bytes() > limit:
            # What cannot spill, because it moves, stays as it is but leaves memory.
            self._state.demote(self._limits.pinned)

    def force(self, order: Force) -> None:
        """Spills groups because the coordinator orders it."""
        self._spill(ForceSpilled, order.bytes, order.below, order.reason)

    def _make_room(self, held: int, limit: int) -> None:
        """Spills groups when memory is above its limit."""
        wanted = max(int(held * self._limits.spill_fraction), held - limit)
        self._spill(Spilled, wanted, None, f"{held} bytes in memory, limit {limit}")

    def _spill(self, kind: type[Event], wanted: int, below: int | None, why: str) -> None:
        watch = Watch()
        with watch:
            table = self._movable()
            choice = self._controller.victims(table, wanted, self._state.version, below)
            self._state.parts.spill(choice.groups)
        if choice.groups:
            moved = int(table.size[list(choice.groups)].sum())
            self._note(kind, choice.groups, moved, watch, f"{why}: {choice.reason}")

    def _movable(self, staying: Collection[int] = ()) -> GroupTable:
        """Returns the statistics of the groups that may spill and return."""
        table, fixed = self._state.table(), self._limits.pinned.union(staying)
        return table.only(set(range(len(table))) - fixed) if fixed else table

    def calm_batches(self) -> int:
        """Counts consecutive batches that left memory below its low-water mark."""
        if self._state.held_bytes() >= self._limits.low_bytes:
            return 0
        return min(self._state.manifest.calm + 1, self._limits.calm_batches)

    def in_record(self, record: SlotRecord) -> SlotRecord:
        """Returns the record with the memory numbers."""
        return replace(
            record,
            peak_bytes=self.peak_bytes,
            rows_cleaned=self.rows_cleaned,
            events=tuple(self.events),
        )

    def _bring_back(self) -> Iterator[pa.RecordBatch]:
        """Loads groups into free memory, up to a limit per batch."""
        calm = self._state.manifest.calm >= self._limits.calm_batches
        if not calm or not self._table.disk_rows.any():
            return
        room = int(min(self._limits.fill_bytes - self._state.held_bytes(), RELOAD_BYTES))
        table = self._movable()
        choice = self._controller.returning(table, room, self._state.version)
        reason = f"room for {room} bytes in memory: {choice.reason}"
        missing = sorted(set(choice.groups) & self._state.parts.pending)
        yield from self._clean(missing, room, reason)
        # A group that was just cleaned up stays on disk for this batch: if more of its rows arrived
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
        """Produces the missing results of groups, a few at a time, until the budget is spent.

        The groups return to memory if they and their made rows fit; with `to_memory`, as long as
        any room is left.
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

    def _unite_parts(self) -> Iterator[pa.RecordBatch]:
        """Unites parts of groups that have many."""
        watch, rows = Watch(), 0
        stats = OperatorStats(self._state.groups)
        uniting = Uniting(self._operator, self._state, self._limits.made_bytes)
        results = uniting.results(self._table.generations, self._limits.pinned, stats)
        while (batch := watch.next(results)) is not None:
            rows += batch.num_rows
            yield batch
        if uniting.groups:
            self._state.news.cleaned += stats.outputs
            self.rows_cleaned += rows
            reason = "many parts of similar size on disk"
            self._note(CleanedUp, uniting.groups, uniting.bytes, watch, reason, rows_out=rows)

    def _ending(self, groups: Sequence[int], *, to_memory: bool) -> Ending:
        """Decides where cleaned-up groups end."""
        more = int(self._table.disk_bytes[groups].sum())
        if to_memory:
            limit = self._limits.memory_bytes
            room = ENDLESS if limit is None else limit
            return Ending(self._state, True, room - more, self._limits.made_bytes)
        fits = self._state.held_bytes() + more <= self._limits.fill_bytes
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
