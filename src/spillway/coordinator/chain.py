"""Stages in a row: the results of one are the rows of the next. The last commits first.

A batch or round of a stage is a batch of every later one. A crash between two commits leaves later
stages one step ahead; only the earlier stages repeat that step.

A *round* is a batch without rows, between two batches. It produces missing results, processes
waiting rows, and lets moves end. A start first repeats an unfinished round.

The sink gets every batch and round under one number, which only grows and is the same in a
repetition (`Chain.sink_id`). A sink that keeps the last number it has seen can skip what it has.

`Engine` produces results from rows: with Spark jobs in a query, with plain calls in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from spillway.coordinator.batch.committed import Committed, steps_of
from spillway.coordinator.batch.plan import BatchPlan, refuse_other_input
from spillway.coordinator.conductor import Conductor
from spillway.coordinator.took import Took
from spillway.errors import QueryError
from spillway.metrics.record import SlotRecord

#: Rows of a stage, or its results.
Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Answers:
    """The answers of a stage's slots: one record each, and all that arrived."""

    records: Mapping[int, SlotRecord]
    attempts: tuple[SlotRecord, ...] = ()


class Engine(Protocol[Rows]):
    """Produces the results of stages, and gives them to the sink."""

    def no_rows(self, at: int) -> Rows:
        """Returns the empty input of a round of a stage."""
        ...

    def results(self, at: int, rows: Rows, plan: BatchPlan) -> Rows:
        """Returns the results of a stage, which may be lazy until they are written."""
        ...

    def feed(self, at: int, results: Rows) -> Rows:
        """Turns the results of the previous stage into the rows of this one."""
        ...

    def write(self, results: Rows, sink_id: int, *, replay: bool) -> None:
        """Writes the results of the last stage to the sink."""
        ...

    def collect_answers(self, at: int, results: Rows, plan: BatchPlan, *, replay: bool) -> Answers:
        """Collects the answers of a stage's slots, each at least once; may run the tasks for them.

        Fails if the sink has not read the results of a slot. Only a step that the sink may already have
        (`replay`) may be left unread.
        """
        ...


@dataclass(frozen=True)
class StageStep(Generic[Rows]):
    """The work of one stage in one batch or round."""

    at: int
    plan: BatchPlan
    results: Rows
    #: Whether it had already begun, so that the sink may have it.
    replay: bool


@dataclass(frozen=True)
class Ran(Generic[Rows]):
    """A committed batch or round: its stages, their answers, and its times."""

    steps: tuple[StageStep[Rows], ...]
    answers: tuple[Answers, ...]
    #: The clock when it was planned, when the job began, when it ended, and when it was committed.
    times: tuple[float, float, float, float]


def left_unread(plan: BatchPlan, unread: Sequence[int]) -> QueryError:
    """Returns the error for slots whose results the sink has not read."""
    which = ", ".join(map(str, unread[:8])) + (", ..." if len(unread) > 8 else "")
    return QueryError(
        f"the sink has not read all results of batch {plan.batch}: those of {len(unread)} of "
        f"{plan.routing.slots} slots are missing (slots {which})",
        detail="results that the sink does not read would be lost, so the batch is not committed",
        hint="in foreachBatch, write or count the whole DataFrame before you return; limit(), take() "
        'and show() read only a part of it. To discard results: df.write.format("noop")'
        '.mode("append").save()',
    )


def step_gap(before: Committed | None, later: Committed | None) -> str | None:
    """Says how many steps a stage is behind or ahead of the stage before it; None: it fits.

    It has the same steps, or one more: the last stage commits first.
    """
    steps = steps_of(before)
    taken = 0 if later is None else later.batch + 1
    if taken in (steps, steps + 1):
        return None
    which = "behind" if taken < steps else "ahead"
    return f"it is {which}: it has taken {taken} steps, the stage before it {steps}"


