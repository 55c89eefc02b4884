"""Checkpoints of two slots and two streams, made by real slots and a real coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.committed import Committed, Mark
from spillway.coordinator.batch.plan import new_note
from spillway.coordinator.coordinator import Coordinator
from spillway.coordinator.decisions.adaptation import Rules
from spillway.coordinator.terms import Terms
from spillway.coordinator.took import Took
from spillway.ids import SlotId
from spillway.metrics.record import SlotRecord
from spillway.operators.equi.join import JoinOperator
from spillway.operators.input import StreamColumns
from spillway.plan.join import JoinPlan, StreamPlan, WindowPlan
from spillway.policies.cluster.strategy import Strategy
from spillway.policies.local.controller import LocalController
from spillway.protocols.messages import Received, ReceivePartitions
from spillway.routing.groups import group_of
from spillway.slot.job import SlotJob
from spillway.slot.run import Attempt, run_slot
from spillway.state.manifest.combining import part_manifest
from spillway.state.manifest.manifest import empty_manifest
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot.fetching import fetch_all, fetches

GROUPS, SLOTS, BATCHES, KEYS = 8, 2, 3, 40
SECOND_US = 1_000_000
PLAN = JoinPlan(
    tuple(
        StreamPlan(
            name,
            (("k", "bigint"), ("t", "timestamp")),
            ("k",),
            WindowPlan("t", 60 * SECOND_US, 5 * SECOND_US),
        )
        for name in ("left", "right")
    ),
    ("bigint",),
)
COLUMNS = tuple(
    StreamColumns(name, ("k", "t"), (0, 1), (0,), 1, 60 * SECOND_US) for name in ("left", "right")
)


def rows_of(batch: int) -> pa.RecordBatch:
    """Each stream has each key once, in every batch."""
    keys = np.tile(np.arange(KEYS), 2)
    hashes = (keys * 2_654_435_761 % 2**32).astype(np.uint32)
    times = np.full(2 * KEYS, (batch + 1) * SECOND_US)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.repeat([0, 1], KEYS), pa.int16()),
            pa.array(hashes.view(np.int32)),
            pa.array(keys, pa.int64()),
            pa.array(times, pa.timestamp("us")),
        ],
        names=["_stream", "_h", "lane0", "lane1"],
    )


def store_of(root: Path, checkpoint: Checkpoint, batch: int) -> Store:
    tiers = [LocalTier(kind, root / kind) for kind in ("memory", "disk")]
    return Store(*tiers, checkpoint.durable, OpenRuns(), batch)


def coordinator_at(state: Committed) -> Coordinator:
    """A coordinator that begins nothing by itself."""
    return Coordinator(Terms((5 * SECOND_US,) * 2), state, Rules(Strategy("none")))


def run_batch(root: Path, checkpoint: Checkpoint, state: Committed, attempts: Iterator[int]) -> Any:
    coordinator = coordinator_at(state)
    plan, _ = coordinator.plan_batch(state.batch + 1)
    rows = rows_of(plan.batch)
    hashes = rows.column(1).to_numpy().view(np.uint32)
    groups = group_of(hashes, GROUPS)
    slot_of = np.array(plan.routing.table)[groups]
    copied = np.array([plan.copies.get(group, -1) for group in range(GROUPS)])[groups]
    records: dict[int, SlotRecord] = {}
    for slot in range(plan.routing.slots):
        name = plan.manifests[slot]
        manifest = checkpoint.manifest(name) if name else empty_manifest(SlotId(slot), 2)
        store = store_of(root, checkpoint, plan.batch)
        job = SlotJob(
            batch=plan.batch,
            slot=SlotId(slot),
            groups=GROUPS,
            streams=COLUMNS,
            watermark_us=plan.watermark_us,
            piece_bytes=1 << 20,
            attempt=str(next(attempts)),
            worker="test",
            orders=plan.orders.get(slot, ()),
            owned=plan.routing.groups_of(SlotId(slot)),
        )
        mine = [rows.filter(pa.array((slot_of == slot) | (copied == slot)))]
        taken: list[SlotRecord] = []
        operator = JoinOperator(COLUMNS, 1000)
        attempt = Attempt(job, manifest, operator, LocalController(), store, taken.append)
        for _ in run_slot(mine, attempt):
            pass
        records[slot] = taken[0]
    after, _ = coordinator.commit(plan, records, Took(0.0))
    checkpoint.log.append(after.state)
    return after.state


def opened(location: Path) -> tuple[Checkpoint, Committed]:
    """Another start: it has taken over."""
    checkpoint = Checkpoint(str(location / "spillway"))
    state = checkpoint.log.take_over().state
    assert state is not None
    return checkpoint, state


def logged(location: Path, **changes: object) -> None:
    """One more commit, of which only that is different."""
    checkpoint, state = opened(location)
    checkpoint.log.append(replace(state, round=state.round + 1, **changes))


def receive(location: Path, root: Path) -> str:
    """The groups that have departed are received, and a batch is begun that knows of it."""
    checkpoint, state = opened(location)
    name = state.manifests[0]
    assert name is not None
    sender = checkpoint.manifest(name)
    [departure] = sender.departures
    fetch_all(fetches(departure), store_of(root, checkpoint, state.batch))
    part = part_manifest(SlotId(1), departure, departure.streams, sender.groups)
    checkpoint.durable.write("manifests/part.json", part.encode())
    said = [ReceivePartitions(0), Received(0, "manifests/part.json", 1)]
    heard, _ = coordinator_at(state).hear([(message, 0.0) for message in said])
    checkpoint.log.begin(Mark(state.batch + 1), new_note(heard.state, {}))
    return "manifests/part.json"


def named_runs(location: Path) -> list[Path]:
    checkpoint = Checkpoint(str(location / "spillway"))
    state = checkpoint.log.latest()
    assert state is not None
    names = {run for name in state.manifests if name for run in checkpoint.manifest(name).runs()}
    return [location / "spillway" / "runs" / name for name in sorted(names)]
