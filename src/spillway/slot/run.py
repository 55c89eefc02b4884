"""One slot, one batch: results and a record from a manifest, a job and rows, without Spark.

`run_slot` consumes the slot's rows from the exchange and yields results as it finds them. After the
consumer takes the last one, it writes the manifest and reports. If the consumer stops early or
anything fails before, there is no record and no manifest names the files: the attempt has no
effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa

from spillway.metrics.record import SlotRecord
from spillway.operators.input import sort_input, without_nulls
from spillway.operators.operator import Expiring, Made, Making, Operator
from spillway.operators.stats import OperatorStats
from spillway.routing.routing import HashRange
from spillway.rows import bounds
from spillway.rows.cutting import cut_rows
from spillway.slot.admission import Admission, Cut, admission_of, closed_groups
from spillway.slot.answer import empty_record, with_files, with_state
from spillway.slot.controller import Controller
from spillway.slot.deciding import Decider
from spillway.slot.expiring import final_results
from spillway.slot.intake import Intake, rows_of
from spillway.slot.job import SlotJob, manifest_name, open_state
from spillway.slot.keeper import MemoryKeeper
from spillway.slot.meter import Meter, Tally
from spillway.slot.orders import Force
from spillway.slot.rotation import RotationKeeper
from spillway.slot.transit import Transit
from spillway.state.manifest.manifest import Manifest
from spillway.state.manifest.reading import read_manifest
from spillway.state.runs.run import RunData
from spillway.state.runs.store import Store
from spillway.state.slot.state import SlotState


@dataclass(frozen=True)
class Attempt:
    """Everything that one attempt at a slot's batch has, except its rows."""

    job: SlotJob
    #: The state that it starts with.
    manifest: Manifest
    operator: Operator
    controller: Controller
    store: Store
    #: Takes the record when everything is written.
    report: Callable[[SlotRecord], None]
    #: Called at each point the work passes; tests inject faults there.
    reach: Callable[[str], None] = lambda _: None


class Guests(Protocol):
    """Rows that visit a slot to find partners in its state; not all of them stay (PSP)."""

    @property
    def complete(self) -> bool:
        """Whether the combinations they find are results."""
        ...

    @property
    def copied(self) -> tuple[HashRange, ...]:
        """The hashes of rows that stay here but are counted elsewhere."""
        ...

    def admit(self, batches: Sequence[pa.RecordBatch], state: SlotState) -> list[pa.RecordBatch]:
        """Takes rows of the batch; returns those that stay."""
        ...

    def results(self, state: SlotState, stats: OperatorStats) -> Made:
        """Yields what they find, when the state has all rows that stay."""
        ...


def run_slot(
    rows: Iterable[pa.RecordBatch], attempt: Attempt, guests: Guests | None = None
) -> Iterator[pa.RecordBatch]:
    """Processes one batch of one slot: yields results, then commits and reports.

    With `guests`, the rows are theirs, and the slot yields what they find last.
    """
    yield from SlotBatch(attempt, guests).run(rows)


