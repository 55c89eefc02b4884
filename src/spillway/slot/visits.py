"""A batch of a time-sliced join in one slot: the visits of the batch's rows to all slots.

The first visit is a normal slot task (slot/run.py). All new rows of the batch come to every slot. Those
whose slices are here are stored, and everything that a slot task does to its state is done; then all of
them, as `Visitors`, look for partners in what is here now. Of two streams these are the results. Where
slices are stored more than once, rows come to the slots that store them and to those of the copies that
they probe (policies/ring/covering.py), and a slot may have rows of which none looks for partners in it.

Of n streams, the combinations that were found go to all slots again, n - 2 times. These later visits
only read: they open the manifest that the first one wrote, whose name the slot has sent itself through
the exchange. So a stage that runs again reads files of the attempt whose rows it reads, and any attempt
at the first visit has stored the same rows.

PSP sends rows round a ring, slot by slot (4.1); here all slots are visited at once, which takes one
exchange where the ring takes as many hops as it has nodes, and the same number of row transfers (4.3).
The slices stay where they were built, and the head of the state goes round the slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from spillway.errors import StateError
from spillway.metrics.counts import Counts, added, of_predicates
from spillway.metrics.record import SlotRecord
from spillway.operators.input import sort_input
from spillway.operators.operator import Made
from spillway.operators.stats import OperatorStats
from spillway.operators.theta.combinations import control_row, manifest_in, of_batch, of_rows
from spillway.operators.theta.sliced import Probing, SlicedJoin
from spillway.routing.groups import group_of
from spillway.routing.routing import HashRange
from spillway.slot.held import Held
from spillway.slot.job import SlotJob, manifest_name, open_state
from spillway.slot.meter import Meter
from spillway.slot.run import Attempt, run_slot
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.run import as_numpy
from spillway.state.runs.store import Store
from spillway.state.slot.state import SlotState

#: Bytes of combinations that wait in the process for the name of their manifest.
HELD_BYTES = 64 << 20


class Visitors:
    """The new rows of a batch as they come to one slot: some to stay, all to look for partners."""

    def __init__(self, join: SlicedJoin, job: SlotJob, probing: Probing) -> None:
        self._join = join
        self._job = job
        self._probing = probing
        self._owned = np.zeros(job.groups, np.bool_)
        self._owned[list(job.owned)] = True
        #: Whether the rows of each stream look for partners here.
        self._here = np.zeros(len(job.streams), np.bool_)
        self._here[list(probing.sources_at(int(job.slot)))] = True

    @property
    def complete(self) -> bool:
        """Whether what is found are results already."""
        return self._probing.visit_count == 1

    @property
    def copied(self) -> tuple[HashRange, ...]:
        """A row is counted where its first copy is."""
        return self._join.slicing.beyond_first

    def admit(self, batches: Sequence[pa.RecordBatch], state: SlotState) -> list[pa.RecordBatch]:
        """Takes rows of the batch, all of them; gives those that are stored here."""
        looking = [some for batch in batches if (some := self._looking(batch))]
        piece = sort_input(looking, self._job.streams, self._job.watermark_us)
        for stream, rows in enumerate(piece.deltas):
            state.visiting.add(stream, rows)
        copies = range(self._join.slicing.copies)
        return [mine for batch in batches for copy in copies if (mine := self._own(batch, copy))]

    def results(self, state: SlotState, stats: OperatorStats) -> Made:
        """What the visitors find, when all that is stored is there."""
        for found in state.visiting.take():
            for source, rows in enumerate(found):
                if rows is not None:
                    left = of_rows(source, rows, self._join.streams)
                    yield from self._join.step(left, state, self._probing, stats)
        state.news.produced(stats.take_outputs())

    def _looking(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The rows that look for partners here."""
        if self._here.all():
            return batch
        there = self._here[as_numpy(batch.column(0), np.int8)]
        return batch.filter(pa.array(there)) if there.any() else None

    def _own(self, batch: pa.RecordBatch, copy: int) -> pa.RecordBatch | None:
        """The rows of which a copy belongs here."""
        h = as_numpy(batch.column(1), np.uint32)
        if copy:
            h = self._join.slicing.copied(h, copy)
        mine = self._owned[group_of(h, self._job.groups)]
        if not mine.any():
            return None
        placed = batch.set_column(1, batch.schema.names[1], pa.array(h.view(np.int32)))
        return placed if mine.all() else placed.filter(pa.array(mine))


