"""The slot task: the function that `mapInArrow` runs in a Python worker.

It finds its slot and directories, opens the manifest, and calls `run_slot`. All that it keeps between
tasks is a cache of immutable files.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from spillway.coordinator.batch.jobs import controller_of, job_of, operator_of
from spillway.coordinator.batch.plan import BatchPlan
from spillway.errors import SpillwayError
from spillway.faults import Faults, executor_pid
from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.routing.groups import group_of
from spillway.slot.job import SlotJob
from spillway.slot.run import Attempt, run_slot
from spillway.slot.visits import VisitRecord
from spillway.spark.runtime.home import Home
from spillway.spark.runtime.lanes import COPY, stored_as
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.run import as_numpy
from spillway.state.runs.store import Store
from spillway.state.runs.tiers import DurableTier


@dataclass(frozen=True)
class SlotTask:
    """Everything that the tasks of one batch get."""

    home: Home
    plan: BatchPlan
    streams: tuple[StreamColumns, ...]
    operator: Operator
    #: Passes rows through without state: the identity plan.
    identity: bool = False
    faults: Faults = field(default_factory=Faults)

    def function(
        self, records: Any
    ) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """The function for mapInArrow; `records` is the accumulator that carries the answers."""

        def run(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            try:
                yield from self._run(rows, SlotId(context.partitionId()), records)
            except SpillwayError as error:
                raise RuntimeError(error.to_wire()) from error

        return run

    def _run(
        self, rows: Iterable[pa.RecordBatch], slot: SlotId, records: Any
    ) -> Iterator[pa.RecordBatch]:
        if self.identity:
            yield from _identity(rows, slot, self, records)
            return
        slot, rows, sure = self._found(rows, slot)
        if slot >= self.plan.routing.slots:
            return
        store = self._store()
        attempt = Attempt(
            self._job(slot, sure=sure),
            self._manifest(store.durable, slot),
            operator_of(self.plan, slot, self.home.adapt, self.streams, self.operator),
            controller_of(self.home.adapt, slot),
            store,
            lambda record: records.add({(record.batch, record.slot): (record,)}),
            self.faults.bound(self.plan.batch, slot),
        )
        yield from run_slot(map(as_stored, rows), attempt)

    def _store(self) -> Store:
        """The tiers of the host, after known garbage is deleted."""
        store = self.home.store(self.plan.batch)
        for name in self.plan.garbage:
            store.forget(name)
        if self.plan.sweep:
            self._sweep(store)
        return store

    def _job(self, slot: SlotId, *, sure: bool) -> SlotJob:
        return job_of(
            self.plan,
            slot,
            self.home.adapt,
            self.streams,
            attempt=uuid.uuid4().hex[:12],
            worker=f"{socket.gethostname()}/{executor_pid()}/{os.getpid()}",
            sure=sure,
        )

    def _sweep(self, store: Store) -> None:
        """Removes the local files of attempts that died before their commit.

        It keeps files of this batch, which other slots of the host may be writing. It also keeps files
        that a slot is fetching; they have the name of their run with a prefix and a suffix.
        """
        slots = range(self.plan.routing.slots)
        named = {run for s in slots for run in self._manifest(store.durable, SlotId(s)).runs()}
        for tier in (store.memory, store.disk):
            for name in tier.names():
                run = name[1:].rpartition(".")[0] if name.startswith(".") else name
                batch = run.split("-", 1)[0]
                if run not in named and batch.isdigit() and int(batch) < self.plan.batch:
                    tier.delete(name)

    def _found(
        self, rows: Iterable[pa.RecordBatch], place: SlotId
    ) -> tuple[SlotId, Iterable[pa.RecordBatch], bool]:
        """The slot of the rows, from a hash: a sink that coalesces or unites renumbers the tasks.

        Without rows only the task number tells, which may be wrong, so the result is not sure. This
        drops rows that exist only to tell the slot.
        """
        rows = iter(rows)
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is None:
            return place, (), False
        h = as_numpy(first.column(1), np.uint32)[:1]
        group = int(group_of(h, self.plan.routing.groups)[0])
        copied = as_numpy(first.column(0), np.int8)[0] >= COPY
        slot = self.plan.copies[group] if copied else self.plan.routing.table[group]
        mine = map(unmarked, chain([first], rows))
        return SlotId(slot), filter(len, mine), True

    def _manifest(self, durable: DurableTier, slot: SlotId) -> Manifest:
        name = self.plan.manifests[slot]
        if name is None:
            return empty_manifest(slot, len(self.streams))
        return read_manifest(durable, name)


#: For each batch and slot, the records of all attempts, in order of arrival.
Attempts = dict[tuple[int, int], tuple[SlotRecord | VisitRecord, ...]]


class Records(AccumulatorParam[Attempts]):
    """Collects the records of each slot in order of arrival."""

    def zero(self, value: Attempts) -> Attempts:
        """No records."""
        return type(value)()

    def addInPlace(self, value1: Attempts, value2: Attempts) -> Attempts:
        """Both, earlier records first."""
        return {
            at: (*value1.get(at, ()), *value2.get(at, ())) for at in value1.keys() | value2.keys()
        }


def unmarked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of streams, without rows that only tell the slot; copies become rows of their stream."""
    stream = as_numpy(batch.column(0), np.int8)
    if stream.max(initial=0) >= COPY:
        plain = np.where(stream >= COPY, stream - COPY, stream).astype(np.int8)
        batch = batch.set_column(0, batch.schema.names[0], pa.array(plain))
    return batch if stream.min(initial=0) >= 0 else batch.filter(pa.array(stream >= 0))


def as_stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same values with their stored types."""
    wanted = [stored_as(one.type) for one in batch.schema]
    if all(kind == one.type for kind, one in zip(wanted, batch.schema, strict=True)):
        return batch
    columns = [column.cast(kind) for column, kind in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _identity(
    rows: Iterable[pa.RecordBatch], slot: SlotId, task: SlotTask, records: Any
) -> Iterator[pa.RecordBatch]:
    count = 0
    for batch in rows:
        count += batch.num_rows
        yield batch
    none = (0,) * len(task.streams)
    record = SlotRecord(
        batch=task.plan.batch,
        slot=slot,
        manifest="",
        rows_in=(count, *none[1:]),
        rows_late=none,
        rows_out=count,
        max_times=(None,) * len(task.streams),
        state_rows=none,
        state_bytes=none,
        layers=none,
        sure=count > 0,
        worker=f"{socket.gethostname()}/{executor_pid()}/{os.getpid()}",
    )
    records.add({(task.plan.batch, int(slot)): (record,)})
