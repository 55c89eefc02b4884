"""The driver loop of a query: one call per micro-batch, from Spark's foreachBatch.

    plan      the coordinator's plan becomes a DataFrame: split, exchange, slot tasks
    job       the sink evaluates it; slot records come back through an accumulator
    commit    the coordinator's log record makes the batch true; only then does Spark commit

A batch that Spark replays after it was committed here is recognised by its number and skipped. A sink
may evaluate the DataFrame twice, or only a part of it: repeated records are ignored, and slots that
have not answered are made to.

A *round* is a batch without rows, between two batches, with a number of its own for the sink: it makes
missing results, and lets moves end where no batch comes. What a batch or round will do is noted in the
log before it begins, as far as another start could do it differently; a start that finds such a note
repeats it before anything else.

Groups move beside the batches (spark/mover.py). Between two batches the loop takes what was said there,
and lets what is due begin.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spillway.coordinator.adaptation import Rules, adapt, rescale, resume
from spillway.coordinator.checkpoint import Checkpoint
from spillway.coordinator.coordinator import (
    BatchPlan,
    Committed,
    Note,
    References,
    commit_batch,
    new_note,
    next_round,
    noteworthy,
    plan_batch,
    plan_round,
)
from spillway.coordinator.log import Mark, next_round_of
from spillway.errors import QueryError, from_wire
from spillway.metrics.events import Event
from spillway.metrics.progress import Phases, progress
from spillway.metrics.record import SlotRecord
from spillway.operators.base import Operator
from spillway.operators.faults import Faults
from spillway.plan.join import Plan
from spillway.protocols.relocation import Phase, Relocation
from spillway.settings import Adapt, parse_bytes
from spillway.spark.anchors import Anchors, slot_expression
from spillway.spark.arrow import ArrowBatches
from spillway.spark.home import Home
from spillway.spark.janitor import Upkeep
from spillway.spark.lanes import Lanes, lanes_schema, markers
from spillway.spark.mover import Mover
from spillway.spark.pace import Pace
from spillway.spark.sinks import Sink
from spillway.spark.sinks.foreach import ForeachBatchSink
from spillway.spark.task import Records, SlotTask

#: Entries that recentProgress keeps, as Spark's does; and events.
KEEP_PROGRESS = 100
KEEP_EVENTS = 1000
#: The first id that a sink sees for a round of cleanup; those of batches count from 0.
ROUND_IDS = 1 << 40
#: Bytes of groups that a round cleans up, for each slot.
ROUND_BYTES = 256 << 20

#: Steps of a move (DCAPE-TR 5.1) that a batch is the answer to, by the phase it ran in; and those that
#: are due when it is committed, by the phase after it.
_STEP_IN_BATCH = {Phase.COMPUTING: 2, Phase.DEACTIVATING: 4, Phase.REACTIVATING: 8}
_STEP_AFTER_BATCH = {Phase.COMPUTING: 1, Phase.DEACTIVATING: 3}

# The exchange must make exactly one partition per slot, each processed as planned.
_SESSION = {"spark.sql.adaptive.enabled": "false"}

#: What Spark recognises as a batch that ended because its query was stopped.
_STOPPED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the batch of a stopped query: "
    "java.lang.InterruptedException"
)


@dataclass(frozen=True)
class QuerySpec:
    """Everything about a query that does not change while it runs."""

    plan: Plan
    lanes: Lanes
    operator: Operator
    schema: StructType
    #: The user's where and select, applied to the results.
    shape: Callable[[DataFrame], DataFrame]
    adapt: Adapt
    query_id: str
    identity: bool = False
    faults: Faults = field(default_factory=Faults)


class BatchLoop:
    """Runs the batches of one query."""

    def __init__(
        self,
        spark: SparkSession,
        spec: QuerySpec,
        sink: Sink,
        checkpoint: Checkpoint,
        state: Committed,
        references: References,
        slots: int,
        anchored: bool,
    ) -> None:
        self.spec = spec
        self.state = state
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEEP_PROGRESS)
        self.events: deque[Event] = deque(maxlen=KEEP_EVENTS)
        #: Bytes of state that each slot may have in memory; None: no limit.
        self.memory = {s: spec.adapt.memory_of(s) for s in range(max(slots, state.routing.slots))}
        #: What stopped the query, if something did.
        self.failure: BaseException | None = None
        self.last_result: DataFrame | None = None
        #: Set when the user has asked the query to stop: a batch cut short is no failure then.
        self.stopping = False
        self.rules = Rules.of(spec.adapt)
        self._sink = sink
        #: Whether the sink is a function of the user's, which may renumber the tasks: then a task
        #: without a row does not know which slot it is.
        self._renumbers = isinstance(sink, ForeachBatchSink)
        self._checkpoint = checkpoint
        #: The slots this start was asked for, until it has them.
        self._slots_asked: int | None = slots
        #: The slots that the user wishes for since.
        self._slots_wished: int | None = None
        self._anchored = anchored
        self._anchors: Anchors | None = None
        self._records = spark.sparkContext.accumulator({}, Records())
        self._upkeep = Upkeep(checkpoint, references)
        self._arrow = ArrowBatches(spec.lanes.types)
        self._first = True
        self._user = spark
        self._spark = _clone(spark)
        times = [stream.time for stream in spec.lanes.streams]
        self._home = Home(spec.query_id, uuid.uuid4().hex[:12], checkpoint.location, spec.adapt)
        #: Held while a batch or a round runs.
        self._turn = threading.Lock()
        self._pace = Pace()
        self._mover = Mover(
            _clone(spark),
            checkpoint,
            self._home,
            times,
            spec.faults,
            self._reach,
            self._pace,
        )
        #: What happened beside the batches since the last commit.
        self._beside: tuple[Event, ...] = ()
        #: The records of the last commit, by slot.
        self._last: Mapping[int, SlotRecord] = {}
        #: When the last batch or round ended.
        self._ended_at = time.monotonic()
        #: Whether something may have been begun and not ended: by an earlier start, or by a failure.
        self._may_be_open = True
        self._closed = False
        self._place_anchors()
        if self.rules.strategy.relocates:
            self._mover.warm_up()

    def run_batch(self, rows: DataFrame, batch: int) -> None:
        """One micro-batch, exactly once."""
        try:
            with self._turn, self._paced():
                if batch == self.state.batch:
                    return
                self._repeat_round()
                if self._first:
                    for key, value in _SESSION.items():
                        rows.sparkSession.conf.set(key, value)
                self._arrow.prepare(rows.sparkSession)
                note = self._checkpoint.log.begun(Mark(batch)) if self._first else None
                if note is None:
                    self._catch_up()
                plan = plan_batch(
                    self.state,
                    batch,
                    self._upkeep.garbage,
                    sweep=self._first,
                    memory_bytes=self.limits,
                    note=note,
                )
                if note is None and noteworthy(self.state, plan):
                    self._checkpoint.log.begin(Mark(batch), plan.note)
                self._run(rows, plan, batch, replay=self._first)
                self._first = False
        except BaseException as problem:
            raise self._failed(problem) from None

    @contextmanager
    def _paced(self) -> Iterator[None]:
        """Lets what runs beside the batches know of one."""
        self._pace.begins(time.monotonic())
        try:
            yield
        finally:
            self._pace.ends(time.monotonic())

    def run_round(self, among: Collection[int] = ()) -> tuple[int, ...]:
        """Cleans up some of the given groups, as far as they miss results; returns which.

        Nothing is in the sink twice: the sink knows the round by its number, also after a crash.
        """
        with self._turn:
            if self._closed:
                raise QueryError("the query has ended, so it cannot clean up")
            if self.state.batch < 0:
                # Rounds come after batches; what waits is taken by the first.
                return ()
            if repeated := self._repeat_round():
                return repeated
            if self._first and self._checkpoint.log.begun(Mark(self.state.batch + 1)) is not None:
                # A batch that was begun comes again, and it comes first.
                return ()
            self._catch_up()
            groups = next_round(self.state, ROUND_BYTES * self.state.routing.slots, among)
            if groups or self.state.moves or self.state.scaling:
                note = new_note(self.state, self.limits, groups)
                self._checkpoint.log.begin(next_round_of(self.state), note)
                self._may_be_open = True
                self._round(note, replay=False)
            return groups

    def finish_moves(self) -> None:
        """Lets every move that is under way come to its end, in rounds."""
        while self.state.moves and not self.stopping:
            self._mover.finish()
            self.run_round()

    def scale(self, slots: int) -> None:
        """Takes a wish for another number of slots; the next batch or round begins with it."""
        rescale(self.state, slots)
        self._mover.warm_up()
        self._slots_wished = slots

    @property
    def limits(self) -> dict[int, int | None]:
        """Bytes of state at which each slot moves groups out of memory; None: it does not."""
        part = self.spec.adapt.memory_threshold
        if not self.rules.strategy.spills:
            return {}
        return {
            slot: None if limit is None else max(1, int(limit * part))
            for slot, limit in self.memory.items()
        }

    @property
    def idle_s(self) -> float:
        """Seconds since the last batch or round, if none is running."""
        return 0.0 if self._turn.locked() else time.monotonic() - self._ended_at

    @property
    def stuck(self) -> bool:
        """Whether something waits for a batch that need not have rows."""
        if self.state.batch < 0:
            return False
        changing = self._slots_wished is not None or self.state.scaling is not None
        return self._mover.waiting or (changing and not self._mover.busy)

    def unfinished_round(self) -> bool:
        """Whether a round was begun, by this start or one before, that must be repeated."""
        mark = next_round_of(self.state)
        return self._may_be_open and self._checkpoint.log.begun(mark) is not None

    def _repeat_round(self) -> tuple[int, ...]:
        """Does a round again that was begun and did not end; returns its groups."""
        mark = next_round_of(self.state)
        note = self._checkpoint.log.begun(mark) if self._may_be_open else None
        if note is not None:
            self._round(note, replay=True)
        self._may_be_open = False
        return () if note is None else note.cleanup

    def _round(self, note: Note, *, replay: bool) -> None:
        plan = plan_round(self.state, note, self._upkeep.garbage)
        # Rows that are not known to be none before they are read, so that every slot gets its task.
        none = self._spark.sparkContext.emptyRDD()
        rows = self._spark.createDataFrame(none, lanes_schema(self.spec.lanes), verifySchema=False)
        self._run(rows, plan, ROUND_IDS + self.state.rounds, replay=replay)
        self._may_be_open = False

    # Between two batches

    def _catch_up(self) -> None:
        """Takes what was said beside the batches, and what the user wishes."""
        if self._waits_too_long():
            self._mover.finish()
        self.state, events = resume(self.state, self._mover.said())
        self._beside += events
        self._send()
        self._take_slots()

    def _waits_too_long(self) -> bool:
        """Whether so much waits for groups on their way that they must arrive before more comes."""
        most = parse_bytes("buffer", self.spec.adapt.buffer)
        if sum(record.parked_bytes for record in self._last.values()) > most:
            return True
        limits = self.limits
        taking_part = {slot for move in self.state.moves for slot in move.slots}
        held = {slot: sum(self._last[slot].state_bytes) for slot in taking_part & set(self._last)}
        return any(
            (limit := limits.get(slot)) is not None and size > limit + most
            for slot, size in held.items()
        )

    def _send(self) -> None:
        """Begins to send what has departed and is not being sent."""
        for move in self.state.moves:
            departed = move.phase in (Phase.SENDING, Phase.RECEIVING)
            if departed and not self._mover.knows(move):
                name = self.state.manifests[move.sender]
                assert name is not None
                sender = self._checkpoint.manifest(name)
                self._mover.send(move, sender, self.state.routing.groups, self._placed)

    def _take_slots(self) -> None:
        """Comes to the number of slots that is asked for, once nothing moves."""
        asked, wished = self._slots_asked, self._slots_wished
        if asked is not None and self.state.scaling is None and not self.state.moves:
            self._slots_asked = None
            if asked != self.state.routing.slots:
                routing, streams = self.state.routing.resized(asked), len(self.spec.lanes.streams)
                self.state, references = self._checkpoint.rerouted(self.state, streams, routing)
                self._upkeep.references = references
        if wished is not None:
            self._slots_wished = self._slots_asked = None
            self.state = rescale(self.state, wished)
            for slot in range(self.state.routing.slots):
                self.memory.setdefault(slot, self.spec.adapt.memory_of(slot))
        self._place_anchors()

    def _place_anchors(self) -> None:
        slots = self.state.routing.slots
        if not self._anchored or (self._anchors is not None and self._anchors.slots == slots):
            return
        if self._anchors is not None:
            self._anchors.close()
        self._anchors = Anchors(self._user, slots)

    def _reach(self, move: Relocation, step: int) -> None:
        if not self.spec.faults.steps:
            return
        pids = {"driver": os.getpid()}
        for who, slot in (("sender", move.sender), ("receiver", move.receiver)):
            if slot in self._last:
                pids[who] = int(self._last[slot].worker.split("/")[1])
        self.spec.faults.reach_step(move.move, step, pids)

    def _failed(self, problem: BaseException) -> RuntimeError:
        """What Spark is told of a failure; the failure itself is kept for the user.

        Spark searches the text for an interruption with a pattern that recurs once per character,
        and dies of a long one, so the text is kept short and never begins such a match by chance.
        """
        if self.stopping:
            return RuntimeError(_STOPPED)
        self.failure = named_failure(problem)
        told = str(self.failure).replace("py4j.protocol.", "")
        return RuntimeError(f"{type(self.failure).__name__}: {told[:2000]}")

    def close(self) -> None:
        """Ends what runs beside the batches, once a round under way is over."""
        with self._turn:
            self._closed = True
        self._mover.close()
        self._upkeep.close()
        if self._anchors is not None:
            self._anchors.close()

    def _run(self, rows: DataFrame, plan: BatchPlan, sink_id: int, *, replay: bool) -> None:
        started_at, t0 = time.time(), time.perf_counter()
        joined = self._joined(rows, plan)
        self._records.value = {}
        self.last_result = self.spec.shape(joined)
        t1 = time.perf_counter()
        self._sink.write(self.last_result, sink_id, replay=replay)
        records = self._answers(joined, plan)
        t2 = time.perf_counter()
        self._commit(plan, records, t2 - t0)
        self._arrow.learn(records.values())
        busy = max(record.busy_s for record in records.values())
        phases = Phases(t1 - t0, max(0.0, t2 - t1 - busy), busy, time.perf_counter() - t2)
        names = [stream.name for stream in self.spec.plan.streams]
        self.recent.append(progress(self.state, names, records, phases, started_at))
        self.events.extend(self.state.events)
        self._ended_at = time.monotonic()

    def _placed(self, rows: DataFrame, slot: Column, *, first: bool = False) -> DataFrame:
        """Rows where a slot is, whichever it is, for what runs beside the batches."""
        if self._anchors is not None:
            return self._anchors.exchange(rows, slot)
        # In one process every place is the right one.
        return rows if first else rows.repartition(1)

    def _joined(self, rows: DataFrame, plan: BatchPlan) -> DataFrame:
        slot = F.expr(slot_expression(plan.routing.table, plan.routing.slots))
        if self._renumbers and noteworthy(self.state, plan):
            rows = rows.unionAll(markers(rows.sparkSession, self.spec.lanes, plan.routing))
        if self._anchors is None:
            placed = rows.repartitionById(plan.routing.slots, slot)
        else:
            placed = self._anchors.exchange(rows, slot)
        task = SlotTask(
            self._home,
            plan,
            self.spec.lanes.streams,
            self.spec.operator,
            self.spec.identity,
            self.spec.faults,
        )
        return placed.mapInArrow(task.function(self._records), self.spec.schema)

    def _answers(self, joined: DataFrame, plan: BatchPlan) -> Mapping[int, SlotRecord]:
        """One record per slot, evaluating the slots that the sink left out."""
        records = self._arrived(plan.batch, by_place=not self._renumbers)
        if len(records) < plan.routing.slots:
            joined.write.format("noop").mode("append").save()
            records = self._arrived(plan.batch, by_place=True)
        return records

    def _arrived(self, batch: int, *, by_place: bool) -> dict[int, SlotRecord]:
        """The first record of each slot that was sure of itself; of others, if places are right."""
        chosen = {}
        for (at, slot), attempts in self._records.value.items():
            sure = [record for record in attempts if record.sure]
            if at == batch and (sure or by_place):
                chosen[slot] = (sure or attempts)[0]
        return chosen

    def _commit(self, plan: BatchPlan, records: Mapping[int, SlotRecord], seconds: float) -> None:
        lateness = [s.window.lateness_us if s.window else None for s in self.spec.plan.streams]
        for move in plan.moves:
            self._reach(move, _STEP_IN_BATCH.get(move.phase, 0))
        state = commit_batch(self.state, plan, records, lateness, seconds, self._beside)
        state = adapt(state, records, self.limits, self.rules)
        if not self.spec.identity:
            self._checkpoint.log.append(state)
        attempts = [record for same in self._records.value.values() for record in same]
        self._upkeep.after(plan, records, attempts, state)
        self.state, self._last, self._beside = state, records, ()
        for move in state.moves:
            self._reach(move, _STEP_AFTER_BATCH.get(move.phase, 0))
        self._send()


def _clone(spark: SparkSession) -> SparkSession:
    """A session with the user's views and functions whose settings are ours to change."""
    clone = spark._jsparkSession.cloneSession()
    for key, value in _SESSION.items():
        clone.conf().set(key, value)
    return SparkSession(spark.sparkContext, clone)


def named_failure(problem: BaseException) -> BaseException:
    """The error of ours inside a failure of Spark's, where there is one."""
    text = str(problem)
    if "No module named 'spillway'" in text:
        return QueryError(
            "the Python workers of Spark cannot import spillway",
            hint="set the environment variable PYSPARK_PYTHON to the interpreter that has it "
            "(in a notebook or script: sys.executable) before the Spark session is made",
        )
    return from_wire(text) or problem
