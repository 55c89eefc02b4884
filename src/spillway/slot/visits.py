"""A batch of a time-sliced join in one slot: the batch's rows visit all slots.

The first visit is a normal slot task (slot/run.py) that receives all new rows of the batch. It
stores those whose slices are here; then all rows, as `Visitors`, look for partners in this state.
With two streams, these are the results. If slices have copies, rows go only to the slots that store
them and to the copies that they probe (policies/ring/covering.py).

With n streams, the combinations found visit all slots again, n - 2 times. These later visits only
read: they open the manifest that the first visit wrote, whose name the slot has sent itself through
the exchange. So a stage that runs again reads files of the attempt whose rows it reads.

PSP sends rows round a ring, slot by slot (4.1). Here one exchange replaces the hops, with the same
number of row transfers (4.3). Slices stay where they were built.
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
from spillway.operators.input import sort_input, stream_numbers
from spillway.operators.operator import Made
from spillway.operators.stats import OperatorStats
from spillway.operators.theta.combinations import control_row, manifest_in, of_batch, of_rows
from spillway.operators.theta.sliced import Probing, SlicedJoin
from spillway.routing.groups import group_of
from spillway.routing.routing import HashRange
from spillway.slot.held import Held
from spillway.slot.job import SlotJob, manifest_name, open_state
from spillway.slot.meter import Meter, Tally
from spillway.slot.run import Attempt, run_slot
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.run import as_numpy
from spillway.state.runs.store import Store
from spillway.state.slot.state import SlotState

#: Bytes of combinations that wait in memory for the name of their manifest.
HELD_BYTES = 64 << 20


class Visitors:
    """The new rows of a batch in one slot: some stay, all look for partners."""

    def __init__(self, join: SlicedJoin, job: SlotJob, probing: Probing) -> None:
        self._join = join
        self._job = job
        self._probing = probing
        self._owned = np.zeros(job.groups, np.bool_)
        self._owned[list(job.owned)] = True
        #: For each stream, whether its rows look for partners here.
        self._here = np.zeros(len(job.streams), np.bool_)
        self._here[list(probing.sources_at(int(job.slot)))] = True

    @property
    def complete(self) -> bool:
        """Whether the combinations found are already results."""
        return self._probing.visit_count == 1

    @property
    def copied(self) -> tuple[HashRange, ...]:
        """The hashes of copies: a row is counted at its first copy."""
        return self._join.slicing.beyond_first

    def admit(self, batches: Sequence[pa.RecordBatch], state: SlotState) -> list[pa.RecordBatch]:
        """Takes all rows of the batch; returns those that are stored here."""
        looking = [some for batch in batches if (some := self._looking(batch))]
        piece = sort_input(looking, self._job.streams, self._job.watermark_us)
        for stream, rows in enumerate(piece.deltas):
            state.visiting.add(stream, rows)
        copies = range(self._join.slicing.copies)
        return [mine for batch in batches for copy in copies if (mine := self._own(batch, copy))]

    def results(self, state: SlotState, stats: OperatorStats) -> Made:
        """Yields what the visitors find, when everything is stored."""
        for found in state.visiting.take():
            for source, rows in enumerate(found):
                if rows is not None:
                    left = of_rows(source, rows, self._join.streams)
                    yield from self._join.step(left, state, self._probing, stats)
        state.news.add_outputs(stats.take_outputs())

    def _looking(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Returns the rows that look for partners here."""
        if self._here.all():
            return batch
        there = self._here[stream_numbers(batch)]
        return batch.filter(pa.array(there)) if there.any() else None

    def _own(self, batch: pa.RecordBatch, copy: int) -> pa.RecordBatch | None:
        """Returns the rows that have a copy here."""
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
    """Stores the slot's rows, then lets all rows of the batch visit."""
    job, join = attempt.job, attempt.operator
    assert isinstance(join, SlicedJoin)
    visitors = Visitors(join, job, probing)
    yield from run_slot(rows, attempt, visitors)
    if not visitors.complete:
        yield control_row(int(job.slot), manifest_name(job), join.streams, join.types)


