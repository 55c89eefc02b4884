"""A stage under a law: it keeps what it gave, and checks what must be true after every commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.jobs import operator_of
from spillway.coordinator.batch.plan import BatchPlan
from spillway.metrics.record import SlotRecord
from spillway.operators.operator import Operator
from spillway.operators.theta.sliced import Probing
from spillway.state.runs.durable import open_durable
from spillway.state.runs.store import OpenRuns
from spillway.state.runs.tiers import LocalTier
from spillway.testing.simulated.places import Machine
from spillway.testing.simulated.rows import Row, Subject, matches_nothing
from spillway.testing.simulated.stages import SimulatedStage, fits_memory
from spillway.testing.simulated.visits import VisitedStage


@dataclass
class Ran:
    """What a stage made of the rows of a batch."""

    plan: BatchPlan
    rows: Sequence[Row]
    records: dict[int, SlotRecord]
    output: Counter[Hashable] = field(default_factory=Counter)


class LocalHost(Machine):
    """A host with directories."""

    def __init__(self, root: Path) -> None:
        tiers = (LocalTier(kind, root / kind) for kind in ("memory", "disk"))
        super().__init__(*tiers, OpenRuns())


class Held(SimulatedStage):
    """Slots, tiers and a checkpoint of one stage, and all that they gave."""

    def __init__(self, root: Path, subject: Subject, at: int = 0, hosts: int = 1) -> None:
        self.root = root / f"stage{at}"
        # All hosts share their directories; only their names differ.
        places = [LocalHost(self.root)] * hosts
        place = str(self.root / "durable")
        checkpoint = Checkpoint(place, open_durable(place, fsync=False))
        super().__init__(subject, checkpoint, places)
        #: All results, and for each batch and round its number and its results.
        self.results: Counter[Hashable] = Counter()
        self.said: list[tuple[int, Counter[Hashable]]] = []
        #: The rows that were not late, with the batch they came in.
        self.accepted: list[tuple[int, Row]] = []
        #: The rows with a NULL key or time that were not late.
        self.apart: list[Row] = []
        self.late = self.late_seen = 0
        #: The plan that ran last, and what came of it.
        self.running: Ran | None = None
        self.events: Counter[str] = Counter()

    @property
    def watermark_us(self) -> int | None:
        return self.state.watermark_us

    def operator(self, slot: int) -> Operator:
        """What a slot did in the last batch."""
        return operator_of(self.running.plan, slot, self.adapt, self.streams, self.first_operator())

    def lose_host(self) -> None:
        self.hosts[0].restart_worker()

    def ran(self, ran: Ran) -> None:
        """Takes what a step gave, before it commits."""
        self.running = ran

    def committed(self, state: Committed) -> None:
        """Takes what a committed batch gave, and checks what must be true after it."""
        ran = self.running
        rows, watermark_us = ran.rows, ran.plan.watermark_us
        null = [row for row in rows if matches_nothing(self.subject, row)]
        rows = [row for row in rows if not matches_nothing(self.subject, row)]
        self.apart += [r for r in null if in_time(r, watermark_us)]
        if self.streams[0].time is not None and watermark_us is not None:
            fresh = [r for r in rows if r.time >= watermark_us]
            self.late += len(rows) - len(fresh)
            rows = fresh
        self.late_seen += sum(sum(r.rows_late) for r in ran.records.values())
        self.accepted += [(ran.plan.batch, row) for row in rows]
        self.results += ran.output
        self.said.append((ran.plan.batch, ran.output))
        for record in ran.records.values():
            written = self.checkpoint.manifest(record.manifest)
            assert fits_memory(ran.plan, record, written)
        self.events.update(type(event).__name__ for event in state.events)

    def check_files(self) -> None:
        """The coordinator knows exactly the files that manifests name, and all of them are there."""
        manifests = [self.checkpoint.manifest(name) for name in self.state.manifests if name]
        named = Counter(run for manifest in manifests for run in manifest.runs())
        assert self.conductor.coordinator.references.counts == named
        assert set(named) <= set(self.checkpoint.durable.names("runs"))


def in_time(row: Row, watermark_us: int | None) -> bool:
    """Whether a row is not late; one without a time never is."""
    return row.time is None or watermark_us is None or row.time >= watermark_us


class SlicedHeld(Held, VisitedStage):
    """Slots that all rows visit."""

    #: How often a group was in several parts.
    parted = 0

    def probing(self, plan: BatchPlan) -> Probing:
        """That of a query; every other time with any orders."""
        found = super().probing(plan)
        rng = np.random.default_rng(plan.batch + 7 * len(self.said))
        if rng.integers(0, 2):
            return found
        streams = range(len(self.streams))
        orders = (rng.permutation([j for j in streams if j != i]).tolist() for i in streams)
        return replace(found, orders=tuple(map(tuple, orders)))

    def ran(self, ran: Ran) -> None:
        super().ran(ran)
        # A row is counted once, wherever its copies are, and late or not.
        records = ran.records.values()
        assert sum(r.rows_out for r in records) == sum(ran.output.values())
        for stream in range(len(self.streams)):
            given = sum(row.stream == stream for row in ran.rows)
            assert sum(r.rows_in[stream] for r in records) == given

    def committed(self, state: Committed) -> None:
        super().committed(state)
        # Visitors have looked into all parts of a group, so cleanup has nothing to do.
        assert state.pending == ()
        tables = [self.checkpoint.manifest(name).groups for name in state.manifests if name]
        self.parted += sum(int(table.pending.sum()) for table in tables)
