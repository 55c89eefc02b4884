"""The slot task: the function that `mapInArrow` runs in a Python worker.

It finds its slot and directories, opens the manifest, and calls `run_slot`. All that it keeps between
tasks is a cache of immutable files.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam

from spillway.coordinator.batch.jobs import controller_of, job_of, operator_of
from spillway.coordinator.batch.plan import BatchPlan
from spillway.errors import passed_to_driver
from spillway.faults import Faults, executor_pid
from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.input import StreamColumns, without_nulls
from spillway.operators.operator import Operator
from spillway.slot.identity import find_slot
from spillway.slot.job import SlotJob
from spillway.slot.run import Attempt, run_slot
from spillway.slot.visits import VisitRecord
from spillway.spark.runtime.exchange.lanes import stored_as
from spillway.spark.runtime.home import Home
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.manifest.sweeping import sweep_local
from spillway.state.runs.durable import DurableStore
from spillway.state.runs.store import Store


@dataclass(frozen=True)
class SlotTask:
    """Everything that the tasks of one batch get."""

    home: Home
    plan: BatchPlan
    streams: tuple[StreamColumns, ...]
    operator: Operator
    #: Tells the answers of these tasks from late ones of others.
    evaluation: int
    #: Passes rows through without state: the identity plan.
    identity: bool = False
    faults: Faults = field(default_factory=Faults)

    def function(
        self, records: Any
    ) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """The function for mapInArrow; `records` is the accumulator that carries the answers."""

        def run(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with passed_to_driver():
                yield from self._run(rows, records)

        return run

    def _run(self, rows: Iterable[pa.RecordBatch], records: Any) -> Iterator[pa.RecordBatch]:
        slot, rows = self._found(rows)
        if slot is None:
            return
        if self.identity:
            yield from _identity(rows, slot, self, records)
            return
        store = self._store(slot)
        attempt = Attempt(
            self._job(slot),
            self._manifest(store.durable, slot),
            operator_of(self.plan, slot, self.home.adapt, self.streams, self.operator),
            controller_of(self.plan, slot),
            store,
            lambda record: records.add({(self.evaluation, record.slot): (record,)}),
            self.faults.bound(self.plan.batch, slot),
        )
        yield from run_slot(map(as_stored, rows), attempt)

    def _store(self, slot: SlotId) -> Store:
        """The tiers of the host, after known garbage is deleted."""
        store = self.home.store(self.plan.batch, slot)
        store.memory.mark_slot(slot, self.plan.batch)
        for name in self.plan.garbage:
            store.forget(name)
        if self.plan.sweeps(slot):
            self._sweep(store)
            self.home.reap()
        return store

    def _job(self, slot: SlotId) -> SlotJob:
        return job_of(
            self.plan,
            slot,
            self.home.adapt,
            self.streams,
            attempt=self.home.new_attempt(),
            worker=f"{socket.gethostname()}/{executor_pid()}/{os.getpid()}",
        )

    def _sweep(self, store: Store) -> None:
        """Removes local files that no slot of this host needs."""
        slots = map(SlotId, range(self.plan.routing.slots))
        manifests = [self._manifest(store.durable, slot) for slot in slots]
        sweep_local(store, manifests, self.plan.batch, first=self.plan.sweep)

    def _found(
        self, rows: Iterable[pa.RecordBatch]
    ) -> tuple[SlotId | None, Iterable[pa.RecordBatch]]:
        """The slot of the rows, and the rows without markers."""
        return find_slot(rows, self.plan.routing, self.plan.copies)

    def _manifest(self, durable: DurableStore, slot: SlotId) -> Manifest:
        name = self.plan.manifests[slot]
        if name is None:
            return empty_manifest(slot, len(self.streams))
        return read_manifest(durable, name)


#: For each evaluation and slot, the records of all attempts, in order of arrival.
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
        some, _ = without_nulls([batch], len(task.streams))
        count += sum(one.num_rows for one in some)
        yield from some
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
        worker=f"{socket.gethostname()}/{executor_pid()}/{os.getpid()}",
    )
    records.add({(task.evaluation, int(slot)): (record,)})
