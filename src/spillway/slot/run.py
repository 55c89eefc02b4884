"""One slot, one batch: the pure function of design section 2, free of Spark.

`run_slot` consumes the slot's exchanged rows, yields results as they are found, and only after the
last of them was taken writes the manifest and reports. A consumer that stops early, or a failure
anywhere before, leaves files that nobody names and no record: the attempt has not happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import pyarrow as pa

from spillway.ids import SlotId, Version
from spillway.metrics.groups import GroupTable
from spillway.metrics.record import SlotRecord
from spillway.metrics.view import profile
from spillway.operators.base import (
    MATCHED,
    SAMPLED,
    SPENT,
    Cumulative,
    Guests,
    Operator,
    OperatorStats,
    Sorted,
    StreamColumns,
    sort_input,
)
from spillway.operators.intake import Deltas, Intake
from spillway.slot.control import Controller, Limits, MemoryKeeper
from spillway.slot.gate import Budget, Gate, closed_groups
from spillway.slot.orders import Force, Order
from spillway.slot.rotation import RotationKeeper
from spillway.slot.transit import Transit
from spillway.state.manifest.manifest import Manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.store import Store
from spillway.state.slot.state import SlotState


@dataclass(frozen=True)
class SlotJob:
    """What one slot has to do in one batch, apart from its rows."""

    batch: int
    slot: SlotId
    groups: int
    streams: tuple[StreamColumns, ...]
    #: Rows before this time are late; also what state expires by. None: nothing is late yet.
    watermark_us: int | None
    piece_bytes: int
    #: Distinguishes the files of this attempt from those of any other.
    attempt: str
    worker: str
    #: Whether the slot is known from a row, and not from the place of the task alone.
    sure: bool = True
    limits: Limits = field(default_factory=Limits)
    #: Groups whose missing results are to be made in this batch.
    cleanup: tuple[int, ...] = ()
    #: What else is to be done to groups.
    orders: tuple[Order, ...] = ()
    #: The groups that are routed here; needed where some are to be chosen.
    owned: tuple[int, ...] = ()
    #: What may be processed; None: everything.
    budget: Budget | None = None
    #: The query's clock when the batch was planned.
    now_s: float = 0.0
    #: The shape that is joined in, for the record; empty where the operator has only one.
    shape: str = ""


def manifest_name(job: SlotJob) -> str:
    """What the manifest of an attempt is called."""
    return f"manifests/{job.batch:09d}-{job.slot}-{job.attempt}.json"


def opened(manifest: Manifest, job: SlotJob, operator: Operator, store: Store) -> SlotState:
    """The state that an attempt begins with."""
    return SlotState(
        manifest,
        store,
        operator.layouts,
        groups=job.groups,
        version=Version(job.batch),
        attempt=job.attempt,
        now_s=job.now_s,
    )


_T = TypeVar("_T")


@dataclass
class _Meter:
    """Processor seconds by phase, and wall seconds in all."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    busy_s: float = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.busy_s += time.perf_counter() - wall
            self.cpu_s[name] = self.cpu_s.get(name, 0.0) + time.thread_time() - cpu

    def metered(
        self, name: str, batches: Generator[pa.RecordBatch, None, _T]
    ) -> Generator[pa.RecordBatch, None, _T]:
        """The batches, with the time to make them counted and the time to take them not."""
        while True:
            with self.phase(name):
                try:
                    batch = next(batches)
                except StopIteration as end:
                    value: _T = end.value
                    return value
            yield batch


@dataclass
class _Tally:
    rows: list[int]
    late: list[int]
    max_times: list[int | None]
    out: int = 0
    #: Rows that were given to the operator, in the form in which they are kept.
    processed: int = 0

    def add(self, piece: Sorted) -> None:
        for stream, newest in enumerate(piece.max_times):
            self.rows[stream] += piece.rows[stream]
            self.late[stream] += piece.late[stream]
            seen = self.max_times[stream]
            if newest is not None and (seen is None or newest > seen):
                self.max_times[stream] = newest

    def counted(
        self, batches: Generator[pa.RecordBatch, None, _T]
    ) -> Generator[pa.RecordBatch, None, _T]:
        """The batches, with their rows counted."""
        while True:
            try:
                batch = next(batches)
            except StopIteration as end:
                value: _T = end.value
                return value
            self.out += batch.num_rows
            yield batch


