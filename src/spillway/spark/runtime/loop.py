"""The driver loop of a query: one call per micro-batch, from Spark's foreachBatch.

    plan      the plan of the stage becomes a DataFrame: split, exchange, slot tasks
    job       the sink evaluates it; slot records come back through an accumulator
    commit    the log record makes the batch true; only then does Spark commit

A batch that Spark replays after it was committed here is recognised by its number and skipped. A sink
may evaluate the DataFrame twice, or only a part of it: repeated records are ignored, and slots that
have not answered are made to.

A *round* is a batch without rows, between two batches, with a number of its own for the sink: it makes
missing results, processes rows that wait, and lets moves end where no batch comes. What a batch or
round will do is noted in the log before it begins, as far as another start could do it differently; a
start that finds such a note repeats it before anything else.

With several stages the sink evaluates all of them, and they are committed from the last to the first. A
crash in between leaves later stages one step ahead: the sink has that step, so it is repeated up to
them alone.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from spillway.coordinator.coordinator import BatchPlan, Committed, Note, next_round
from spillway.errors import QueryError, from_wire
from spillway.metrics.events import Event
from spillway.metrics.progress import Phases, progress
from spillway.metrics.record import SlotRecord
from spillway.spark.api.session import PLANNED_EXACTLY
from spillway.spark.runtime.arrow import ArrowBatches
from spillway.spark.runtime.stage import Stage
from spillway.spark.sinks import Sink

#: Entries that recentProgress keeps, as Spark's does; and events.
KEEP_PROGRESS = 100
KEEP_EVENTS = 1000
#: The first id that a sink sees for a round of cleanup; those of batches count from 0.
ROUND_IDS = 1 << 40
#: Bytes of groups that a round cleans up, for each slot.
ROUND_BYTES = 256 << 20

#: What Spark recognises as a batch that ended because its query was stopped.
STOPPED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the batch of a stopped query: "
    "java.lang.InterruptedException"
)


@dataclass(frozen=True)
class _Step:
    """What one stage does in one batch or round."""

    stage: Stage
    plan: BatchPlan
    results: DataFrame

    @property
    def shaped(self) -> DataFrame:
        return self.stage.spec.shape(self.results)


class BatchLoop:
    """Runs the batches of one query."""

    def __init__(self, stages: Sequence[Stage], sink: Sink) -> None:
        #: In the order in which rows pass them.
        self.stages = tuple(stages)
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEEP_PROGRESS)
        self.events: deque[Event] = deque(maxlen=KEEP_EVENTS)
        #: What stopped the query, if something did.
        self.failure: BaseException | None = None
        self.last_result: DataFrame | None = None
        #: Set when the user has asked the query to stop: a batch cut short is no failure then.
        self.stopping = False
        self._sink = sink
        self._arrow = ArrowBatches([kind for s in stages for kind in s.spec.lanes.types])
        self._first = True
        #: Held while a batch or a round runs.
        self._turn = threading.Lock()
        #: When the last batch or round ended.
        self._ended_at = time.monotonic()
        #: Whether a round may have been begun and not ended: by an earlier start, or by a failure.
        self._may_be_open = True
        self._closed = False

    @property
    def stage(self) -> Stage:
        """The stage that the streams come to."""
        return self.stages[0]

    @property
    def state(self) -> Committed:
        """What is true of it now."""
        return self.stage.state

    def run_batch(self, rows: DataFrame, batch: int) -> None:
        """One micro-batch, exactly once."""
        try:
            with self._turn, self._paced():
                if batch == self.state.batch:
                    return
                self._repeat_rounds()
                if self._first:
                    for key, value in PLANNED_EXACTLY.items():
                        rows.sparkSession.conf.set(key, value)
                self._arrow.prepare(rows.sparkSession)
                plan = self.stage.begin_batch(batch)
                every_s = self.stage.pace.period_s
                self._run(0, rows, plan, batch, replay=self._first, period_s=every_s)
                self._first = False
        except BaseException as problem:
            raise self._failed(problem) from None

    def run_round(self, at: int = 0, among: Collection[int] = ()) -> tuple[int, ...]:
        """Cleans up some of the given groups of a stage, as far as they miss results; returns which.

        Nothing is in the sink twice: the sink knows the round by its number, also after a crash.
        """
        stage = self.stages[at]
        with self._turn:
            if self._closed:
                raise QueryError("the query has ended, so it cannot clean up")
            if stage.state.batch < 0:
                # Rounds come after batches; what waits is taken by the first.
                return ()
            if repeated := self._repeat_rounds().get(at):
                return repeated
            if stage.replays or self._left_behind(at):
                # A batch that was begun comes again, and it comes first.
                return ()
            stage.catch_up()
            groups = next_round(stage.state, ROUND_BYTES * stage.state.routing.slots, among)
            note = stage.begin_round(groups)
            if note is not None:
                self._may_be_open = True
                self._round(at, note, replay=False)
            return groups

    def finish_moves(self, *, ended: bool = False) -> None:
        """Lets every move that is under way come to its end, in rounds.

        Parallel tracks wait for the input, and are given up when it has ended.
        """
        for at, stage in enumerate(self.stages):
            if ended:
                stage.end_input()
            while stage.moving and not self.stopping:
                stage.finish_sending()
                self.run_round(at)

    def finish_waiting(self, most_rounds: int | None = None) -> None:
        """Processes the rows that wait in slots, in rounds, at most so many for each stage."""
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

    def unfinished_round(self, at: int = 0) -> bool:
        """Whether a round was begun, by this start or one before, that must be repeated."""
        return self._may_be_open and self.stages[at].open_round() is not None

    def close(self) -> None:
        """Ends what runs beside the batches, once a round under way is over."""
        with self._turn:
            self._closed = True
        for stage in self.stages:
            stage.close()

    @contextmanager
    def _paced(self) -> Iterator[None]:
        """Lets what runs beside the batches know of one."""
        for stage in self.stages:
            stage.pace.begins(time.monotonic())
        try:
            yield
        finally:
            for stage in self.stages:
                stage.pace.ends(time.monotonic())

    def _left_behind(self, at: int) -> bool:
        """Whether the next stage has had a step that this one has not committed."""
        following = self.stages[at + 1 : at + 2]
        return any(later.state.batch + 1 > self.stages[at].steps for later in following)

    def _repeat_rounds(self) -> dict[int, tuple[int, ...]]:
        """Does rounds again that were begun and did not end; returns the groups of each stage's."""
        repeated = {}
        if self._may_be_open:
            for at, stage in enumerate(self.stages):
                note = stage.open_round()
                if note is not None:
                    self._round(at, note, replay=True)
                    repeated[at] = note.cleanup
        self._may_be_open = False
        return repeated

    def _round(self, at: int, note: Note, *, replay: bool) -> None:
        stage = self.stages[at]
        sink_id = ROUND_IDS * (at + 1) + stage.state.rounds
        self._run(at, stage.no_rows(), stage.planned_round(note), sink_id, replay=replay)
        self._may_be_open = False

    def _run(
        self,
        at: int,
        rows: DataFrame,
        plan: BatchPlan,
        sink_id: int,
        *,
        replay: bool,
        period_s: float | None = None,
    ) -> None:
        """One step of a stage and of those after it; `period_s` after the batch before it."""
        started_at, t0 = time.time(), time.perf_counter()
        ran = [_Step(self.stages[at], plan, self.stages[at].results(rows, plan))]
        for place in range(at, len(self.stages) - 1):
            if self._left_behind(place):
                break
            later = self.stages[place + 1]
            plan = later.begin_batch(later.state.batch + 1)
            ran.append(_Step(later, plan, later.results(later.spec.feed(ran[-1].shaped), plan)))
        t1 = time.perf_counter()
        if ran[-1].stage is self.stages[-1]:
            self.last_result = ran[-1].shaped
            self._sink.write(self.last_result, sink_id, replay=replay)
        answers = [step.stage.answers(step.results, step.plan) for step in ran]
        t2 = time.perf_counter()
        for step, records in reversed(list(zip(ran, answers, strict=True))):
            step.stage.commit(step.plan, records, t2 - t0, period_s)
        self._arrow.learn([record for records in answers for record in records.values()])
        busy = sum(max(one.busy_s for one in records.values()) for records in answers)
        phases = Phases(t1 - t0, max(0.0, t2 - t1 - busy), busy, time.perf_counter() - t2)
        self._tell(ran, answers, phases, started_at)
        self._ended_at = time.monotonic()

    def _tell(
        self,
        ran: Sequence[_Step],
        answers: Sequence[Mapping[int, SlotRecord]],
        phases: Phases,
        started_at: float,
    ) -> None:
        """Adds a step to the progress, with what later stages made of it, and to the events."""
        entries = []
        for step, records in zip(ran, answers, strict=True):
            names = [stream.name for stream in step.stage.spec.plan.streams]
            entry = progress(step.stage.state, names, records, phases, started_at)
            entries.append({"operator": step.stage.spec.plan.OPERATOR, **entry})
            self.events.extend(step.stage.state.events)
        first, *others = entries
        self.recent.append({**first, "then": others} if len(self.stages) > 1 else first)

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
