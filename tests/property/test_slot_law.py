"""The law of the project, without Spark: whatever happens to a slot, its results are the batch join.

Random batches go through `run_slot` with random attempts that die before they report, random
restarts with other numbers of slots, lost memory tiers, and tiny merge and block sizes, so that a
few hundred rows pass through everything that millions would.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillway.coordinator.checkpoint import Checkpoint
from spillway.coordinator.coordinator import References, commit_batch, plan_batch
from spillway.ids import SlotId
from spillway.operators.base import StreamColumns
from spillway.operators.join import JoinOperator
from spillway.operators.slot import SlotJob, run_slot
from spillway.routing.groups import group_of
from spillway.state import compaction
from spillway.state.manifest import empty_manifest
from spillway.state.store import OpenRuns, Store
from spillway.state.tiers import LocalTier

GROUPS = 8


@dataclass
class Row:
    stream: int
    key: int
    time: int
    value: int


def hash_of(key: int) -> int:
    # Neighbouring keys share a hash, so that a hash match is not yet a key match.
    return ((key // 2) * 2654435761) % 2**32


def exchanged(rows: list[Row], slot_of: np.ndarray, slot: int) -> list[pa.RecordBatch]:
    mine = [
        r
        for r in rows
        if slot_of[group_of(np.array([hash_of(r.key)], np.uint32), GROUPS)[0]] == slot
    ]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([r.stream for r in mine], pa.int8()),
            pa.array(np.array([hash_of(r.key) for r in mine], np.uint32).view(np.int32)),
            pa.array([r.key for r in mine], pa.int64()),
            pa.array([r.time for r in mine], pa.timestamp("us")),
            pa.array([r.value for r in mine], pa.int64()),
        ],
        names=["_stream", "_h", "lane0", "lane1", "lane2"],
    )
    cut = len(mine) // 2
    return [batch.slice(0, cut), batch.slice(cut)] if mine else []


@dataclass
class Cluster:
    """Slots, tiers and a checkpoint, driven without Spark."""

    root: Path
    windows: list[int | None]
    lateness: int
    slots: int
    memory_bytes: int | None = None
    block_rows: int = 7
    results: Counter = field(default_factory=Counter)
    accepted: list[Row] = field(default_factory=list)
    late: int = 0
    late_seen: int = 0

    def __post_init__(self) -> None:
        self.streams = tuple(
            StreamColumns(f"s{i}", ("k", "t", "v"), (0, 1, 2), (0,), None if w is None else 1, w)
            for i, w in enumerate(self.windows)
        )
        self.checkpoint = Checkpoint(str(self.root / "durable"))
        self.start(self.slots)

    def start(self, slots: int) -> None:
        self.slots = slots
        self.opened = OpenRuns()
        self.state, self.references = self.checkpoint.recover(len(self.streams), GROUPS, slots)
        self.garbage: tuple[str, ...] = ()

    def lose_host(self) -> None:
        shutil.rmtree(self.root / "memory", ignore_errors=True)
        self.opened = OpenRuns()

    def batch(self, rows: list[Row], dies: list[int]) -> None:
        """One batch; the slots in `dies` are first attempted and lost before they report."""
        plan = plan_batch(self.state, self.state.batch + 1, self.garbage)
        slot_of = np.array(plan.routing.table)
        records, output = {}, []
        for slot in range(plan.routing.slots):
            if slot in dies:
                for _ in self.attempt(plan, rows, slot_of, slot, lambda _: None):
                    break
            taken: list = []
            for batch in self.attempt(plan, rows, slot_of, slot, taken.append):
                assert batch.num_rows <= max(self.block_rows, 1)
                output += batch.to_pylist()
            records[slot] = taken[0]
        if self.windows[0] is not None and plan.watermark_us is not None:
            fresh = [r for r in rows if r.time >= plan.watermark_us]
            self.late += len(rows) - len(fresh)
            rows = fresh
        self.late_seen += sum(sum(r.rows_late) for r in records.values())
        lateness = [None if w is None else self.lateness for w in self.windows]
        self.state = commit_batch(self.state, plan, records, lateness)
        self.checkpoint.log.append(self.state)
        self.references, gone = self.references.updated(list(records.values()))
        self.checkpoint.discard([f"runs/{name}" for name in gone])
        self.garbage = gone
        self.accepted += rows
        for row in output:
            self.results[tuple(row[s.name]["v"] for s in self.streams)] += 1

    def attempt(self, plan, rows, slot_of, slot, report):
        store = Store(
            LocalTier("memory", self.root / "memory"),
            LocalTier("disk", self.root / "disk"),
            self.checkpoint.durable,
            self.opened,
            plan.batch,
        )
        for name in plan.garbage:
            store.forget(name)
        job = SlotJob(
            batch=plan.batch,
            slot=SlotId(slot),
            groups=GROUPS,
            streams=self.streams,
            watermark_us=plan.watermark_us,
            memory_bytes=self.memory_bytes,
            piece_bytes=200,
            attempt=f"{next(ATTEMPTS)}",
            worker="test",
        )
        name = plan.manifests[slot]
        manifest = (
            self.checkpoint.manifest(name)
            if name
            else empty_manifest(SlotId(slot), len(self.streams))
        )
        operator = JoinOperator(self.streams, self.block_rows)
        return run_slot(exchanged(rows, slot_of, slot), job, manifest, operator, store, report)

    def expected(self) -> Counter:
        by_stream = [[r for r in self.accepted if r.stream == s] for s in range(len(self.streams))]
        wanted: Counter = Counter()
        for combination in itertools.product(*by_stream):
            if len({r.key for r in combination}) > 1:
                continue
            last = max(r.time for r in combination)
            if all(
                w is None or last - r.time < w
                for r, w in zip(combination, self.windows, strict=True)
            ):
                wanted[tuple(r.value for r in combination)] += 1
        return wanted


ATTEMPTS = itertools.count()


@st.composite
def histories(draw):
    streams = draw(st.integers(2, 4))
    windowed = draw(st.booleans())
    windows = [draw(st.integers(1, 12)) if windowed else None for _ in range(streams)]
    clock = 0
    events = []
    values = itertools.count()
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["batch"] * 6 + ["restart", "lose"]))
        if kind == "batch":
            clock += draw(st.integers(0, 4))
            rows = [
                Row(
                    draw(st.integers(0, streams - 1)),
                    draw(st.integers(0, 4)),
                    clock - draw(st.integers(0, 6)),
                    next(values),
                )
                for _ in range(draw(st.integers(0, 9)))
            ]
            events.append(("batch", rows, draw(st.lists(st.integers(0, 4), max_size=2))))
        elif kind == "restart":
            events.append(("restart", draw(st.integers(1, 5))))
        else:
            events.append(("lose",))
    return windows, draw(st.integers(0, 5)), events


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(histories(), st.sampled_from([None, 1500]))
def test_any_history_gives_the_batch_join(history, memory_bytes) -> None:
    windows, lateness, events = history
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(compaction, "FAN", 2),
        mock.patch.object(compaction, "LEAST_FUEL_ROWS", 3),
        mock.patch.object(compaction, "CROWDED_LAYERS", 4),
    ):
        cluster = Cluster(Path(folder), windows, lateness, 2, memory_bytes)
        for event in events:
            if event[0] == "batch":
                cluster.batch(event[1], event[2])
            elif event[0] == "restart":
                cluster.start(event[1])
            else:
                cluster.lose_host()
        assert cluster.results == cluster.expected()
        assert cluster.late == cluster.late_seen


def test_references_drop_a_run_only_when_no_slot_names_it() -> None:
    shared = References({"r": 2})

    @dataclass
    class Answer:
        added: tuple[str, ...]
        dropped: tuple[str, ...]

    once, gone = shared.updated([Answer((), ("r",))])  # type: ignore[list-item]
    assert gone == ()
    assert once.updated([Answer(("s",), ("r",))])[1] == ("r",)  # type: ignore[list-item]