@dataclass(frozen=True)
class VisitRecord:
    """The record of one slot for a later visit."""

    batch: int
    slot: int
    visit: int
    rows_out: int
    busy_s: float = 0.0
    cpu_s: float = 0.0
    #: Predicate counts; see `operators.predicates.probing.Measured`.
    measured: Counts = field(default_factory=dict)
    restored: tuple[str, ...] = ()
    copied: int = 0
    #: Bytes of a combination in the widest Arrow batch that came.
    input_row_bytes: int = 0


@dataclass(frozen=True)
class LaterVisit:
    """Combinations that visit a slot, after the first visit of the batch."""

    #: Starts at 2.
    number: int
    job: SlotJob
    join: SlicedJoin
    probing: Probing
    store: Store
    #: Takes the record when the consumer has taken all results.
    report: Callable[[VisitRecord], None]

    @property
    def last(self) -> bool:
        """Whether the combinations found are results."""
        return self.number == self.probing.visit_count

    def run(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields what the combinations find, and the manifest name if they go on."""
        job, join, meter = self.job, self.join, Meter()
        name, batches = find_manifest(rows, self.store.disk.root)
        if name is None:
            raise StateError(
                f"slot {job.slot} did not receive the name of its manifest of batch {job.batch}",
                hint=(
                    "this is a bug in Spillway: please report it; the query repeats the "
                    "batch when it restarts"
                ),
            )
        stats, tally = OperatorStats(job.groups), Tally.none(0)
        found = self._found(name, tally.receive(batches), stats)
        for result in meter.measure("operator", found):
            tally.out += result.num_rows if self.last else 0
            yield result
        if not self.last:
            yield control_row(int(job.slot), name, join.streams, join.types)
        self.report(self._record(tally, stats, meter))

    def _found(
        self, manifest: str, batches: Iterable[pa.RecordBatch], stats: OperatorStats
    ) -> Made:
        stored = read_manifest(self.store.durable, manifest)
        state = open_state(stored, self.job, self.join, self.store)
        for batch in batches:
            for left in of_batch(batch, self.join.streams):
                yield from self.join.step(left, state, self.probing, stats)

    def _record(self, tally: Tally, stats: OperatorStats, meter: Meter) -> VisitRecord:
        return VisitRecord(
            self.job.batch,
            int(self.job.slot),
            self.number,
            tally.out,
            meter.busy_s,
            sum(meter.cpu_s.values()),
            of_predicates(stats.selectivity),
            tuple(self.store.restored),
            self.store.memory.copies + self.store.disk.copies,
            tally.row_bytes,
        )


def find_manifest(
    rows: Iterable[pa.RecordBatch], folder: Path
) -> tuple[str | None, Iterator[pa.RecordBatch]]:
    """Finds the row that names the manifest; returns the name and all rows.

    The exchange delivers rows in any order. Rows that come first wait, on disk if there are many.
    """
    source, held = iter(rows), Held(HELD_BYTES, folder)
    for batch in source:
        held.add(batch)
        if (name := manifest_in(batch)) is not None:
            return name, held.then(source)
    return None, held.then(source)


def completed(record: SlotRecord, later: Sequence[VisitRecord]) -> SlotRecord:
    """Returns the record of a slot with the numbers of its later visits."""
    return replace(
        record,
        rows_out=record.rows_out + sum(one.rows_out for one in later),
        busy_s=record.busy_s + sum(one.busy_s for one in later),
        cpu_s=record.cpu_s + sum(one.cpu_s for one in later),
        sampled=added([record.sampled, *(one.measured for one in later)]),
        restored=(*record.restored, *(name for one in later for name in one.restored)),
        copied=record.copied + sum(one.copied for one in later),
        input_row_bytes=max((record.input_row_bytes, *(one.input_row_bytes for one in later))),
    )


def answered(attempts: Iterable[SlotRecord | VisitRecord], visits: int) -> SlotRecord | None:
    """The record of a slot over all its visits; None: some have not ended."""
    said = list(attempts)
    later: dict[int, VisitRecord] = {}
    for one in said:
        if isinstance(one, VisitRecord):
            later.setdefault(one.visit, one)
    first = next((one for one in said if isinstance(one, SlotRecord)), None)
    if first is None or len(later) < visits - 1:
        return None
    return completed(first, list(later.values()))
