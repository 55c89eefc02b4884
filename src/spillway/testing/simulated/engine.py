"""Evaluates stages as Spark does: nothing runs until the sink reads, and all again if it reads twice.

A sink reads *partitions*, one for each slot of the last stage, in tasks. `Tasks` runs a task: at once
in the laws, with failures and speculation in the chaos harness. Reports count only if the task that
made them ends; a slot that the sink did not read to its end has none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.chain import Answers, left_unread
from spillway.metrics.record import SlotRecord
from spillway.testing.simulated.rows import Row
from spillway.testing.simulated.stages import Report, Stage

#: One attempt at a slot: batches as the consumer takes them, with the reports that it makes.
Reading = Callable[[Callable[[Report], None]], Iterator[pa.RecordBatch]]


@dataclass
class Rows:
    """Rows of a stage, or its results: a plan that is evaluated when somebody reads it."""

    #: What a stage is given: rows, or the results of the stage before it.
    given: list[Row] = field(default_factory=list)
    before: Rows | None = None
    #: The stage and its plan, for results.
    at: int = 0
    plan: BatchPlan | None = None
    #: The rows of the last evaluation.
    rows: list[Row] = field(default_factory=list)
    #: The reports that arrived, by slot, in order of arrival.
    reports: dict[int, list[Report]] = field(default_factory=dict)


class Shuffle:
    """What an exchange holds: the output of all tasks before it, made again if it is lost."""

    def __init__(self, make: Callable[[], Sequence[Row] | Sequence[pa.RecordBatch]]) -> None:
        self._make = make
        self.content = make()

    def lose(self) -> None:
        """The files are gone: Spark submits the tasks before the exchange again."""
        self.content = self._make()


@dataclass(frozen=True)
class Partition:
    """One partition of results, as a sink sees it; its task finds out which slot it is."""

    #: Its number before the sink coalesces: where the exchange brings the rows of that slot.
    number: int
    read: Reading
    #: Takes the reports of the task that read it, when that has ended.
    arrive: Callable[[Sequence[Report]], None]
    #: What it reads; None: the rows of a source.
    shuffle: Shuffle | None = None


class Tasks(Protocol):
    """Runs tasks: each reads some partitions, one after the other."""

    def run(self, at: int, partitions: Sequence[Partition]) -> list[pa.RecordBatch]:
        """Runs one task to its end; returns what it read, and lets its reports arrive."""
        ...


class Sink(Protocol):
    """Takes the results of the last stage."""

    def write(self, step: Written, sink_id: int, *, replay: bool) -> None:
        """Reads partitions and keeps what they have."""
        ...


@dataclass(frozen=True)
class Written:
    """What a sink is given: results that it may read as often as it wants."""

    engine: Engine
    results: Rows

    def partitions(self) -> list[Partition]:
        """Evaluates everything before the last exchange; returns what comes after it."""
        return self.engine.partitions(self.results)

    @property
    def slots(self) -> int:
        """The number of partitions."""
        assert self.results.plan is not None
        return self.results.plan.routing.slots

    def values(self, batches: Sequence[pa.RecordBatch]) -> list[Hashable]:
        """Results as values."""
        return self.engine.values(self.results.at, batches)


class PlainTasks:
    """Runs every task once."""

    def run(self, at: int, partitions: Sequence[Partition]) -> list[pa.RecordBatch]:
        """Runs one task; returns what it read."""
        read: list[pa.RecordBatch] = []
        for one in partitions:
            said: list[Report] = []
            read += one.read(said.append)
            one.arrive(said)
        return read


class Engine:
    """The stages of a query, its tasks and its sink."""

    def __init__(
        self,
        stages: Sequence[Stage],
        rows_of: Sequence[Callable[[Hashable], Row] | None],
        tasks: Tasks,
        sink: Sink,
    ) -> None:
        """`rows_of` has for each later stage what makes a row of a result of the stage before it."""
        self.stages = stages
        self._rows_of = rows_of
        self._tasks = tasks
        self._sink = sink

    def no_rows(self, at: int) -> Rows:
        """The input of a round."""
        return Rows(at=at)

    def results(self, at: int, rows: Rows, plan: BatchPlan) -> Rows:
        """The results of a stage, made where they are read."""
        return Rows(rows.given, rows.before, at, plan)

    def feed(self, at: int, results: Rows) -> Rows:
        """The results of the stage before as the rows of this one."""
        return Rows(before=results, at=at)

    def write(self, results: Rows, sink_id: int, *, replay: bool) -> None:
        """Gives results to the sink."""
        self._sink.write(Written(self, results), sink_id, replay=replay)

    def answers(self, at: int, results: Rows, plan: BatchPlan, *, replay: bool) -> Answers:
        """The records of the slots of a stage, one each, and all that arrived."""
        if (replay or at < len(self.stages) - 1) and not results.reports:
            self.read_all(results)
        stage = self.stages[at]
        found = {slot: stage.answered(said) for slot, said in results.reports.items()}
        records = {slot: record for slot, record in found.items() if record is not None}
        if unread := [slot for slot in range(plan.routing.slots) if slot not in records]:
            raise left_unread(plan, unread)
        said = (one for some in results.reports.values() for one in some)
        return Answers(records, tuple(one for one in said if isinstance(one, SlotRecord)))

    # Evaluation

    def read_all(self, results: Rows) -> list[pa.RecordBatch]:
        """Reads everything, a task for each slot."""
        read: list[pa.RecordBatch] = []
        for one in self.partitions(results):
            read += self._tasks.run(results.at, [one])
        return read

    def partitions(self, results: Rows) -> list[Partition]:
        """Runs all waves but the last; returns the partitions of the last."""
        stage = self.stages[results.at]
        given = Shuffle(lambda: self._rows(results))
        for wave in range(1, stage.waves):
            given = self._exchange(results, wave, given)
        return self._wave(results, stage.waves, given)

    def _exchange(self, results: Rows, wave: int, given: Shuffle) -> Shuffle:
        """Runs a wave; returns what comes after it."""

        def make() -> list[pa.RecordBatch]:
            tasks = self._wave(results, wave, given)
            return [one for task in tasks for one in self._tasks.run(results.at, [task])]

        return Shuffle(make)

    def _wave(self, results: Rows, wave: int, given: Shuffle) -> list[Partition]:
        assert results.plan is not None
        slots = range(results.plan.routing.slots)
        return [self._partition(results, wave, given, number) for number in slots]

    def values(self, at: int, batches: Sequence[pa.RecordBatch]) -> list[Hashable]:
        """The results of a stage as values."""
        subject = self.stages[at].subject
        return [one for batch in batches for one in subject.read(batch)]

    def _rows(self, results: Rows) -> list[Row]:
        """The rows of a stage; those of a later one are what the stage before it gives."""
        results.rows = results.given
        if results.before is not None:
            row_of = self._rows_of[results.at]
            assert row_of is not None
            read = self.read_all(results.before)
            results.rows = [row_of(one) for one in self.values(results.before.at, read)]
        return results.rows

    def _partition(self, results: Rows, wave: int, given: Shuffle, number: int) -> Partition:
        stage, plan = self.stages[results.at], results.plan
        assert plan is not None

        def read(report: Callable[[Report], None]) -> Iterator[pa.RecordBatch]:
            assert plan is not None
            return stage.task(plan, wave, given.content, number, report)

        def arrive(said: Sequence[Report]) -> None:
            for one in said:
                results.reports.setdefault(one.slot, []).append(one)

        lost = wave > 1 or results.before is not None
        return Partition(number, read, arrive, given if lost else None)