class SlotBatch:
    """One attempt at one batch of one slot, phase by phase."""

    def __init__(self, attempt: Attempt, guests: Guests | None = None) -> None:
        job = attempt.job
        self._attempt = attempt
        self._job = job
        self._guests = guests
        self._meter = Meter()
        self._tally = Tally.none(len(job.streams))
        self._state = open_state(attempt.manifest, job, attempt.operator, attempt.store)
        self._stats = OperatorStats(job.groups)
        self._rotates = job.limits.t_gap_s is not None
        read = partial(read_manifest, attempt.store.durable)
        self._transit = Transit(self._state, job.orders, read, whole=self._rotates)
        kind = RotationKeeper if self._rotates else MemoryKeeper
        self._keeper = kind(self._state, attempt.operator, attempt.controller, job.limits)
        self._decider = Decider(self._state, attempt.operator, job)

    def run(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs all phases of the batch."""
        yield from self._carry_out_orders()
        yield from self._clean_up()
        yield from self._decide()
        yield from self._give_final_results()
        self._expire_and_fill()
        self._spill()
        admission = self._admission()
        intake = Intake(
            self._state,
            self._attempt.operator,
            self._stats,
            admission,
            self._keeper.keep,
            self._job.limits.made_bytes,
        )
        yield from self._drain(intake, admission)
        yield from self._take_in(rows, intake)
        self._seal_and_compact()
        yield from self._let_guests_look()
        self._report(*self._commit())

    def _carry_out_orders(self) -> Iterator[pa.RecordBatch]:
        """Carries out the orders: groups come and go, and none spills meanwhile."""
        intake = Intake(self._state, self._attempt.operator, self._stats)
        moved = self._transit.before_batch(intake)
        yield from self._tally.count(self._meter.measure("operator", moved))

    def _clean_up(self) -> Iterator[pa.RecordBatch]:
        cleaned = self._keeper.before_batch(self._decider.watermark_us, self._job.cleanup)
        yield from self._tally.count(self._meter.measure("cleanup", cleaned))

    def _decide(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows that stay without partners, before they expire."""
        decided = self._meter.measure("decide", self._decider.results(self._stats))
        yield from self._tally.count(decided)

    def _give_final_results(self) -> Iterator[pa.RecordBatch]:
        """Yields the results of rows that expire, if the operator gives any."""
        operator, job = self._attempt.operator, self._job
        if isinstance(operator, Expiring):
            given = (operator, self._state, self._stats, job.watermark_us, job.orders)
            found = self._meter.measure("operator", final_results(*given))
            yield from self._tally.count(found)

    def _expire_and_fill(self) -> None:
        with self._meter.phase("store"):
            # A group that leaves the disk no longer makes its new rows wait.
            self._state.expire(self._decider.watermark_us, self._keeper.answered)
        operator = self._attempt.operator
        if isinstance(operator, Making):
            with self._meter.phase("fill"):
                operator.fill(self._state, self._job.limits.made_bytes)

    def _spill(self) -> None:
        with self._meter.phase("spill"):
            for order in self._job.orders:
                if isinstance(order, Force):
                    self._keeper.force(order)
            self._keeper.check()

    def _admission(self) -> Admission:
        """Returns the fates of the batch; with rotation, groups on disk are closed."""
        closed = closed_groups(self._state, self._attempt.controller, self._job.budget)
        if self._rotates:
            closed = closed | self._state.parts.deferred
        return admission_of(self._state, self._attempt.operator, self._job.orders, closed)

    def _drain(self, intake: Intake, admission: Admission) -> Iterator[pa.RecordBatch]:
        """Processes the waiting rows of groups that are open now."""
        waiting = self._state.spooler.groups & ~admission.closed
        for cut in intake.take_spooled(waiting.nonzero()[0].tolist()):
            yield from self._process(cut, intake)

    def _take_in(self, rows: Iterable[pa.RecordBatch], intake: Intake) -> Iterator[pa.RecordBatch]:
        """Processes the new rows, one piece after the other."""
        for batches in _pieces(self._tally.receive(rows), _piece_bytes(self._job)):
            yield from self._tally.count(self._decider.alone(batches))
            with self._meter.phase("sort"):
                admitted = list(intake.admit(self._sort(batches)))
            for cut in admitted:
                yield from self._process(cut, intake)
        for cut in intake.take_staged():
            yield from self._process(cut, intake)

    def _sort(self, batches: Sequence[pa.RecordBatch]) -> tuple[RunData, ...]:
        """Counts, admits and sorts the rows of a piece; returns their stored form."""
        job, guests = self._job, self._guests
        batches, nulls = without_nulls(batches, len(job.streams))
        self._tally.nulls += nulls
        if guests is not None:
            batches = guests.admit(batches, self._state)
        copied = self._transit.copied if guests is None else guests.copied
        piece = sort_input(batches, job.streams, job.watermark_us, copied)
        self._tally.add(piece)
        return self._attempt.operator.stored(piece.deltas, job.batch)

    def _process(self, cut: Cut, intake: Intake) -> Iterator[pa.RecordBatch]:
        """Yields the results of rows, adds the rows to the state, and checks memory."""
        self._tally.processed += rows_of(cut)
        results = self._meter.measure("operator", intake.results(cut))
        kept = yield from self._tally.count(results)
        self._attempt.reach("before-runs")
        with self._meter.phase("store"):
            intake.add(kept)
        with self._meter.phase("spill"):
            self._keeper.check()
        self._attempt.reach("after-spill")

    def _seal_and_compact(self) -> None:
        with self._meter.phase("spill"):
            self._state.parts.seal()
        with self._meter.phase("compact"):
            self._state.compact(self._decider.watermark_us)
        with self._meter.phase("spill"):
            # Merging may have brought rows back to memory.
            self._keeper.check()
        self._attempt.reach("after-runs")

    def _let_guests_look(self) -> Iterator[pa.RecordBatch]:
        """Yields what guests find, when the state has all rows that stay."""
        if self._guests is not None:
            found = self._meter.measure("operator", self._guests.results(self._state, self._stats))
            yield from self._tally.count(found) if self._guests.complete else found

    def _commit(self) -> tuple[str, Manifest]:
        """Writes the manifest; returns its name and its content."""
        learned = self._stats.blended(self._attempt.manifest.selectivity)
        name = manifest_name(self._job)
        with self._meter.phase("commit"):
            new = self._state.next_manifest(learned, self._keeper.calm_batches())
            self._attempt.store.durable.write(name, new.encode())
            # A record names only what survives a crash of the machine.
            self._attempt.store.durable.sync()
        self._attempt.reach("after-manifest")
        return name, new

    def _report(self, name: str, new: Manifest) -> None:
        attempt, job = self._attempt, self._job
        record = with_state(empty_record(job, name), self._state, new)
        record = with_files(record, self._state, attempt.manifest, new, attempt.store)
        record = self._transit.in_record(record, job, attempt.controller)
        for part in (self._tally, self._keeper, self._meter):
            record = part.in_record(record)
        attempt.report(record)


def _piece_bytes(job: SlotJob) -> int:
    """Returns the bytes of input per piece: small enough to check memory often."""
    limit, most = job.limits.memory_bytes, min(job.piece_bytes, bounds.JOINED_BYTES)
    return most if limit is None else min(most, max(1 << 20, limit // 4))


def _pieces(rows: Iterable[pa.RecordBatch], limit_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Splits the input into pieces of bounded size; a batch larger than memory becomes many.

    So does a batch larger than a piece. A piece is larger only if it is one row.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in (some for whole in rows for some in cut_rows(whole, limit_bytes)):
        if held and size + batch.nbytes > limit_bytes:
            yield held
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    if held:
        yield held
