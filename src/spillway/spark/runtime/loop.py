"""The driver loop of a query on Spark: one call per micro-batch, from Spark's foreachBatch.

    plan      the plan of each stage becomes a DataFrame: split, exchange, slot tasks
    job       the sink evaluates it; slot records come back through an accumulator
    commit    the log record makes the batch true; only then does Spark commit

Which stages run, in which order they commit, and what a restart repeats is coordinator/chain.py. A sink
may evaluate the DataFrame twice, or only a part of it: repeated records are ignored, and slots that
have not answered are made to.
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

from spillway.coordinator.chain import Answers, Chain, Ran
from spillway.coordinator.committed import Committed
from spillway.coordinator.plan import BatchPlan
from spillway.coordinator.wishes import EndInput
from spillway.errors import QueryError, from_wire
from spillway.metrics.events import Event
from spillway.metrics.progress import Phases, progress
from spillway.spark.api.session import PLANNED_EXACTLY
from spillway.spark.runtime.arrow import ArrowBatches
from spillway.spark.runtime.stage import Stage
from spillway.spark.sinks import Sink

#: Entries that recentProgress keeps, as Spark's does; and events.
KEEP_PROGRESS = 100
KEEP_EVENTS = 1000
#: Bytes of groups that a round cleans up, for each slot.
ROUND_BYTES = 256 << 20

#: What Spark recognises as a batch that ended because its query was stopped.
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
        """Has the sink take the results of the last stage."""
        self.last_result = self._stages[-1].spec.shape(results)
        self._sink.write(self.last_result, sink_id, replay=replay)

    def answers(self, at: int, results: DataFrame, plan: BatchPlan) -> Answers:
        """What the slots of a stage said, each at least once."""
        return self._stages[at].collect_answers(results, plan)


class BatchLoop:
    """Runs the batches of one query."""

    def __init__(self, stages: Sequence[Stage], sink: Sink) -> None:
        #: In the order in which rows pass them.
        self.stages = tuple(stages)
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEEP_PROGRESS)
        self.events: deque[Event] = deque(maxlen=KEEP_EVENTS)
        #: What stopped the query, if something did.
        self.failure: BaseException | None = None
        #: Set when the user has asked the query to stop: a batch cut short is no failure then.
        self.stopping = False
        self._engine = StageEngine(self.stages, sink)
        self.chain = Chain([one.conductor for one in stages], self._engine, time.perf_counter)
        self._arrow = ArrowBatches([kind for s in stages for kind in s.spec.lanes.types])
        self._planned_exactly = False
        #: Held while a batch or a round runs.
        self._turn = threading.Lock()
        #: When the last batch or round ended.
        self._ended_at = time.monotonic()
        self._closed = False

    @property
    def stage(self) -> Stage:
        """The stage that the streams come to."""
        return self.stages[0]

    @property
    def state(self) -> Committed:
        """What is true of it now."""
        return self.stage.state

    @property
    def last_result(self) -> DataFrame | None:
        """What the sink was given last."""
        return self._engine.last_result

    def run_batch(self, rows: DataFrame, batch: int) -> None:
        """One micro-batch, exactly once."""
        try:
            with self._turn, self._paced():
                self._prepare(rows)
                self._tell(self.chain.batch(rows, batch, self.stage.pace.period_s))
        except BaseException as problem:
            raise self._failed(problem) from None

    def _prepare(self, rows: DataFrame) -> None:
        if not self._planned_exactly:
            for key, value in PLANNED_EXACTLY.items():
                rows.sparkSession.conf.set(key, value)
            self._planned_exactly = True
        self._arrow.prepare(rows.sparkSession)

    def run_round(self, at: int = 0, among: Collection[int] = ()) -> tuple[int, ...]:
        """Cleans up some of the given groups of a stage, as far as they miss results; returns which."""
        with self._turn:
            if self._closed:
                raise QueryError("the query has ended, so it cannot clean up")
            cleaned, ran = self.chain.round(at, ROUND_BYTES, among)
            self._tell(ran)
            return cleaned

    def finish_moves(self, *, ended: bool = False) -> None:
        """Lets every move that is under way come to its end, in rounds.

        Parallel tracks wait for the input, and are given up when it has ended.
        """
        for at, stage in enumerate(self.stages):
            if ended:
                stage.conductor.wish(EndInput())
            while stage.conductor.ahead.moving and not self.stopping:
                stage.host.finish_sending()
                self.run_round(at)

    def finish_waiting(self, most_rounds: int | None = None) -> None:
        """Processes the rows that wait in slots, in at most `most_rounds` rounds for each stage."""
        for at, stage in enumerate(self.stages):
            for _ in itertools.count() if most_rounds is None else range(most_rounds):
                before = stage.state.rounds
                if stage.state.spooled_rows and not self.stopping:
                    self.run_round(at)
                # A batch that comes again comes first, and then no round is run.
                if stage.state.rounds == before:
                    break

    def advance(self) -> None:
        """Lets what waits for a batch go on without rows."""
        for at, stage in enumerate(self.stages):
            if stage.stuck:
                self.run_round(at)

    @property
    def stuck(self) -> bool:
        """Whether something waits for a batch that need not have rows."""
        return any(stage.stuck for stage in self.stages)

    @property
    def idle_s(self) -> float:
        """Seconds since the last batch or round, if none is running."""
        return 0.0 if self._turn.locked() else time.monotonic() - self._ended_at

    def close(self) -> None:
        """Ends what runs between the batches, once a round under way is over."""
        with self._turn:
            self._closed = True
        for stage in self.stages:
            stage.close()

    @contextmanager
    def _paced(self) -> Iterator[None]:
        """Lets what runs between the batches know of one."""
        for stage in self.stages:
            stage.pace.begins(time.monotonic())
        try:
            yield
        finally:
            for stage in self.stages:
                stage.pace.ends(time.monotonic())

    def _tell(self, ran: Sequence[Ran[DataFrame]]) -> None:
        """Adds steps to the progress, with what later stages made of them, and to the events."""
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

    def _failed(self, problem: BaseException) -> RuntimeError:
        """What Spark is told of a failure; the failure itself is kept for the user.

        Spark searches the text for an interruption with a pattern that recurs once per character,
        and dies of a long one, so the text is kept short and never begins such a match by chance.
        """
        if self.stopping:
            return RuntimeError(STOPPED)
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
