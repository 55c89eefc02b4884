"""The driver loop of a query: one call per micro-batch, from Spark's foreachBatch.

    plan      the coordinator's plan becomes a DataFrame: split, exchange, slot tasks
    job       the sink evaluates it; slot records come back through an accumulator
    commit    the coordinator's log record makes the batch true; only then does Spark commit

A batch that Spark replays after it was committed here is recognised by its number and skipped. A sink
may evaluate the DataFrame twice, or only a part of it: repeated records are ignored, and slots that
have not answered are made to.

A *round* of cleanup is a batch without rows, between two batches, with a number of its own for the
sink. What it will do is noted in the log before it begins, and a start that finds such a note repeats
the round before anything else.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spillway.coordinator.checkpoint import KEEP_LOG, Checkpoint
from spillway.coordinator.coordinator import (
    BatchPlan,
    Committed,
    References,
    commit_batch,
    next_round,
    plan_batch,
    plan_round,
)
from spillway.coordinator.log import Mark
from spillway.errors import QueryError, SpillwayError, from_wire
from spillway.metrics.events import Event
from spillway.metrics.progress import Phases, progress
from spillway.metrics.record import SlotRecord
from spillway.operators.faults import Faults
from spillway.plan.join import JoinPlan
from spillway.settings import Adapt
from spillway.spark.anchors import Anchors, slot_expression
from spillway.spark.arrow import ArrowBatches
from spillway.spark.lanes import Lanes, lanes_schema
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

    plan: JoinPlan
    lanes: Lanes
    schema: StructType
    #: The user's where and select, applied to the joined rows.
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
        anchors: Anchors | None,
    ) -> None:
        self.spec = spec
        self.state = state
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEEP_PROGRESS)
        self.events: deque[Event] = deque(maxlen=KEEP_EVENTS)
        #: Bytes of state that each slot may have in memory; None: no limit.
        self.memory = {s: spec.adapt.memory_of(s) for s in range(state.routing.slots)}
        #: What stopped the query, if something did.
        self.failure: BaseException | None = None
        self.last_result: DataFrame | None = None
        #: Set when the user has asked the query to stop: a batch cut short is no failure then.
        self.stopping = False
        self._sink = sink
        self._checkpoint = checkpoint
        self._references = references
        self._anchors = anchors
        self._records = spark.sparkContext.accumulator({}, Records())
        self._garbage: tuple[str, ...] = ()
        self._janitor = Janitor(checkpoint)
        self._arrow = ArrowBatches(spec.lanes.types)
        self._first = True
        self._marks = deque(checkpoint.log.marks())
        self._spark = _clone(spark)
        #: Held while a batch or a round runs.
        self._turn = threading.Lock()
        #: Whether a round may have been begun and not ended: by an earlier start, or by a failure.
        self._may_be_open = True
        self._closed = False

    def run_batch(self, rows: DataFrame, batch: int) -> None:
        """One micro-batch, exactly once."""
        try:
            with self._turn:
                if batch == self.state.batch:
                    return
                self._repeat_round()
                if self._first:
                    for key, value in _SESSION.items():
                        rows.sparkSession.conf.set(key, value)
                self._arrow.prepare(rows.sparkSession)
                plan = plan_batch(
                    self.state,
                    batch,
                    self._garbage,
                    sweep=self._first,
                    memory_bytes=self.memory,
                )
                self._run(rows, plan, batch, replay=self._first)
                self._first = False
        except BaseException as problem:
            raise self._failed(problem) from None

    def run_round(self, among: Collection[int]) -> tuple[int, ...]:
        """Cleans up some of the given groups, as far as they miss results; returns which.

        Nothing is in the sink twice: the sink knows the round by its number, also after a crash.
        """
        with self._turn:
            if self._closed:
                raise QueryError("the query has ended, so it cannot clean up")
            if repeated := self._repeat_round():
                return repeated
            groups = next_round(self.state, ROUND_BYTES * self.state.routing.slots, among)
            if groups:
                self._checkpoint.log.begin_round(self.state, groups)
                self._may_be_open = True
                self._round(groups, replay=False)
            return groups

    def unfinished_round(self) -> bool:
        """Whether a round was begun, by this start or one before, that must be repeated."""
        return self._may_be_open and self._checkpoint.log.begun_round(self.state) is not None

    def _repeat_round(self) -> tuple[int, ...]:
        """Does a round again that was begun and did not end; returns its groups."""
        groups = self._checkpoint.log.begun_round(self.state) if self._may_be_open else None
        if groups:
            self._round(groups, replay=True)
        self._may_be_open = False
        return groups or ()

    def _round(self, groups: Sequence[int], *, replay: bool) -> None:
        plan = plan_round(self.state, groups, self._garbage, self.memory)
        # Rows that are not known to be none before they are read, so that every slot gets its task.
        none = self._spark.sparkContext.emptyRDD()
        rows = self._spark.createDataFrame(none, lanes_schema(self.spec.lanes), verifySchema=False)
        self._run(rows, plan, ROUND_IDS + self.state.rounds, replay=replay)
        self._may_be_open = False

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
        self._janitor.close()
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
        self._commit(plan, records)
        self._arrow.learn(records.values())
        busy = max(record.busy_s for record in records.values())
        phases = Phases(t1 - t0, max(0.0, t2 - t1 - busy), busy, time.perf_counter() - t2)
        names = [stream.name for stream in self.spec.plan.streams]
        self.recent.append(progress(self.state, names, records, phases, started_at))
        self.events.extend(self.state.events)

    def _joined(self, rows: DataFrame, plan: BatchPlan) -> DataFrame:
        slot = F.expr(slot_expression(plan.routing.table, plan.routing.slots))
        if self._anchors is None:
            placed = rows.repartitionById(plan.routing.slots, slot)
        else:
            placed = self._anchors.exchange(rows, slot)
        task = SlotTask(
            self.spec.query_id,
            self._checkpoint.location,
            plan,
            self.spec.lanes.streams,
            self.spec.adapt,
            self.spec.identity,
            self.spec.faults,
        )
        return placed.mapInArrow(task.function(self._records), self.spec.schema)

    def _answers(self, joined: DataFrame, plan: BatchPlan) -> Mapping[int, SlotRecord]:
        """One record per slot, evaluating the slots that the sink left out."""
        # A function of the user's may have renumbered the tasks, so an empty one proves nothing.
        records = self._arrived(plan.batch, by_place=not isinstance(self._sink, ForeachBatchSink))
        if len(records) < plan.routing.slots:
            joined.write.format("noop").mode("append").save()
            records = self._arrived(plan.batch, by_place=True)
        return records

    def _arrived(self, batch: int, *, by_place: bool) -> dict[int, SlotRecord]:
        """The first record of each slot that had rows; of an empty one, if places are right."""
        chosen = {}
        for (at, slot), attempts in self._records.value.items():
            with_rows = [record for record in attempts if any(record.rows_in)]
            if at == batch and (with_rows or by_place):
                chosen[slot] = (with_rows or attempts)[0]
        return chosen

    def _commit(self, plan: BatchPlan, records: Mapping[int, SlotRecord]) -> None:
        lateness = [s.window.lateness_us if s.window else None for s in self.spec.plan.streams]
        state = commit_batch(self.state, plan, records, lateness)
        if not self.spec.identity:
            self._checkpoint.log.append(state)
        # What this batch stopped naming is deleted after it was committed; the local copies go with
        # the next plan, to whatever host its slots run on.
        self._references, gone = self._references.updated(list(records.values()))
        attempts = (record for same in self._records.value.values() for record in same)
        repeated = [record for record in attempts if record is not records[record.slot]]
        gone = (*gone, *(name for record in repeated for name in record.added))
        manifests = [*plan.manifests, *(record.manifest for record in repeated)]
        self._marks.append(Mark(state.batch, state.round))
        forgotten = [self._marks.popleft() for _ in range(len(self._marks) - KEEP_LOG)]
        self._janitor.discard(
            [*(f"runs/{name}" for name in gone), *(name for name in manifests if name)], forgotten
        )
        self._garbage = gone
        self.state = state


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


class Janitor:
    """Deletes from the durable tier beside the batches, so that a slow store delays none."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        # Bounded: when deletions cannot keep up, batches wait rather than the list growing.
        self._work: queue.Queue[tuple[list[str], list[Mark]] | None] = queue.Queue(maxsize=64)
        self._thread = threading.Thread(target=self._run, name="spillway-janitor", daemon=True)
        self._thread.start()

    def discard(self, names: list[str], records: list[Mark]) -> None:
        """Queues files, and log records, to be deleted."""
        self._work.put((names, records))

    def close(self) -> None:
        """Finishes what is queued and ends."""
        self._work.put(None)
        self._thread.join(timeout=60)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            names, records = work
            try:
                self._checkpoint.discard(names)
                for mark in records:
                    self._checkpoint.log.forget(mark)
            except (OSError, SpillwayError):
                # A file that stays behind costs room, not correctness; the next start sweeps it.
                continue