class Chain(Generic[Rows]):
    """The stages of one query, in the order in which rows pass them."""

    def __init__(
        self, conductors: Sequence[Conductor], engine: Engine[Rows], clock: Callable[[], float]
    ) -> None:
        self.conductors = tuple(conductors)
        self._engine = engine
        self._clock = clock
        #: Whether an earlier start or a failure may have left a round open.
        self._may_be_open = True

    @property
    def sink_id(self) -> int:
        """The number of the next batch or round for the sink.

        Every batch and round of the query is one step of the last stage. So this number counts from
        0, only grows, and a repeated step has the number that it had.
        """
        return self.conductors[-1].coordinator.steps

    def batch(
        self,
        rows: Rows,
        number: int,
        period_s: float | None = None,
        input_digest: str | None = None,
    ) -> list[Ran[Rows]]:
        """Runs one batch, exactly once; repeats open rounds before it.

        It recognises a committed batch by its number, and returns nothing for it. If `input_digest` says
        that a batch had other rows when it began or was committed, it fails.
        """
        if number == self.conductors[0].state.batch:
            refuse_other_input(number, self.conductors[0].state.input_digest, input_digest)
            return []
        ran = list(self.repeat_rounds().values())
        ran.append(self._run(self._begun(0, number, rows, input_digest), period_s))
        return ran

    def round(
        self, at: int, wanted_bytes: int, among: Collection[int] = ()
    ) -> tuple[tuple[int, ...], list[Ran[Rows]]]:
        """Runs a round that cleans up some of the groups; returns these, and what ran.

        The sink knows the round by its number, also after a crash.
        """
        conductor = self.conductors[at]
        if conductor.state.batch < 0:
            # Rounds come after batches; the first batch takes what waits.
            return (), []
        repeated = self.repeat_rounds()
        if at in repeated:
            return repeated[at].steps[0].plan.cleanup, list(repeated.values())
        if conductor.replays or self._left_behind(at):
            # A batch that has begun is repeated first.
            return (), list(repeated.values())
        plan = conductor.begin_round(wanted_bytes, among)
        if plan is None:
            return (), list(repeated.values())
        self._may_be_open = True
        return plan.cleanup, [*repeated.values(), self._round(at, plan, replay=False)]

    def repeat_rounds(self) -> dict[int, Ran[Rows]]:
        """Repeats rounds that began and did not end, by stage."""
        repeated = {}
        if self._may_be_open:
            for at, conductor in enumerate(self.conductors):
                if (plan := conductor.open_round()) is not None:
                    repeated[at] = self._round(at, plan, replay=True)
        self._may_be_open = False
        return repeated

    def unfinished_round(self, at: int) -> bool:
        """Whether this start or an earlier one left a round open, which must be repeated."""
        return self._may_be_open and self.conductors[at].open_round() is not None

    def _left_behind(self, at: int) -> bool:
        """Whether the next stage has a step that this one has not committed."""
        following = self.conductors[at + 1 : at + 2]
        steps = self.conductors[at].coordinator.steps
        return any(later.state.batch + 1 > steps for later in following)

    def _round(self, at: int, plan: BatchPlan, *, replay: bool) -> Ran[Rows]:
        ran = self._run(StageStep(at, plan, self._engine.no_rows(at), replay))
        self._may_be_open = False
        return ran

    def _begun(
        self, at: int, number: int, rows: Rows, input_digest: str | None = None
    ) -> StageStep[Rows]:
        """Returns the next batch of a stage, with its rows."""
        conductor = self.conductors[at]
        replay = conductor.replays
        return StageStep(at, conductor.begin_batch(number, input_digest), rows, replay)

    def _run(self, given: StageStep[Rows], period_s: float | None = None) -> Ran[Rows]:
        """Runs one step of a stage and of the later ones; `given` has the rows of the first."""
        engine, planned_at = self._engine, self._clock()
        steps = self._steps(given)
        began_at = self._clock()
        if steps[-1].at == len(self.conductors) - 1:
            engine.write(steps[-1].results, self.sink_id, replay=steps[-1].replay)
        answers = [engine.collect_answers(s.at, s.results, s.plan, replay=s.replay) for s in steps]
        ended_at = self._clock()
        took = Took(ended_at - planned_at, period_s)
        for step, said in reversed(list(zip(steps, answers, strict=True))):
            self.conductors[step.at].commit(step.plan, said.records, took, said.attempts)
        times = (planned_at, began_at, ended_at, self._clock())
        return Ran(tuple(steps), tuple(answers), times)

    def _steps(self, given: StageStep[Rows]) -> list[StageStep[Rows]]:
        """Returns the stages that take part: up to one that has this step, or to the last."""
        engine = self._engine
        steps = [replace(given, results=engine.results(given.at, given.results, given.plan))]
        for at in range(given.at, len(self.conductors) - 1):
            if self._left_behind(at):
                break
            later = self.conductors[at + 1]
            rows = engine.feed(at + 1, steps[-1].results)
            step = self._begun(at + 1, later.state.batch + 1, rows)
            results = engine.results(step.at, step.results, step.plan)
            steps.append(replace(step, results=results))
        return steps
