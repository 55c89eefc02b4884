"""One stage without Spark: slots that run the product's slot code, in tasks that a caller drives.

A stage works in *waves*, like Spark's stages between two exchanges: one for most operators, one for
each visit of a time-sliced join. A task is one slot in one wave. It takes rows, or the output of the
wave before, and yields batches. It reports after the consumer took the last one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.jobs import controller_of, job_of, operator_of
from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.decisions.reshaping import shapes_of
from spillway.coordinator.terms import Terms
from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.equi.join import JoinOperator
from spillway.operators.equi.outer import OuterJoin
from spillway.operators.equi.tree import TreeOperator
from spillway.operators.input import MARKER, null_number
from spillway.operators.operator import Expiring, Operator
from spillway.operators.theta.sliced import SlicedJoin
from spillway.plan.shape import Shape
from spillway.policies.local.spare import Spare
from spillway.policies.shape.shaping import Shaping
from spillway.routing.groups import group_of
from spillway.routing.routing import Routing
from spillway.rows import bounds
from spillway.settings import Adapt, parse_bytes
from spillway.slot import identity, limits
from spillway.slot.job import SlotJob
from spillway.slot.orders import pinned_groups
from spillway.slot.run import Attempt, run_slot
from spillway.slot.visits import VisitRecord, answered
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.manifest.sweeping import sweep_local
from spillway.state.runs.durable import DurableStore
from spillway.state.runs.store import Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot import staging
from spillway.testing.simulated.context import current_task
from spillway.testing.simulated.host import SimulatedHost
from spillway.testing.simulated.places import Machine
from spillway.testing.simulated.rows import (
    GROUPS,
    Exchanged,
    Row,
    Subject,
    exchanged,
    hash_of,
    matches_nothing,
)
from spillway.testing.simulated.told import Script, ToldShaping

#: The executors of a host.
EXECUTORS = 2
#: The report of one task.
TaskReport = SlotRecord | VisitRecord


def fits_memory(plan: BatchPlan, record: SlotRecord, manifest: Manifest) -> bool:
    """Whether a slot kept its limit in a batch; `manifest` is the one that it wrote."""
    limit = plan.memory_bytes[record.slot]
    if limit is None:
        return True
    # During its turn, a group larger than memory is there alone; groups of a track are on disk.
    here = manifest.groups.rows.sum(axis=0) > 0
    here[list(pinned_groups(plan.orders.get(record.slot, ())))] = False
    alone = plan.t_gap_of(record.slot) is not None and here.sum() == 1
    # Departing groups count; after the limit went down, only they may be in memory.
    return bool(alone) or sum(record.state_bytes) <= max(limit, record.leaving_bytes)


#: The narrowest row of the exchange, the widest that a join stores, and the widest of other operators,
#: which keep aggregates with texts and samples.
NARROWEST_BYTES, WIDEST_BYTES, WIDEST_AGGREGATES = 55, 200, 700


def fits_peak(stage: SimulatedStage, plan: BatchPlan, record: SlotRecord, before: Manifest) -> bool:
    """Whether a slot was never far above its limit between two checks of memory.

    A check follows every piece of input or of waiting rows. So a slot may have its limit, or what the
    batch began with if that was more, and one piece in its stored form, with all copies of a slice. An
    operator that needs a whole batch adds its rows at once; one that makes rows adds a block of those.
    Slots that rotate or move groups are exempt: groups come to memory whole.
    """
    limit, slot = plan.memory_bytes[record.slot], record.slot
    if limit is None or plan.t_gap_of(slot) is not None or plan.orders.get(slot):
        return True
    operator, had = stage.first_operator(), int(before.groups.bytes.sum())
    piece = min(parse_bytes("piece_bytes", stage.adapt.piece_bytes), bounds.JOINED_BYTES)
    if record.spooled_rows or any(before.spool.streams):
        piece = max(piece, staging.STAGED_BYTES)
    rows = piece // NARROWEST_BYTES + 1
    if isinstance(operator, SlicedJoin):
        rows *= operator.slicing.copies
    if type(operator) in (JoinOperator, OuterJoin, SlicedJoin):
        return record.peak_bytes <= max(limit, had) + rows * WIDEST_BYTES
    made = max(bounds.BLOCK_BYTES, limits.LEAST_MADE_BYTES, limit // 8)
    whole = max(rows, record.brought_rows, record.processed_rows) * WIDEST_AGGREGATES
    return record.peak_bytes <= max(limit, had) + whole + made


class SimulatedStage:
    """Slots and a checkpoint of one stage, on some hosts."""

    def __init__(
        self,
        subject: Subject,
        checkpoint: Checkpoint,
        hosts: Sequence[Machine],
        attempts: Iterator[int] | None = None,
    ) -> None:
        self.subject = subject
        self.streams = subject.streams
        self.script = Script()
        self.checkpoint = checkpoint
        self.adapt = Adapt()
        self.hosts = hosts
        #: Where slot 0 runs; the others follow.
        self.shift = 0
        self.attempts = itertools.count() if attempts is None else attempts
        #: Seconds of work per row, by slot; a millisecond for the others.
        self.row_s: Mapping[int, float] = {}
        #: The client of durable storage that a task opens.
        self.task_durable: Callable[[], DurableStore] = lambda: checkpoint.durable
        #: The `plan(...)` of a join tree; None: a script sets the shapes.
        self.plan: str | None = None
        #: The memory that slots share, if the settings have no limit.
        self.spare: Spare | None = None
        #: Wraps a local tier for the tasks.
        self.passed: Callable[[LocalTier], LocalTier] = lambda tier: tier
        self._conductor: Conductor | None = None

    # The current state

    @property
    def conductor(self) -> Conductor:
        """The driver of the stage's coordinator."""
        assert self._conductor is not None
        return self._conductor

    @conductor.setter
    def conductor(self, conductor: Conductor) -> None:
        self._conductor = conductor

    @property
    def state(self) -> Committed:
        """The committed state, updated by later messages."""
        return self.conductor.state

    @property
    def host(self) -> SimulatedHost:
        """The host of the coordinator."""
        host = self.conductor.host
        assert isinstance(host, SimulatedHost)
        return host

    def first_operator(self) -> Operator:
        """The operator at the start of the query."""
        return self.subject.operator(self.adapt.block_rows)

    @property
    def shaping(self) -> Shaping | None:
        """The shapes of a join tree; scripted ones start with the shape of the subject."""
        first, names = self.first_operator(), tuple(s.name for s in self.streams)
        if not isinstance(first, TreeOperator):
            return None
        if self.plan is not None:
            return Shaping(names, self.plan)
        return ToldShaping.of(names, first.shape, self.script)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of each slot in the next batch."""
        return shapes_of(self.state, self.shaping)

    # A start

    def coordinator_at_start(self, slots: int, lateness: int) -> Coordinator:
        """Recovers the checkpoint; returns the coordinator of a start with this many slots."""
        operator = self.first_operator()
        late = tuple(None if s.time is None else lateness for s in self.streams)
        join = operator if isinstance(operator, SlicedJoin) else None
        life_us = None
        if not operator.untracked:
            life_us = max(s.window_us or 0 for s in self.streams) + lateness
        shares = self.adapt.shares
        terms = Terms(
            late,
            self.adapt,
            life_us=life_us,
            shaping=self.shaping,
            join=join,
            spare=self.spare,
            final=isinstance(operator, Expiring),
        )
        new = Routing.shared(GROUPS, shares) if shares else Routing.even(GROUPS, slots)
        state, references = self.checkpoint.recover(len(self.streams), new)
        return Coordinator.at_start(terms, state, references, slots)

    def new_host(self) -> SimulatedHost:
        """A host for a start."""
        return SimulatedHost(self.checkpoint, len(self.streams), self.store)

    # Where state is

    def host_of(self, slot: int) -> int:
        """The number of the host that a slot runs on."""
        return (slot + self.shift) % len(self.hosts)

    def running_on(self, slot: int) -> int:
        """The number of the host of the current task; without a task, that of the slot."""
        task = current_task()
        return self.host_of(slot) if task is None else task.host

    def executor_of(self, slot: int) -> int:
        """The number of the executor on its host where a task of a slot runs."""
        task = current_task()
        return (slot if task is None else task.partition) % EXECUTORS

    def place_of(self, slot: int) -> Machine:
        """The tiers that a task of a slot uses: those of its host, or of its executor alone."""
        host = self.hosts[self.running_on(slot)]
        return host if self.adapt.share == "host" else host.executor(self.executor_of(slot))

    def store(self, batch: int, slot: int = 0) -> Store:
        """The tiers of a slot."""
        place = self.place_of(slot)
        memory, disk = (self.passed(tier) for tier in (place.memory, place.disk))
        return Store(memory, disk, self.task_durable(), place.opened, batch, slot)

    def swept_store(self, plan: BatchPlan, slot: int) -> Store:
        """The same, after deletion of known garbage, and sometimes of files that no slot needs."""
        store = self.store(plan.batch, slot)
        store.memory.mark_slot(slot, plan.batch)
        for name in plan.garbage:
            store.forget(name)
        if plan.sweeps(slot):
            self._sweep(store, plan, self.place_of(slot))
        return store

    def _sweep(self, store: Store, plan: BatchPlan, place: Machine) -> None:
        manifests = [self.manifest(plan, slot) for slot in range(plan.routing.slots)]
        sweep_local(store, manifests, plan.batch, first=plan.sweep)
        place.kept = plan.batch, frozenset([*store.memory.names(), *store.disk.names()])

    def manifest(self, plan: BatchPlan, slot: int) -> Manifest:
        """The manifest at the start of a slot's batch."""
        name = plan.manifests[slot]
        none = empty_manifest(SlotId(slot), len(self.streams))
        return self.checkpoint.manifest(name) if name else none

    # Tasks

    @property
    def waves(self) -> int:
        """The number of exchanges that the rows of a batch pass."""
        return 1

    def task(
        self,
        plan: BatchPlan,
        wave: int,
        given: Sequence[Row] | Sequence[pa.RecordBatch],
        partition: int,
        report: Callable[[TaskReport], None],
    ) -> Iterator[pa.RecordBatch]:
        """One attempt at one partition in one wave, counted from 1; in the first, `given` are rows."""
        assert wave == 1
        number = next(self.attempts)
        came = self._coming([row for row in given if isinstance(row, Row)], plan, partition, number)
        slot, rows = identity.find_slot(came, plan.routing, plan.copies)
        return iter(()) if slot is None else run_slot(rows, self.attempted(plan, slot, report))

    def attempted(
        self, plan: BatchPlan, slot: int, report: Callable[[TaskReport], None]
    ) -> Attempt:
        """The context of an attempt, without its rows."""
        return Attempt(
            self.job(plan, slot),
            self.manifest(plan, slot),
            operator_of(plan, SlotId(slot), self.adapt, self.streams, self.first_operator()),
            controller_of(plan, SlotId(slot)),
            self.swept_store(plan, slot),
            report,
        )

    def job(self, plan: BatchPlan, slot: int) -> SlotJob:
        """The job of a slot."""
        return job_of(
            plan,
            SlotId(slot),
            self.adapt,
            self.streams,
            attempt=self.checkpoint.new_attempt(),
            worker=f"host{self.running_on(slot)}/{self.executor_of(slot)}/{slot}",
        )

    def answered(self, said: Sequence[TaskReport]) -> SlotRecord | None:
        """The record of a slot, made from its reports; None: some are missing."""
        record = answered(said, self.waves)
        return None if record is None else self.timed(record)

    def timed(self, record: SlotRecord) -> SlotRecord:
        """The record with simulated times, so that a run is repeatable."""
        busy_s = self.row_s.get(record.slot, 1e-3) * max(record.processed_rows, 1)
        sampled = {k: (n, min(m, n)) for k, (n, m) in record.sampled.items()}
        return replace(record, busy_s=busy_s, cpu_s=busy_s, phases_s={}, sampled=sampled)

    def _coming(
        self, rows: Sequence[Row], plan: BatchPlan, partition: int, attempt: int
    ) -> list[pa.RecordBatch]:
        """The rows that the exchange brings to a partition: those of a slot, copies, and its marker."""
        nulls = [matches_nothing(self.subject, row) for row in rows]
        h = [0 if null else hash_of(r.key) for r, null in zip(rows, nulls, strict=True)]
        groups = group_of(np.array(h, np.uint32), GROUPS).tolist() if rows else []
        found: list[Exchanged] = []
        for row, null, hash_, group in zip(rows, nulls, h, groups, strict=True):
            stream = null_number(row.stream) if null else row.stream
            if plan.routing.table[group] == partition:
                found.append(Exchanged(stream, hash_, row))
            if not null and plan.copies.get(group) == partition:
                found.append(Exchanged(stream + identity.COPY, hash_, row))
        return exchanged([*found, Exchanged(MARKER, partition)], attempt)
