"""One stage under a law: slots that run the product's slot code, and what they gave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from law.host import ATTEMPTS, LawHost
from law.rows import GROUPS, Row, Subject, exchanged, hash_of
from law.told import Script, ToldShaping
from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.jobs import controller_of, job_of, operator_of
from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.decisions.reshaping import shapes_of
from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.equi.intermediate import time_columns
from spillway.operators.equi.tree import TreeOperator
from spillway.operators.operator import Operator
from spillway.plan.shape import Shape
from spillway.routing.groups import group_of
from spillway.settings import Adapt
from spillway.slot.job import SlotJob
from spillway.slot.run import Attempt, run_slot
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier


@dataclass
class Results:
    """What a stage makes of the rows of a batch."""

    rows: list[Row]
    batches: list[pa.RecordBatch] = field(default_factory=list)
    records: dict[int, SlotRecord] = field(default_factory=dict)
    output: Counter[Hashable] = field(default_factory=Counter)


class Held:
    """Slots, tiers and a checkpoint of one stage, and all that they gave."""

    def __init__(self, root: Path, subject: Subject, at: int = 0) -> None:
        self.root = root / f"stage{at}"
        self.subject = subject
        self.streams = subject.streams
        self.script = Script()
        self.checkpoint = Checkpoint(str(self.root / "durable"))
        self.adapt = Adapt()
        self.opened = OpenRuns()
        self.conductor: Conductor | None = None
        #: Slots whose first attempt is lost before it reports.
        self.dies: Sequence[int] = ()
        #: How long a slot works for a row; others take a millisecond.
        self.row_s: Mapping[int, float] = {}
        #: How many hosts the slots are on.
        self.hosts = 1
        #: All results, and for each batch and round its number and its results.
        self.results: Counter[Hashable] = Counter()
        self.said: list[tuple[int, Counter[Hashable]]] = []
        #: The rows that were not late, with the batch they came in.
        self.accepted: list[tuple[int, Row]] = []
        self.late = self.late_seen = 0
        #: The plan that ran last, and what came of it.
        self.running: tuple[BatchPlan, Results] | None = None
        self.events: Counter[str] = Counter()

    # What is so now

    @property
    def state(self):
        return self.conductor.state

    def first_operator(self) -> Operator:
        return self.subject.operator(self.adapt.block_rows)

    @property
    def shaping(self) -> ToldShaping | None:
        """What shapes there may be of a join tree; it begins with that of the subject."""
        first = self.first_operator()
        if not isinstance(first, TreeOperator):
            return None
        return ToldShaping.of(tuple(s.name for s in self.streams), first.shape, self.script)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of each slot in the next batch."""
        return shapes_of(self.state, self.shaping)

    def operator(self, slot: int) -> Operator:
        """What a slot did in the last batch."""
        plan, _ = self.running
        return operator_of(plan, slot, self.adapt, self.streams, self.first_operator())

    def lose_host(self) -> None:
        self.opened = OpenRuns()

    def host(self) -> LawHost:
        times = partial(time_columns, self.first_operator().layouts, self.streams)
        host = LawHost(self.checkpoint, len(self.streams), self.store, times)
        host.committed = self.committed
        return host

    def store(self, batch: int) -> Store:
        return Store(
            LocalTier("memory", self.root / "memory"),
            LocalTier("disk", self.root / "disk"),
            self.checkpoint.durable,
            self.opened,
            batch,
        )

    def manifest(self, plan: BatchPlan, slot: int) -> Manifest:
        name = plan.manifests[slot]
        none = empty_manifest(SlotId(slot), len(self.streams))
        return self.checkpoint.manifest(name) if name else none

    # One batch

    def results_of(self, rows: list[Row], plan: BatchPlan) -> Results:
        """Runs all slots; those in `dies` are first attempted and lost."""
        found = Results(rows)
        for slot in range(plan.routing.slots):
            if slot in self.dies:
                for _ in self._attempt(plan, rows, slot, lambda _: None):
                    break
            taken: list[SlotRecord] = []
            for batch in self._attempt(plan, rows, slot, taken.append):
                assert batch.num_rows <= max(self.adapt.block_rows, 1)
                found.batches.append(batch)
                found.output.update(self.subject.read(batch))
            found.records[slot] = self.timed(taken[0])
        self.running = plan, found
        return found

    def _attempt(self, plan, rows, slot, report) -> Iterator[pa.RecordBatch]:
        attempt = next(ATTEMPTS)
        operator = operator_of(plan, slot, self.adapt, self.streams, self.first_operator())
        attempted = Attempt(
            self.job(plan, slot, attempt),
            self.manifest(plan, slot),
            operator,
            controller_of(self.adapt, SlotId(slot)),
            self.swept_store(plan),
            report,
        )
        return run_slot(self._exchanged(rows, plan, slot, attempt), attempted)

    def job(self, plan: BatchPlan, slot: int, attempt: int) -> SlotJob:
        worker = f"host{slot % self.hosts}/1/{slot}"
        names = {"attempt": f"{attempt}", "worker": worker}
        return job_of(plan, SlotId(slot), self.adapt, self.streams, **names)

    def swept_store(self, plan: BatchPlan) -> Store:
        store = self.store(plan.batch)
        for name in plan.garbage:
            store.forget(name)
        return store

    def timed(self, record: SlotRecord) -> SlotRecord:
        """The record with times that a history says, so that what follows from them is repeatable."""
        busy_s = self.row_s.get(record.slot, 1e-3) * max(record.processed_rows, 1)
        sampled = {k: (n, min(m, n)) for k, (n, m) in record.sampled.items()}
        return replace(record, busy_s=busy_s, cpu_s=busy_s, phases_s={}, sampled=sampled)

    def _exchanged(self, rows, plan, slot, attempt) -> list[pa.RecordBatch]:
        h = [hash_of(r.key) for r in rows]
        groups = group_of(np.array(h, np.uint32), GROUPS).tolist() if rows else []
        mine = [
            at
            for at, group in enumerate(groups)
            if slot in (plan.routing.table[group], plan.copies.get(group))
        ]
        return exchanged([rows[at] for at in mine], [h[at] for at in mine], attempt)

    # After a commit

    def committed(self, state: Committed) -> None:
        """Takes what a committed batch gave, and checks what must be true after it."""
        plan, found = self.running
        rows = found.rows
        if self.streams[0].time is not None and plan.watermark_us is not None:
            fresh = [r for r in rows if r.time >= plan.watermark_us]
            self.late += len(rows) - len(fresh)
            rows = fresh
        self.late_seen += sum(sum(r.rows_late) for r in found.records.values())
        self.accepted += [(plan.batch, row) for row in rows]
        self.results += found.output
        self.said.append((plan.batch, found.output))
        for record in found.records.values():
            self._check_memory(plan, record)
        self.events.update(type(event).__name__ for event in state.events)

    def check_files(self) -> None:
        """The coordinator knows exactly the files that manifests name, and all of them are there."""
        manifests = [self.checkpoint.manifest(name) for name in self.state.manifests if name]
        named = Counter(run for manifest in manifests for run in manifest.runs())
        assert self.conductor.coordinator.references.counts == named
        assert set(named) <= set(self.checkpoint.durable.names("runs"))

    def _check_memory(self, plan: BatchPlan, record: SlotRecord) -> None:
        limit = plan.memory_bytes[record.slot]
        if limit is None or record.slot in plan.relocating:
            return
        # A group that is larger than memory has it to itself for its turn.
        here = self.checkpoint.manifest(record.manifest).groups.rows.sum(axis=0) > 0
        alone = plan.t_gap_of(record.slot) is not None and here.sum() == 1
        assert alone or sum(record.state_bytes) <= limit
