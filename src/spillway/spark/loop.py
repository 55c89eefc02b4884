"""The driver loop of a query: one call per micro-batch, from Spark's foreachBatch.

    plan      the plan of the stage becomes a DataFrame: split, exchange, slot tasks
    job       the sink evaluates it; slot records come back through an accumulator
    commit    the log record makes the batch true; only then does Spark commit

A batch that Spark replays after it was committed here is recognised by its number and skipped. A sink
may evaluate the DataFrame twice, or only a part of it: repeated records are ignored, and slots that
have not answered are made to.

A *round* is a batch without rows, between two batches, with a number of its own for the sink: it makes
missing results, and lets moves end where no batch comes. What a batch or round will do is noted in the
log before it begins, as far as another start could do it differently; a start that finds such a note
repeats it before anything else.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spillway.coordinator.coordinator import BatchPlan, Committed, Note, next_round, noteworthy
from spillway.coordinator.log import Mark, next_round_of
from spillway.errors import QueryError, from_wire
from spillway.metrics.events import Event
from spillway.metrics.progress import Phases, progress
from spillway.spark.arrow import ArrowBatches
from spillway.spark.lanes import lanes_schema
from spillway.spark.session import PLANNED_EXACTLY, cloned
from spillway.spark.sinks import Sink
from spillway.spark.stage import QuerySpec, Stage

#: Entries that recentProgress keeps, as Spark's does; and events.
KEEP_PROGRESS = 100
KEEP_EVENTS = 1000
#: The first id that a sink sees for a round of cleanup; those of batches count from 0.
ROUND_IDS = 1 << 40
#: Bytes of groups that a round cleans up, for each slot.
ROUND_BYTES = 256 << 20

#: What Spark recognises as a batch that ended because its query was stopped.
_STOPPED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the batch of a stopped query: "
    "java.lang.InterruptedException"
)


class BatchLoop:
    """Runs the batches of one query."""

    def __init__(self, spark: SparkSession, stage: Stage, sink: Sink) -> None:
        self.stage = stage
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEEP_PROGRESS)
        self.events: deque[Event] = deque(maxlen=KEEP_EVENTS)
        #: What stopped the query, if something did.
        self.failure: BaseException | None = None
        self.last_result: DataFrame | None = None
        #: Set when the user has asked the query to stop: a batch cut short is no failure then.
        self.stopping = False
        self._sink = sink
        self._log = stage.checkpoint.log
        self._arrow = ArrowBatches(stage.spec.lanes.types)
        self._first = True
        self._spark = cloned(spark)
        #: Held while a batch or a round runs.
        self._turn = threading.Lock()
        #: When the last batch or round ended.
        self._ended_at = time.monotonic()
        #: Whether something may have been begun and not ended: by an earlier start, or by a failure.
        self._may_be_open = True
        self._closed = False

    @property
    def spec(self) -> QuerySpec:
        """What the query is."""
        return self.stage.spec

    @property
    def state(self) -> Committed:
        """What is true now."""
        return self.stage.state

    def run_batch(self, rows: DataFrame, batch: int) -> None:
        """One micro-batch, exactly once."""
        try:
            with self._turn, self._paced():
                if batch == self.state.batch:
                    return
                self._repeat_round()
                if self._first:
                    for key, value in PLANNED_EXACTLY.items():
                        rows.sparkSession.conf.set(key, value)
                self._arrow.prepare(rows.sparkSession)
                note = self._log.begun(Mark(batch)) if self._first else None
                if note is None:
                    self.stage.catch_up()
                plan = self.stage.planned(batch, note, sweep=self._first)
                if note is None and noteworthy(self.state, plan):
                    self._log.begin(Mark(batch), plan.note)
                self._run(rows, plan, batch, replay=self._first)
                self._first = False
        except BaseException as problem:
            raise self._failed(problem) from None

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
            if self._first and self._log.begun(Mark(self.state.batch + 1)) is not None:
                # A batch that was begun comes again, and it comes first.
                return ()
            self.stage.catch_up()
            groups = next_round(self.state, ROUND_BYTES * self.state.routing.slots, among)
            if groups or self.state.moves or self.state.scaling:
                note = self.stage.new_note(groups)
                self._log.begin(next_round_of(self.state), note)
                self._may_be_open = True
                self._round(note, replay=False)
            return groups

    def finish_moves(self) -> None:
        """Lets every move that is under way come to its end, in rounds."""
        while self.state.moves and not self.stopping:
            self.stage.finish_sending()
            self.run_round()

    @property
    def idle_s(self) -> float:
        """Seconds since the last batch or round, if none is running."""
        return 0.0 if self._turn.locked() else time.monotonic() - self._ended_at

    def unfinished_round(self) -> bool:
        """Whether a round was begun, by this start or one before, that must be repeated."""
        return self._may_be_open and self._log.begun(next_round_of(self.state)) is not None

    def close(self) -> None:
        """Ends what runs beside the batches, once a round under way is over."""
        with self._turn:
            self._closed = True
        self.stage.close()

    @contextmanager
    def _paced(self) -> Iterator[None]:
        """Lets what runs beside the batches know of one."""
        self.stage.pace.begins(time.monotonic())
        try:
            yield
        finally:
            self.stage.pace.ends(time.monotonic())

    def _repeat_round(self) -> tuple[int, ...]:
        """Does a round again that was begun and did not end; returns its groups."""
        mark = next_round_of(self.state)
        note = self._log.begun(mark) if self._may_be_open else None
        if note is not None:
            self._round(note, replay=True)
        self._may_be_open = False
        return () if note is None else note.cleanup

    def _round(self, note: Note, *, replay: bool) -> None:
        plan = self.stage.planned_round(note)
        # Rows that are not known to be none before they are read, so that every slot gets its task.
        none = self._spark.sparkContext.emptyRDD()
        rows = self._spark.createDataFrame(none, lanes_schema(self.spec.lanes), verifySchema=False)
        self._run(rows, plan, ROUND_IDS + self.state.rounds, replay=replay)
        self._may_be_open = False

    def _run(self, rows: DataFrame, plan: BatchPlan, sink_id: int, *, replay: bool) -> None:
        started_at, t0 = time.time(), time.perf_counter()
        results = self.stage.results(rows, plan)
        self.last_result = self.spec.shape(results)
        t1 = time.perf_counter()
        self._sink.write(self.last_result, sink_id, replay=replay)
        records = self.stage.answers(results, plan)
        t2 = time.perf_counter()
        self.stage.commit(plan, records, t2 - t0)
        self._arrow.learn(records.values())
        busy = max(record.busy_s for record in records.values())
        phases = Phases(t1 - t0, max(0.0, t2 - t1 - busy), busy, time.perf_counter() - t2)
        names = [stream.name for stream in self.spec.plan.streams]
        self.recent.append(progress(self.state, names, records, phases, started_at))
        self.events.extend(self.state.events)
        self._ended_at = time.monotonic()

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