def first_visit(
    rows: Iterable[pa.RecordBatch], attempt: Attempt, probing: Probing
) -> Iterator[pa.RecordBatch]:
    """Stores the slot's rows of a batch, and lets all rows of it visit: results, or what goes on."""
    job, join = attempt.job, attempt.operator
    assert isinstance(join, SlicedJoin)
    visitors = Visitors(join, job, probing)
    yield from run_slot(rows, attempt, visitors)
    if not visitors.complete:
        yield control_row(int(job.slot), manifest_name(job), join.streams, join.types)


@dataclass(frozen=True)
class VisitRecord:
    """The answer of one slot to a visit after the first."""

    batch: int
    slot: int
    visit: int
    rows_out: int
    busy_s: float = 0.0
    cpu_s: float = 0.0
    #: What was counted of predicates; see `operators.predicates.probing.Measured`.
    measured: Counts = field(default_factory=dict)
    restored: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaterVisit:
    """Combinations that visit a slot, after the first visit of the batch."""

    #: From 2 on.
    number: int
    job: SlotJob
    join: SlicedJoin
    probing: Probing
    store: Store
    #: Takes the record when all results are taken.
    report: Callable[[VisitRecord], None]

    @property
    def last(self) -> bool:
        """Whether what is found are results."""
        return self.number == self.probing.visit_count

    def run(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields what the combinations find, and the name of the manifest if they go on."""
        job, join, meter = self.job, self.join, Meter()
        name, batches = named(rows, self.store.disk.root)
        if name is None:
            raise StateError(
                f"slot {job.slot} was not told what it stored in batch {job.batch}",
                hint="this is a fault of Spillway; the batch will be repeated when the query restarts",
            )
        stats, out = OperatorStats(job.groups), 0
        for result in meter.metered("operator", self._found(name, batches, stats)):
            out += result.num_rows if self.last else 0
            yield result
        if not self.last:
            yield control_row(int(job.slot), name, join.streams, join.types)
        self.report(self._record(out, stats, meter))

    def _found(
        self, manifest: str, batches: Iterable[pa.RecordBatch], stats: OperatorStats
    ) -> Made:
        stored = read_manifest(self.store.durable, manifest)
        state = open_state(stored, self.job, self.join, self.store)
        for batch in batches:
            for left in of_batch(batch, self.join.streams):
                yield from self.join.step(left, state, self.probing, stats)

    def _record(self, out: int, stats: OperatorStats, meter: Meter) -> VisitRecord:
        return VisitRecord(
            self.job.batch,
            int(self.job.slot),
            self.number,
            out,
            meter.busy_s,
            sum(meter.cpu_s.values()),
            of_predicates(stats.selectivity),
            tuple(self.store.restored),
        )


def named(
    rows: Iterable[pa.RecordBatch], folder: Path
) -> tuple[str | None, Iterator[pa.RecordBatch]]:
    """The manifest that some of the rows names, and all rows, those that came before it too.

    The exchange brings rows in any order, so those that come first wait; when they are many, on disk.
    """
    source, held = iter(rows), Held(HELD_BYTES, folder)
    for batch in source:
        held.add(batch)
        if (name := manifest_in(batch)) is not None:
            return name, held.then(source)
    return None, held.then(source)


def completed(record: SlotRecord, later: Sequence[VisitRecord]) -> SlotRecord:
    """The record of a slot with what its later visits have added."""
    return replace(
        record,
        rows_out=record.rows_out + sum(one.rows_out for one in later),
        busy_s=record.busy_s + sum(one.busy_s for one in later),
        cpu_s=record.cpu_s + sum(one.cpu_s for one in later),
        sampled=added([record.sampled, *(one.measured for one in later)]),
        restored=(*record.restored, *(name for one in later for name in one.restored)),
    )
