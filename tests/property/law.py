"""Slots, tiers and a checkpoint, driven without Spark, with any operator in them.

A `Subject` is what a law is held for: an operator, how its results are read, and what they must be.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.checkpoint.log import Mark, next_round_of
from spillway.coordinator.adaptation import Rules, adapt, begin, give_up, rescale, resume, tire
from spillway.coordinator.coordinator import (
    BatchPlan,
    Note,
    commit_batch,
    new_note,
    next_round,
    plan_batch,
    plan_round,
)
from spillway.coordinator.reshaping import reshape, shapes_of
from spillway.ids import SlotId
from spillway.operators.equi.tree import TreeOperator
from spillway.operators.input import StreamColumns
from spillway.operators.operator import Operator
from spillway.plan.shape import Shape
from spillway.policies.cluster.strategy import ForceSpill, Move, Strategy
from spillway.policies.local.controller import LocalController
from spillway.policies.shape.shaping import TREE, Shaping, SlotShape
from spillway.protocols.engine import busy
from spillway.protocols.messages import Received, ReceivePartitions, SendFailed, SendPartitions
from spillway.protocols.move import Phase
from spillway.protocols.parallel_track import ParallelTrack
from spillway.routing.groups import group_of
from spillway.routing.routing import Routing
from spillway.slot.job import SlotJob
from spillway.slot.limits import Budget, Limits
from spillway.slot.run import Attempt, run_slot
from spillway.state.layout.moving import of_move
from spillway.state.manifest import Manifest, empty_manifest, matched, part_manifest
from spillway.state.runs.store import OpenRuns, Store
from spillway.state.runs.tiers import LocalTier
from spillway.state.slot.shipping import laid_out, packed, parcels, unpack

GROUPS = 8
ATTEMPTS = itertools.count()


@dataclass(frozen=True)
class Row:
    stream: int
    key: int | None
    time: int
    #: Its own for every row.
    value: int

    @property
    def amount(self) -> int | None:
        """A number that rows share, sometimes NULL."""
        return None if self.value % 4 == 3 else self.value * 7 % 5 - 2


def hash_of(key: int | None) -> int:
    # Neighbouring keys share a hash, so that a hash match is not yet a key match.
    return ((0 if key is None else key // 2) * 2654435761) % 2**32


def exchanged(rows: list[Row], plan: BatchPlan, slot: int, attempt: int) -> list[pa.RecordBatch]:
    """The rows of a slot, in an order that differs from attempt to attempt."""
    groups = [int(group_of(np.array([hash_of(r.key)], np.uint32), GROUPS)[0]) for r in rows]
    mine = [
        rows[at]
        for at in np.random.default_rng(attempt).permutation(len(rows))
        if slot in (plan.routing.table[groups[at]], plan.copies.get(groups[at]))
    ]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([r.stream for r in mine], pa.int8()),
            pa.array(np.array([hash_of(r.key) for r in mine], np.uint32).view(np.int32)),
            pa.array([r.key for r in mine], pa.int64()),
            pa.array([r.time for r in mine], pa.timestamp("us")),
            pa.array([r.value for r in mine], pa.int64()),
            pa.array([r.amount for r in mine], pa.int64()),
        ],
        names=["_stream", "_h", "lane0", "lane1", "lane2", "lane3"],
    )
    cut = len(mine) // 2
    return [batch.slice(0, cut), batch.slice(cut)] if mine else []


class Subject(Protocol):
    """An operator, and the law that its results follow."""

    #: The input.
    streams: tuple[StreamColumns, ...]
    #: Whether rows may have NULL as their key.
    null_keys: bool

    def operator(self, block_rows: int) -> Operator: ...

    def read(self, batch: pa.RecordBatch) -> Iterable[Hashable]:
        """The results of a batch as values."""
        ...

    def check(self, cluster: Cluster) -> None:
        """Whether what was said is right, when nothing is missing any more."""
        ...


class AsTold(Shaping):
    """Slots have the shapes that a history gives them, whatever they measure."""

    def decided(self, slot, known, room_bytes):
        return None, known


@dataclass
class Cluster:
    """Slots, tiers and a checkpoint, driven without Spark."""

    root: Path
    subject: Subject
    lateness: int
    slots: int
    memory_bytes: int | None = None
    policy: LocalController = field(default_factory=LocalController)
    spill_fraction: float = 0.3
    #: Seconds of a turn where groups take turns in memory; None: they leave in generations.
    t_gap_s: float | None = None
    block_rows: int = 7
    #: All results, and for each batch and round its number and its results.
    results: Counter = field(default_factory=Counter)
    said: list[tuple[int, Counter]] = field(default_factory=list)
    #: The rows that were not late, with the batch they came in.
    accepted: list[tuple[int, Row]] = field(default_factory=list)
    late: int = 0
    late_seen: int = 0
    events: Counter = field(default_factory=Counter)
    rules: Rules = field(default_factory=lambda: Rules(Strategy("none")))
    moves: int = 0

    def __post_init__(self) -> None:
        self.streams = self.subject.streams
        first = self.subject.operator(self.block_rows)
        #: What shapes there may be of a join tree; it begins with that of the subject.
        self.shaping: Shaping | None = None
        if isinstance(first, TreeOperator):
            self.shaping = AsTold(tuple(one.name for one in self.streams), TREE, first.shape)
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
                self.give_up()
                self.round(0, [])
            assert not self.state.moves
            copies, count = getattr(self.subject, "copies", 1), len(self.streams)
            routing = self.state.routing.resized(self.slots, copies)
            self.state, self.references = self.checkpoint.rerouted(self.state, count, routing)

    def lose_host(self) -> None:
        shutil.rmtree(self.root / "memory", ignore_errors=True)
        self.opened = OpenRuns()

    @property
    def limits(self) -> dict[int, int | None]:
        return dict.fromkeys(range(self.state.routing.slots), self.memory_bytes)

    @property
    def gaps(self) -> dict[int, float]:
        return {} if self.t_gap_s is None else dict.fromkeys(range(GROUPS), self.t_gap_s)

    def batch(
        self, rows: list[Row], dies: list[int], lost: bool = False, budget: Budget | None = None
    ) -> None:
        """One batch; the slots in `dies` are first attempted and lost before they report.

        A batch that is lost has been in the sink before the query died; what comes back must be the
        same, although the settings are others.
        """
        number = self.state.batch + 1
        seen = None
        budgets = {} if budget is None else dict.fromkeys(range(GROUPS), budget)
        if self.checkpoint.log.begun(Mark(number)) is None:
            self.settled()
        if lost:
            plan = self.planned(number, budgets)
            self.checkpoint.log.begin(Mark(number), plan.note)
            seen = self.outputs(plan, rows, [])[1]
            self.memory_bytes, budgets = None if self.memory_bytes else 600, {}
            self.t_gap_s = 1.0 if self.t_gap_s is None else None
            begun = self.state.moves_begun
            self.start(self.slots % 3 + 1)
            # A move that the history begins is in the note, and in no record.
            self.state = replace(self.state, moves_begun=begun)
        note = self.checkpoint.log.begun(Mark(number))
        plan = self.planned(number, budgets, note)
        self.checkpoint.log.begin(Mark(number), plan.note)
        self.run(plan, rows, dies, seen)

    def planned(
        self, number: int, budgets: dict[int, Budget], note: Note | None = None
    ) -> BatchPlan:
        return plan_batch(
            self.state,
            number,
            self.garbage,
            memory_bytes=self.limits,
            budgets=budgets,
            t_gaps_s=self.gaps,
            shapes=self.shapes,
            note=note,
        )

    def round(self, cleanup_bytes: int, dies: list[int]) -> int:
        """One round of cleanup; returns how many groups still miss results."""
        if self.state.batch < 0:
            return 0
        groups = next_round(self.state, cleanup_bytes) if cleanup_bytes else ()
        # What is left gets its turns at once.
        gaps = dict.fromkeys(self.gaps, 0.0)
        note = new_note(self.state, self.limits, groups, t_gaps_s=gaps, shapes=self.shapes)
        plan = plan_round(self.state, note, self.garbage)
        self.checkpoint.log.begin(next_round_of(self.state), plan.note)
        return self.run(plan, [], dies)

    def clean_up(self) -> None:
        """Rounds until nothing is missing, nothing waits and nothing moves."""
        for _ in range(200):
            self.send(fails=False)
            self.give_up()
            missing = self.round(1, [])
            waits = self.state.spooled_rows or self.state.moves
            if not missing and (self.state.batch < 0 or not waits):
                return
        raise AssertionError("cleanup does not end")

    def give_up(self) -> None:
        """Ends parallel tracks without waiting for their old rows."""
        self.state, events = give_up(self.state, "a test")
        self.events.update(type(event).__name__ for event in events)

    def tire(self) -> None:
        """Ends parallel tracks that have lasted too long; a batch takes a second."""
        self.state, events = tire(self.state, self.rules, 1.0)
        self.events.update(type(event).__name__ for event in events)

    def move(
        self,
        sender: int,
        receiver: int,
        size: int,
        groups: int,
        everything: bool,
        protocol: str = "mslb",
    ) -> None:
        """Begins a move, if both slots are there and free."""
        if self.operator(0).untracked:
            protocol = "mslb"
        slots = self.state.routing.slots
        sender, receiver = sender % slots, receiver % slots
        if sender == receiver or busy(self.state.moves) & {sender, receiver}:
            return
        order = Move(sender, receiver, size, "a test", groups, everything, protocol=protocol)
        self.state = begin(self.state, [order])
        self.moves += 1

    def force(self, slot: int, size: int) -> None:
        if slot < self.state.routing.slots and slot not in busy(self.state.moves):
            self.state = begin(self.state, [ForceSpill(slot, size, "a test")])

    def scale(self, slots: int) -> None:
        if self.state.scaling is None and slots != self.state.routing.slots:
            self.state = rescale(self.state, slots)
            self.slots = slots

    def reshape(self, slot: int, shape: Shape, at_once: bool = False) -> None:
        """The join of a slot gets another shape, unless its groups are on their way."""
        slot %= self.state.routing.slots
        sending = (move for move in self.state.moves if not isinstance(move, ParallelTrack))
        if at_once or slot not in busy(sending):
            shapes = [*self.shapes[:slot], shape, *self.shapes[slot + 1 :]]
            self.state = replace(self.state, shapes=tuple(SlotShape(one) for one in shapes))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return shapes_of(self.state, self.shaping)

    def operator(self, slot: int, plan: BatchPlan | None = None) -> Operator:
        """What a slot does, in a batch or from now on."""
        shapes = self.shapes if plan is None else plan.note.shapes
        if not shapes:
            return self.subject.operator(self.block_rows)
        return TreeOperator(self.streams, shapes[slot], self.block_rows)

    def send(self, fails: bool, by_name: bool = False) -> None:
        """Everything that has departed is received, or sending it fails."""
        for move in self.state.moves:
            if move.phase not in (Phase.SENDING, Phase.RECEIVING):
                continue
            said = [(SendPartitions(move.move), 0.0)]
            if fails:
                said.append((SendFailed(move.move, "a test"), 0.0))
            else:
                name = self.carried(move, by_name)
                said += [
                    (ReceivePartitions(move.move), 0.0),
                    (Received(move.move, name, 0), 0.0),
                ]
            self.state, events = resume(self.state, said)
            assert len(events) == len(said)

    def carried(self, move, by_name: bool) -> str:
        manifest = self.checkpoint.manifest(self.state.manifests[move.sender])
        # What the receiver has no place for is not sent.
        times = {one.name: one.time_column for one in self.operator(move.receiver).layouts}
        manifest = matched(manifest, list(times))
        departure, store = of_move(manifest.departures, move.move), self.store(self.state.batch)
        received = []
        names = (*(stream.name for stream in self.streams), *departure.made)
        for parcel in [] if by_name else parcels(departure, GROUPS):
            time = times[names[parcel.stream]]
            name = f"{self.state.batch:09d}-m{move.move}-{next(ATTEMPTS)}.arrow"
            received.append((parcel, unpack(packed(parcel, time, store), name, time, store)))
        layers = departure.streams if by_name else laid_out(received, len(departure.streams))
        part = part_manifest(SlotId(move.receiver), departure, layers, manifest.groups)
        name = f"manifests/part-{next(ATTEMPTS)}.json"
        self.checkpoint.durable.write(name, part.encode())
        return name

    def outputs(self, plan, rows: list[Row], dies: list[int]) -> tuple[dict, Counter]:
        records, output = {}, Counter()
        for slot in range(plan.routing.slots):
            if slot in dies:
                for _ in self.attempt(plan, rows, slot, lambda _: None):
                    break
            taken: list = []
            for batch in self.attempt(plan, rows, slot, taken.append):
                assert batch.num_rows <= max(self.block_rows, 1)
                output.update(self.subject.read(batch))
            records[slot] = taken[0]
        return records, output

    def run(self, plan, rows: list[Row], dies: list[int], seen: Counter | None = None) -> int:
        records, output = self.outputs(plan, rows, dies)
        assert seen is None or seen == output
        if self.streams[0].time is not None and plan.watermark_us is not None:
            fresh = [r for r in rows if r.time >= plan.watermark_us]
            self.late += len(rows) - len(fresh)
            rows = fresh
        self.late_seen += sum(sum(r.rows_late) for r in records.values())
        lateness = [None if s.time is None else self.lateness for s in self.streams]
        state = commit_batch(self.state, plan, records, lateness, 1.0)
        state = adapt(state, records, self.limits, self.rules)
        self.state = reshape(state, plan, records, self.limits, 1.0, self.shaping)
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
        self.accepted += [(plan.batch, row) for row in rows]
        self.results += output
        self.said.append((plan.batch, output))
        for record in records.values():
            self.events.update(type(event).__name__ for event in record.events)
            limit = plan.memory_bytes[record.slot]
            if limit is not None and record.slot not in plan.relocating:
                # A group that is larger than memory has it to itself for its turn.
                in_memory = self.checkpoint.manifest(record.manifest).groups.rows.sum(axis=0) > 0
                alone = plan.t_gap_of(record.slot) is not None and in_memory.sum() == 1
                assert alone or sum(record.state_bytes) <= limit
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

    def job(self, plan, slot: int, attempt: int) -> SlotJob:
        return SlotJob(
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
                t_gap_s=plan.t_gap_of(slot),
            ),
            cleanup=plan.cleanup,
            orders=plan.orders.get(slot, ()),
            owned=plan.routing.groups_of(SlotId(slot)),
            budget=plan.budget_of(slot),
            now_s=plan.clock_s,
        )

    def opened_store(self, plan) -> Store:
        store = self.store(plan.batch)
        for name in plan.garbage:
            store.forget(name)
        return store

    def manifest(self, plan, slot: int) -> Manifest:
        name = plan.manifests[slot]
        none = empty_manifest(SlotId(slot), len(self.streams))
        return self.checkpoint.manifest(name) if name else none

    def attempt(self, plan, rows, slot, report):
        store, attempt = self.opened_store(plan), next(ATTEMPTS)
        job, manifest = self.job(plan, slot, attempt), self.manifest(plan, slot)
        operator = self.operator(slot, plan)
        mine = exchanged(rows, plan, slot, attempt)
        return run_slot(mine, Attempt(job, manifest, operator, self.policy, store, report))
