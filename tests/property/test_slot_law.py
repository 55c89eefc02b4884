"""The law of the project, without Spark: whatever happens to a slot, its results are the batch join.

Random batches go through `run_slot` with random attempts that die before they report, batches that
are lost after the sink has seen them and repeated after a restart, random restarts with other numbers
of slots, lost memory tiers, moves of groups between slots that take several batches and may fail, and
tiny merge and block sizes, so that a few hundred rows pass through everything that millions would.
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
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillway.coordinator.adaptation import Rules, adapt, begin, rescale, resume
from spillway.coordinator.checkpoint import Checkpoint
from spillway.coordinator.coordinator import (
    References,
    commit_batch,
    new_note,
    next_round,
    plan_batch,
    plan_round,
)
from spillway.coordinator.log import Mark, next_round_of
from spillway.ids import SlotId
from spillway.operators import control
from spillway.operators.base import StreamColumns
from spillway.operators.control import Limits
from spillway.operators.join import JoinOperator
from spillway.operators.slot import SlotJob, run_slot
from spillway.policies.spill import SpillPolicy
from spillway.policies.strategy import ForceSpill, Move, Strategy
from spillway.protocols.engine import busy
from spillway.protocols.messages import Received, ReceivePartitions, SendFailed, SendPartitions
from spillway.protocols.relocation import Phase
from spillway.routing.groups import group_of
from spillway.routing.routing import Routing
from spillway.settings import VICTIMS
from spillway.state import compaction, shelf, shipping
from spillway.state import slot as slot_state
from spillway.state.manifest import empty_manifest, part_manifest
from spillway.state.moving import of_move
from spillway.state.shipping import laid_out, packed, parcels, unpacked
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


def exchanged(
    rows: list[Row], slot_of: np.ndarray, slot: int, attempt: int
) -> list[pa.RecordBatch]:
    """The rows of a slot, in an order that differs from attempt to attempt."""
    mine = [
        rows[at]
        for at in np.random.default_rng(attempt).permutation(len(rows))
        if slot_of[group_of(np.array([hash_of(rows[at].key)], np.uint32), GROUPS)[0]] == slot
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
    policy: SpillPolicy = field(default_factory=SpillPolicy)
    spill_fraction: float = 0.3
    block_rows: int = 7
    results: Counter = field(default_factory=Counter)
    accepted: list[Row] = field(default_factory=list)
    late: int = 0
    late_seen: int = 0
    events: Counter = field(default_factory=Counter)
    rules: Rules = field(default_factory=lambda: Rules(Strategy("none")))
    moves: int = 0

    def __post_init__(self) -> None:
        self.streams = tuple(
            StreamColumns(f"s{i}", ("k", "t", "v"), (0, 1, 2), (0,), None if w is None else 1, w)
            for i, w in enumerate(self.windows)
        )
        self.checkpoint = Checkpoint(str(self.root / "durable"))
        self.start(self.slots)

    def start(self, slots: int) -> None:
        """A start of the query: what was begun is repeated, what moves arrives, then it has `slots`."""
        self.opened = OpenRuns()
        self.state, self.references = self.checkpoint.recover(
            len(self.streams), Routing.even(GROUPS, slots)
        )
        self.garbage: tuple[str, ...] = ()
        self.slots = slots

    def settled(self) -> None:
        """What a start does before it may change the number of slots."""
        log = self.checkpoint.log
        if (note := log.begun(next_round_of(self.state))) is not None:
            self.run(plan_round(self.state, note, self.garbage), [], [])
        if self.state.scaling is None and self.slots != self.state.routing.slots:
            for _ in range(50):
                if not self.state.moves:
                    break
                self.send(fails=False)
                self.round(0, [])
            assert not self.state.moves
            routing, count = self.state.routing.resized(self.slots), len(self.streams)
            self.state, self.references = self.checkpoint.rerouted(self.state, count, routing)

    def lose_host(self) -> None:
        shutil.rmtree(self.root / "memory", ignore_errors=True)
        self.opened = OpenRuns()

    @property
    def limits(self) -> dict[int, int | None]:
        return dict.fromkeys(range(self.state.routing.slots), self.memory_bytes)

    def batch(self, rows: list[Row], dies: list[int], lost: bool = False) -> None:
        """One batch; the slots in `dies` are first attempted and lost before they report.

        A batch that is lost has been in the sink before the query died; what comes back must be the
        same, although the settings are others.
        """
        number = self.state.batch + 1
        seen = None
        if self.checkpoint.log.begun(Mark(number)) is None:
            self.settled()
        if lost:
            plan = plan_batch(self.state, number, self.garbage, memory_bytes=self.limits)
            self.checkpoint.log.begin(Mark(number), plan.note)
            seen = self.outputs(plan, rows, [])[1]
            self.memory_bytes = None if self.memory_bytes else 600
            self.start(self.slots % 3 + 1)
        note = self.checkpoint.log.begun(Mark(number))
        plan = plan_batch(self.state, number, self.garbage, memory_bytes=self.limits, note=note)
        self.checkpoint.log.begin(Mark(number), plan.note)
        self.run(plan, rows, dies, seen)

    def round(self, cleanup_bytes: int, dies: list[int]) -> int:
        """One round of cleanup; returns how many groups still miss results."""
        if self.state.batch < 0:
            return 0
        groups = next_round(self.state, cleanup_bytes) if cleanup_bytes else ()
        plan = plan_round(self.state, new_note(self.state, self.limits, groups), self.garbage)
        self.checkpoint.log.begin(next_round_of(self.state), plan.note)
        return self.run(plan, [], dies)

    def clean_up(self) -> None:
        """Rounds until nothing is missing."""
        for _ in range(200):
            self.send(fails=False)
            if self.round(1, []) == 0 and (self.state.batch < 0 or not self.state.moves):
                return
        raise AssertionError("cleanup does not end")

    def move(self, sender: int, receiver: int, size: int, groups: int, everything: bool) -> None:
        """Begins a move, if both slots are there and free."""
        slots = self.state.routing.slots
        sender, receiver = sender % slots, receiver % slots
        if sender == receiver or busy(self.state.moves) & {sender, receiver}:
            return
        order = Move(sender, receiver, size, "a test", groups, everything)
        self.state = begin(self.state, [order])
        self.moves += 1

    def force(self, slot: int, size: int) -> None:
        if slot < self.state.routing.slots and slot not in busy(self.state.moves):
            self.state = begin(self.state, [ForceSpill(slot, size, "a test")])

    def scale(self, slots: int) -> None:
        if self.state.scaling is None and slots != self.state.routing.slots:
            self.state = rescale(self.state, slots)
            self.slots = slots

    def send(self, fails: bool) -> None:
        """Everything that has departed is received, or sending it fails."""
        for move in self.state.moves:
            if move.phase not in (Phase.SENDING, Phase.RECEIVING):
                continue
            said = [(SendPartitions(move.move), 0.0)]
            if fails:
                said.append((SendFailed(move.move, "a test"), 0.0))
            else:
                name = self.carried(move)
                said += [
                    (ReceivePartitions(move.move), 0.0),
                    (Received(move.move, name, 0, 0), 0.0),
                ]
            self.state, events = resume(self.state, said)
            assert len(events) == len(said)

    def carried(self, move) -> str:
        manifest = self.checkpoint.manifest(self.state.manifests[move.sender])
        departure, store = of_move(manifest.departures, move.move), self.store(self.state.batch)
        received = []
        for parcel in parcels(departure, GROUPS):
            time = self.streams[parcel.stream].time
            name = f"{self.state.batch:09d}-m{move.move}-{next(ATTEMPTS)}.arrow"
            received.append((parcel, unpacked(packed(parcel, time, store), name, time, store)))
        layers = laid_out(received, len(self.streams))
        part = part_manifest(SlotId(move.receiver), departure, layers, manifest.groups)
        name = f"manifests/part-{next(ATTEMPTS)}.json"
        self.checkpoint.durable.write(name, part.encode())
        return name

    def outputs(self, plan, rows: list[Row], dies: list[int]) -> tuple[dict, Counter]:
        slot_of = np.array(plan.routing.table)
        records, output = {}, Counter()
        for slot in range(plan.routing.slots):
            if slot in dies:
                for _ in self.attempt(plan, rows, slot_of, slot, lambda _: None):
                    break
            taken: list = []
            for batch in self.attempt(plan, rows, slot_of, slot, taken.append):
                assert batch.num_rows <= max(self.block_rows, 1)
                for row in batch.to_pylist():
                    output[tuple(row[s.name]["v"] for s in self.streams)] += 1
            records[slot] = taken[0]
        return records, output

    def run(self, plan, rows: list[Row], dies: list[int], seen: Counter | None = None) -> int:
        records, output = self.outputs(plan, rows, dies)
        assert seen is None or seen == output
        if self.windows[0] is not None and plan.watermark_us is not None:
            fresh = [r for r in rows if r.time >= plan.watermark_us]
            self.late += len(rows) - len(fresh)
            rows = fresh
        self.late_seen += sum(sum(r.rows_late) for r in records.values())
        lateness = [None if w is None else self.lateness for w in self.windows]
        state = commit_batch(self.state, plan, records, lateness, 1.0)
        self.state = adapt(state, records, self.limits, self.rules)
        self.checkpoint.log.append(self.state)
        self.references, gone = self.references.updated(list(records.values()))
        manifests = [self.checkpoint.manifest(name) for name in self.state.manifests if name]
        named = Counter(run for manifest in manifests for run in manifest.runs())
        assert self.references.counts == named
        arrived = [move.part for move in plan.moves if move.phase is Phase.REACTIVATING]
        carried = {run for name in arrived for run in self.checkpoint.manifest(name).runs()}
        assert carried <= set(named) | set(gone)
        self.checkpoint.discard([f"runs/{name}" for name in gone])
        self.garbage = gone
        self.accepted += rows
        self.results += output
        for record in records.values():
            self.events.update(type(event).__name__ for event in record.events)
            limit = plan.memory_bytes[record.slot]
            if limit is not None and record.slot not in plan.relocating:
                assert sum(record.state_bytes) <= limit
        self.events.update(type(event).__name__ for event in self.state.events)
        return len(self.state.pending)

    def store(self, batch: int) -> Store:
        return Store(
            LocalTier("memory", self.root / "memory"),
            LocalTier("disk", self.root / "disk"),
            self.checkpoint.durable,
            self.opened,
            batch,
        )

    def attempt(self, plan, rows, slot_of, slot, report):
        store, attempt = self.store(plan.batch), next(ATTEMPTS)
        for name in plan.garbage:
            store.forget(name)
        job = SlotJob(
            batch=plan.batch,
            slot=SlotId(slot),
            groups=GROUPS,
            streams=self.streams,
            watermark_us=plan.watermark_us,
            piece_bytes=200,
            attempt=f"{attempt}",
            worker="test",
            limits=Limits(
                plan.memory_bytes[slot],
                self.spill_fraction,
                calm_batches=2,
                relocating=slot in plan.relocating,
            ),
            cleanup=plan.cleanup,
            orders=plan.orders.get(slot, ()),
            owned=plan.routing.groups_of(SlotId(slot)),
        )
        name = plan.manifests[slot]
        manifest = (
            self.checkpoint.manifest(name)
            if name
            else empty_manifest(SlotId(slot), len(self.streams))
        )
        operator = JoinOperator(self.streams, self.block_rows)
        mine = exchanged(rows, slot_of, slot, attempt)
        return run_slot(mine, job, manifest, operator, self.policy, store, report)

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
#: Limits of one slot, from none to one that a single row exceeds.
MEMORIES = [None, 2000, 600, 200, 10]


@st.composite
def histories(draw):
    streams = draw(st.integers(2, 4))
    windowed = draw(st.booleans())
    windows = [draw(st.integers(1, 12)) if windowed else None for _ in range(streams)]
    clock = 0
    events = []
    values = itertools.count()
    slots = st.integers(0, 4)
    for _ in range(draw(st.integers(1, 16))):
        kind = draw(
            st.sampled_from(
                ["batch"] * 8
                + ["restart", "lose", "memory", "round", "force", "scale"]
                + ["move", "send"] * 3
            )
        )
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
            dies = draw(st.lists(slots, max_size=2))
            events.append(("batch", rows, dies, draw(st.integers(0, 5)) == 0))
        elif kind == "restart":
            events.append(("start", draw(st.integers(1, 5))))
        elif kind == "memory":
            events.append(("memory", draw(st.sampled_from(MEMORIES))))
        elif kind == "round":
            dies = draw(st.lists(slots, max_size=2))
            events.append(("round", draw(st.integers(0, 500)), dies))
        elif kind == "force":
            events.append(("force", draw(slots), draw(st.integers(0, 500))))
        elif kind == "scale":
            events.append(("scale", draw(st.integers(1, 5))))
        elif kind == "move":
            size, least = draw(st.integers(0, 900)), draw(st.integers(0, 2))
            events.append(("move", draw(slots), draw(slots), size, least, draw(st.booleans())))
        elif kind == "send":
            events.append(("send", draw(st.integers(0, 3)) == 0))
        else:
            events.append(("lose_host",))
    return windows, draw(st.integers(0, 5)), events


@settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    histories(),
    st.sampled_from(MEMORIES),
    st.sampled_from(VICTIMS),
    st.sampled_from([0.1, 0.3, 1.0]),
    st.booleans(),
)
def test_any_history_gives_the_batch_join(
    history, memory_bytes, victims, spill_fraction, amortised
) -> None:
    windows, lateness, events = history
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(compaction, "FAN", 2),
        mock.patch.object(compaction, "LEAST_FUEL_ROWS", 3),
        mock.patch.object(compaction, "CROWDED_LAYERS", 4),
        mock.patch.object(control, "CLEAN_STEP_BYTES", 150),
        mock.patch.object(control, "EXPIRY_BYTES", 200),
        mock.patch.object(shelf, "MOVE_BYTES", 100),
        mock.patch.object(shipping, "PARCEL_BYTES", 100),
        mock.patch.object(shipping, "PIECE_BYTES", 60),
        mock.patch.object(slot_state, "LEAST_WASTE_BYTES", 100),
        mock.patch.object(slot_state, "CROWDED_GENERATION", 3),
    ):
        policy = SpillPolicy(victims, amortised, inactive_batches=2)
        cluster = Cluster(Path(folder), windows, lateness, 2, memory_bytes, policy, spill_fraction)
        for name, *values in events:
            if name == "memory":
                cluster.memory_bytes = values[0]
            else:
                getattr(cluster, name)(*values)
        cluster.clean_up()
        assert cluster.results == cluster.expected()
        assert cluster.late == cluster.late_seen


@pytest.mark.parametrize("victims", VICTIMS)
@pytest.mark.parametrize("window", [None, 30])
def test_pressure_spills_reloads_and_cleans_up(victims: str, window: int | None) -> None:
    """The histories above may be kind to memory; this one is not, and then is."""
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as folder:
        policy = SpillPolicy(victims, inactive_batches=2)
        cluster = Cluster(Path(folder), [window] * 3, 3, 2, 900, policy, block_rows=1000)
        values = itertools.count()
        for clock in range(30):
            if clock == 20:
                cluster.memory_bytes = 100_000
            rows = [
                Row(int(s), int(k), clock, next(values))
                for s, k in zip(rng.integers(0, 3, 12), rng.integers(0, 24, 12), strict=True)
            ]
            cluster.batch(rows, [])
        cluster.clean_up()
        assert cluster.results == cluster.expected()
        assert cluster.events["Spilled"] > 3
        assert cluster.events["Reloaded"] > 0


def test_slots_added_while_groups_move_survive_a_crash_of_the_next_batch() -> None:
    values, rng = itertools.count(), np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), [None, None], 0, 2, block_rows=1000)

        def batch(lost: bool = False) -> None:
            drawn = zip(rng.integers(0, 2, 12), rng.integers(0, 10, 12), strict=True)
            cluster.batch([Row(int(s), int(k), 0, next(values)) for s, k in drawn], [], lost)

        batch()
        cluster.move(0, 1, 0, 0, True)
        for _ in range(3):
            batch()
        assert [move.phase for move in cluster.state.moves] == [Phase.SENDING]
        cluster.scale(4)
        batch(lost=True)
        assert [move.phase for move in cluster.state.moves] == [Phase.SENDING]
        cluster.clean_up()
        assert cluster.results == cluster.expected()


def test_references_drop_a_run_only_when_no_slot_names_it() -> None:
    shared = References({"r": 2})

    @dataclass
    class Answer:
        added: tuple[str, ...]
        dropped: tuple[str, ...]

    once, gone = shared.updated([Answer((), ("r",))])  # type: ignore[list-item]
    assert gone == ()
    assert once.updated([Answer(("s",), ("r",))])[1] == ("r",)  # type: ignore[list-item]
