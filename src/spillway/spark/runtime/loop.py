"""The driver loop of a query on Spark: Spark's foreachBatch calls it once per micro-batch.

    plan      the plan of each stage becomes a DataFrame: split, exchange, slot tasks
    job       the sink evaluates it; slot records come back through an accumulator
    commit    the log record commits the batch; only then does Spark commit

coordinator/chain.py decides which stages run, in which order they commit, and what a restart repeats. A
sink may evaluate the DataFrame twice, so the loop ignores repeated records. It must read all of it: a
slot whose results the sink did not read is never committed. Only a batch that had begun before may be in
the sink already, which then may skip it; the loop evaluates the slots.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame

from spillway.checkpoint.offsets import SourceOffsets
from spillway.coordinator.batch.committed import Committed
from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.chain import Answers, Chain, Ran
from spillway.coordinator.wishes import EndInput
from spillway.errors import QueryError, StateError, from_wire, without_secrets
from spillway.metrics.events import Event
from spillway.metrics.progress import Phases, progress
from spillway.redaction import hidden
from spillway.spark.runtime.exchange.arrow import ArrowBatches
from spillway.spark.runtime.failure import shortened, text_of
from spillway.spark.runtime.session import PLANNED_EXACTLY
from spillway.spark.runtime.stage import Stage
from spillway.spark.sinks import Sink, SinkBatch

#: How many entries recentProgress keeps, as in Spark, and how many events.
KEEP_PROGRESS = 100
KEEP_EVENTS = 1000
#: Bytes of groups that a round cleans up, per slot.
ROUND_BYTES = 256 << 20

#: The text by which Spark recognises a batch that ended because its query stopped.
STOPPED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the batch of a stopped query: "
    "java.lang.InterruptedException"
)


class StageEngine:
    """The stages of a query as Spark runs them."""

    def __init__(self, stages: Sequence[Stage], sink: Sink) -> None:
        self._stages = stages
        self._sink = sink
        self.last_result: DataFrame | None = None

    def no_rows(self, at: int) -> DataFrame:
        """The input of a round of a stage."""
        return self._stages[at].no_rows()

    def results(self, at: int, rows: DataFrame, plan: BatchPlan) -> DataFrame:
        """The results of a stage, made where they are evaluated."""
        return self._stages[at].results(rows, plan)

    def feed(self, at: int, results: DataFrame) -> DataFrame:
        """The results of the stage before as the rows of this one."""
        return self._stages[at].spec.feed(self._stages[at - 1].spec.shape(results))

    def write(self, results: DataFrame, sink_id: int, *, replay: bool) -> None:
        """Writes the results of the last stage to the sink."""
        self.last_result = self._stages[-1].spec.shape(results)
        self._sink.write(SinkBatch(self.last_result, sink_id, replay))

    def collect_answers(
        self, at: int, results: DataFrame, plan: BatchPlan, *, replay: bool
    ) -> Answers:
        """Collects the records of the slots of a stage, at least one each; may run a job for them."""
        may_skip = replay or at < len(self._stages) - 1
        return self._stages[at].collect_answers(results, plan, may_skip=may_skip)


class BatchLoop:
    """Runs the batches of one query."""

    def __init__(self, stages: Sequence[Stage], sink: Sink, offsets: SourceOffsets) -> None:
        #: In the order in which rows pass through them.
        self.stages = tuple(stages)
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEEP_PROGRESS)
        self.events: deque[Event] = deque(maxlen=KEEP_EVENTS)
        #: The error that stopped the query, if any.
        self.failure: BaseException | None = None
        #: Set when the user asks the query to stop; then an interrupted batch is not a failure.
        self.stopping = False
        self._engine = StageEngine(self.stages, sink)
        self.chain = Chain([one.conductor for one in stages], self._engine, time.perf_counter)
        self._arrow = ArrowBatches([kind for s in stages for kind in s.spec.lanes.types])
        self._offsets = offsets
        self._planned_exactly = False
        #: Held while a batch or a round runs.
        self._running = threading.Lock()
        #: When the last batch or round ended.
        self._ended_at = time.monotonic()
        self._closed = False

    @property
    def stage(self) -> Stage:
        """The first stage, which reads the streams."""
        return self.stages[0]

    @property
    def state(self) -> Committed:
        """The committed state of the first stage."""
        return self.stage.state

    @property
    def last_result(self) -> DataFrame | None:
        """The last results that the sink got."""
        return self._engine.last_result

    def run_batch(self, rows: DataFrame, batch: int) -> None:
        """Runs one micro-batch, exactly once."""
        try:
            with self._running, self._paced():
                self._prepare(rows)
                # Before anything happens because of these rows, Spark must be able to give them again.
                digest = self._offsets.settle(batch)
                self._tell(self.chain.batch(rows, batch, self.stage.pace.period_s, digest))
        except BaseException as problem:
            raise self._fail(problem) from None

    def _prepare(self, rows: DataFrame) -> None:
        if not self._planned_exactly:
            for key, value in PLANNED_EXACTLY.items():
                rows.sparkSession.conf.set(key, value)
            self._planned_exactly = True
        self._arrow.prepare(rows.sparkSession)

    def run_round(self, at: int = 0, among: Collection[int] = ()) -> tuple[int, ...]:
        """Cleans up some of the given groups of a stage that miss results; returns which."""
        with self._running:
            if self._closed:
                raise QueryError(
                    "the query has ended, so it cannot clean up",
                    hint="start it again from its checkpoint",
                )
            cleaned, ran = self.chain.round(at, ROUND_BYTES, among)
            self._tell(ran)
            return cleaned

    def finish_moves(self, at: int, *, ended: bool = False) -> None:
        """Runs rounds until all moves of a stage have ended.

        Parallel tracks wait for input; when the input has ended, the coordinator gives them up.
        """
        stage = self.stages[at]
        if ended:
            stage.conductor.wish(EndInput())
        while stage.conductor.ahead.moving and not self.stopping:
            stage.host.finish_sending()
            self.run_round(at)

    def finish_waiting(self, at: int, most_rounds: int | None = None) -> None:
        """Processes the rows that wait in the slots of a stage, in at most `most_rounds` rounds."""
        stage = self.stages[at]
        for _ in itertools.count() if most_rounds is None else range(most_rounds):
            before = stage.state.rounds
            waiting = stage.state.spooled_rows or stage.coordinator.owes
            if waiting and not self.stopping:
                self.run_round(at)
            # A batch that must be replayed comes first, so no round runs before it.
            if stage.state.rounds == before:
                break

    def finish_deciding(self, at: int) -> None:
        """Gives the rows of a stage that stay without partners, in a round if any are left."""
        if self.stages[at].state.undecided and not self.stopping:
            self.run_round(at)

    def advance(self) -> None:
        """Runs rounds for everything that waits for a batch."""
        for at, stage in enumerate(self.stages):
            if stage.stuck:
                self.run_round(at)

    @property
    def stuck(self) -> bool:
        """Whether something waits for a batch, even one without rows."""
        return any(stage.stuck for stage in self.stages)

    @property
    def idle_s(self) -> float:
        """Seconds since the last batch or round ended; 0 while one runs."""
        return 0.0 if self._running.locked() else time.monotonic() - self._ended_at

    def close(self) -> None:
        """Ends the work between the batches, after the current round."""
        with self._running:
            self._closed = True
        for stage in self.stages:
            stage.close()

    @contextmanager
    def _paced(self) -> Iterator[None]:
        """Tells the work between the batches that a batch runs."""
        for stage in self.stages:
            stage.pace.begin_batch(time.monotonic())
        try:
            yield
        finally:
            for stage in self.stages:
                stage.pace.end_batch(time.monotonic())

    def _tell(self, ran: Sequence[Ran[DataFrame]]) -> None:
        """Adds steps, with what later stages made of them, to the progress and the events."""
        for one in ran:
            self._arrow.learn([r for said in one.answers for r in said.records.values()])
            entries = self._entries(one)
            first, *others = entries
            self.recent.append({**first, "then": others} if len(self.stages) > 1 else first)
            self._ended_at = time.monotonic()

    def _entries(self, ran: Ran[DataFrame]) -> list[dict[str, Any]]:
        planned, began, ended, committed = ran.times
        busy = sum(max(one.busy_s for one in said.records.values()) for said in ran.answers)
        phases = Phases(began - planned, max(0.0, ended - began - busy), busy, committed - ended)
        started_at = time.time() - (committed - planned)
        entries = []
        for step, said in zip(ran.steps, ran.answers, strict=True):
            stage = self.stages[step.at]
            names = [stream.name for stream in stage.spec.plan.streams]
            entry = progress(stage.state, names, said.records, phases, started_at)
            entries.append({"operator": stage.spec.plan.OPERATOR, **entry})
            self.events.extend(stage.state.events)
        return entries

    def _fail(self, problem: BaseException) -> RuntimeError:
        """Keeps the failure for the user; returns the one that Spark sees.

        Spark searches the text for an interruption, with a pattern that recurs once per character. A
        long text overflows the stack, so this one is short and never begins such a match by chance.
        """
        if self.stopping:
            return RuntimeError(STOPPED)
        self.failure = self._taken_over() or named_failure(problem)
        told = hidden(f"{type(self.failure).__name__}: {text_of(self.failure)}")
        return RuntimeError(shortened(told).replace("py4j.protocol.", ""))

    def _taken_over(self) -> QueryError | None:
        """The error of an older owner, whose files a newer one may have deleted in its batch."""
        for stage in self.stages:
            log = stage.checkpoint.log
            try:
                if not log.is_owner:
                    log.check_owner()
            except QueryError as problem:
                return problem
            except (OSError, StateError):
                continue
        return None


def named_failure(problem: BaseException) -> BaseException:
    """The Spillway error inside a Spark failure, if there is one."""
    text = str(problem)
    if "No module named 'spillway'" in text:
        return QueryError(
            "the Python workers of Spark cannot import spillway",
            hint="set the environment variable PYSPARK_PYTHON to the interpreter that has it "
            "(in a notebook or script: sys.executable) before you create the Spark session",
        )
    return from_wire(text) or without_secrets(problem)