def run_slot(
    rows: Iterable[pa.RecordBatch],
    job: SlotJob,
    manifest: Manifest,
    operator: Operator,
    controller: Controller,
    store: Store,
    report: Callable[[SlotRecord], None],
    reach: Callable[[str], None] = lambda _: None,
    guests: Guests | None = None,
) -> Iterator[pa.RecordBatch]:
    """Processes one batch of one slot: yields results, then commits and reports.

    `reach` is told the points of the work that are passed; tests place faults there. With `guests`, the
    rows are theirs, and what they find is yielded last.
    """
    meter = _Meter()
    state = opened(manifest, job, operator, store)
    stats = OperatorStats(job.groups)
    count = len(job.streams)
    tally = _Tally([0] * count, [0] * count, [None] * count)
    rotates = job.limits.t_gap_s is not None
    read = partial(read_manifest, store.durable)
    shadow = operator.shadow if isinstance(operator, Cumulative) else None
    transit = Transit(state, job.orders, read, whole=rotates, shadow=shadow)
    # Nothing leaves memory while groups come and go.
    moved = transit.before_batch(Intake(state, operator, stats))
    yield from tally.counted(meter.metered("operator", moved))
    kind = RotationKeeper if rotates else MemoryKeeper
    keeper = kind(state, operator, controller, job.limits)
    cleaned = keeper.before_batch(job.watermark_us, job.cleanup)
    yield from tally.counted(meter.metered("cleanup", cleaned))
    with meter.phase("store"):
        state.expire(job.watermark_us)
    with meter.phase("fill"):
        operator.fill(state, job.limits.made_bytes)
    with meter.phase("spill"):
        for order in job.orders:
            if isinstance(order, Force):
                keeper.force(order)
        keeper.check()

    intake = Intake(state, operator, stats, keeper.keep, job.limits.made_bytes)
    copied = guests.copied if guests else transit.copied
    closed = closed_groups(state, controller, job.budget)
    gate = Gate(state, closed | state.parts.deferred if rotates else closed)

    def processed(deltas: Deltas) -> Iterator[pa.RecordBatch]:
        tally.processed += sum(delta.rows for delta in deltas)
        kept = yield from tally.counted(meter.metered("operator", intake.results(deltas)))
        reach("before-runs")
        with meter.phase("store"):
            intake.add(kept)
        with meter.phase("spill"):
            keeper.check()
        reach("after-spill")

    for ready in gate.drained(intake):
        yield from processed(ready)
    for batches in _pieces(rows, _piece_bytes(job)):
        with meter.phase("sort"):
            batches = guests.admitted(batches, state) if guests else batches  # noqa: PLW2901
            piece = sort_input(batches, job.streams, job.watermark_us, copied)
            tally.add(piece)
            arrived = transit.without_parked(operator.stored(piece.deltas, job.batch))
            deltas = gate.admitted(arrived)
        for ready in intake.ready(deltas):
            yield from processed(ready)
    for ready in intake.rest():
        yield from processed(ready)
    with meter.phase("spill"):
        state.parts.seal()
    with meter.phase("compact"):
        merged = state.compact(job.watermark_us)
    reach("after-runs")
    if guests is not None:
        found = meter.metered("operator", guests.results(state, stats))
        yield from tally.counted(found) if guests.complete else found
    with meter.phase("commit"):
        new = state.next_manifest(stats.blended(manifest.selectivity), keeper.after_batch())
        name = manifest_name(job)
        store.durable.write(name, new.encode())
    reach("after-manifest")
    before, after = set(manifest.runs()), set(new.runs())
    seen = state.written | state.arrived | before | after
    report(
        SlotRecord(
            batch=job.batch,
            slot=job.slot,
            manifest=name,
            rows_in=tuple(tally.rows),
            rows_late=tuple(tally.late),
            rows_out=tally.out,
            max_times=tuple(tally.max_times),
            state_rows=new.state_rows,
            state_bytes=new.state_bytes,
            layers=state.layer_counts,
            shape=job.shape,
            made=new.made,
            lacking=tuple(n for n, gaps in zip(new.made, new.gaps, strict=True) if gaps),
            sampled={
                key: seen
                for key, seen in new.selectivity.items()
                if SAMPLED in key or key.startswith((MATCHED, SPENT))
            },
            disk_rows=new.disk_rows,
            disk_bytes=new.disk_bytes,
            pending=_pending(new.groups, state.parts.missing_in(new.groups)),
            profile=profile(new.groups),
            parked_bytes=state.parked_bytes,
            brought_rows=int(state.news.brought.sum()),
            processed_rows=tally.processed,
            spooled_rows=new.spool.rows,
            spooled_bytes=new.spool.bytes,
            chosen=transit.chosen(job.owned, controller),
            purged=transit.purged(job.watermark_us),
            peak_bytes=keeper.peak_bytes,
            rows_cleaned=keeper.rows_cleaned,
            events=tuple(keeper.events),
            expired_rows=state.expired_rows,
            merged_rows=merged,
            busy_s=meter.busy_s,
            cpu_s=sum(meter.cpu_s.values()),
            phases_s=meter.cpu_s,
            added=tuple(sorted(seen - before)),
            dropped=tuple(sorted(seen - after)),
            restored=tuple(store.restored),
            worker=job.worker,
            sure=job.sure,
        )
    )


def _pending(table: GroupTable, missing: Collection[int]) -> tuple[tuple[int, int], ...]:
    """The groups that miss results, and their bytes in all their parts."""
    ids = sorted(missing)
    sizes = (table.size + table.disk_bytes)[ids]
    return tuple(zip(ids, sizes.tolist(), strict=True))


def _piece_bytes(job: SlotJob) -> int:
    """Input that is taken at a time: little enough for memory to be checked often."""
    limit = job.limits.memory_bytes
    return job.piece_bytes if limit is None else min(job.piece_bytes, max(1 << 20, limit // 4))


def _pieces(rows: Iterable[pa.RecordBatch], limit_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """The input in pieces of bounded size; a batch larger than memory is many small ones."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size >= limit_bytes:
            yield held
            held, size = [], 0
    if held:
        yield held
