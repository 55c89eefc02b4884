"""Evaluates stages like Spark: nothing runs until the sink reads, and a second read runs all again.

A sink reads *partitions*, one for each slot of the last stage, in tasks. `Tasks` runs a task: at once
in the laws, with failures and speculation in the chaos harness. Reports count only if their task ends.
A slot that the sink did not read to its end has none.
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
from spillway.testing.simulated.stages import SimulatedStage, TaskReport

#: One attempt at a slot: its batches, as the consumer takes them, and its reports.
Reading = Callable[[Callable[[TaskReport], None]], Iterator[pa.RecordBatch]]


@dataclass
class LazyRows:
    """The rows or results of a stage: a plan that runs when it is read."""

    #: The input of a stage: rows, or the results of the stage before it.
    given: list[Row] = field(default_factory=list)
    before: LazyRows | None = None
    #: The stage and its plan, for results.
    at: int = 0
    plan: BatchPlan | None = None
    #: The rows of the last evaluation.
    rows: list[Row] = field(default_factory=list)
    #: The reports that arrived, by slot, in order of arrival.
    reports: dict[int, list[TaskReport]] = field(default_factory=dict)


class Shuffle:
    """The content of an exchange: the output of all tasks before it, which run again if it is lost."""

    def __init__(self, make: Callable[[], Sequence[Row] | Sequence[pa.RecordBatch]]) -> None:
        self._make = make
        self.content = make()

    def lose(self) -> None:
        """Loses the content; the tasks before the exchange run again."""
        self.content = self._make()


@dataclass(frozen=True)
class Partition:
    """One partition of results, as a sink sees it; its task finds its slot."""

    #: Its number before the sink coalesces; the exchange brings the rows of the slot there.
    number: int
    read: Reading
    #: Takes the reports of the task that read it, after its end.
    arrive: Callable[[Sequence[TaskReport]], None]
    #: The exchange that it reads; None: it reads the rows of a source.
    shuffle: Shuffle | None = None


class Tasks(Protocol):
    """Runs tasks: each reads some partitions, one after the other."""

    def run(self, at: int, partitions: Sequence[Partition]) -> list[pa.RecordBatch]:
        """Runs one task to its end; returns what it read, and delivers its reports."""
        ...


class SimulatedSink(Protocol):
    """Takes the results of the last stage."""

    def write(self, step: Written, sink_id: int, *, replay: bool) -> None:
        """Reads partitions and stores their rows."""
        ...


@dataclass(frozen=True)
class Written:
    """The input of a sink: results that it may read any number of times."""

    engine: SimulatedEngine
    results: LazyRows

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


class SimulatedEngine:
    """The stages of a query, its tasks and its sink."""

    def __init__(
        self,
        stages: Sequence[SimulatedStage],
        rows_of: Sequence[Callable[[Hashable], Row] | None],
        tasks: Tasks,
        sink: SimulatedSink,
    ) -> None:
        """`rows_of`: for each later stage, the function from results of the stage before it to rows."""
        self.stages = stages
        self._rows_of = rows_of
        self._tasks = tasks
        self._sink = sink

    def no_rows(self, at: int) -> LazyRows:
        """The input of a round."""
        return LazyRows(at=at)

    def results(self, at: int, rows: LazyRows, plan: BatchPlan) -> LazyRows:
        """The results of a stage; computed when read."""
        return LazyRows(rows.given, rows.before, at, plan)

    def feed(self, at: int, results: LazyRows) -> LazyRows:
        """The results of the stage before as the rows of this one."""
        return LazyRows(before=results, at=at)

    def write(self, results: LazyRows, sink_id: int, *, replay: bool) -> None:
        """Gives results to the sink."""
        self._sink.write(Written(self, results), sink_id, replay=replay)

    def collect_answers(
        self, at: int, results: LazyRows, plan: BatchPlan, *, replay: bool
    ) -> Answers:
        """Collects the records of a stage: one for each slot, and all that arrived."""
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

    def read_all(self, results: LazyRows) -> list[pa.RecordBatch]:
        """Reads everything, one task per slot."""
        read: list[pa.RecordBatch] = []
        for one in self.partitions(results):
            read += self._tasks.run(results.at, [one])
        return read

    def partitions(self, results: LazyRows) -> list[Partition]:
        """Runs all waves but the last; returns the partitions of the last."""
        stage = self.stages[results.at]
        given = Shuffle(lambda: self._rows(results))
        for wave in range(1, stage.waves):
            given = self._exchange(results, wave, given)
        return self._wave(results, stage.waves, given)

    def _exchange(self, results: LazyRows, wave: int, given: Shuffle) -> Shuffle:
        """Runs a wave; returns what comes after it."""

        def make() -> list[pa.RecordBatch]:
            tasks = self._wave(results, wave, given)
            return [one for task in tasks for one in self._tasks.run(results.at, [task])]

        return Shuffle(make)

    def _wave(self, results: LazyRows, wave: int, given: Shuffle) -> list[Partition]:
        assert results.plan is not None
        slots = range(results.plan.routing.slots)
        return [self._partition(results, wave, given, number) for number in slots]

    def values(self, at: int, batches: Sequence[pa.RecordBatch]) -> list[Hashable]:
        """The results of a stage as values."""
        subject = self.stages[at].subject
        return [one for batch in batches for one in subject.read(batch)]

    def _rows(self, results: LazyRows) -> list[Row]:
        """The rows of a stage; for a later one, the output of the stage before it."""
        results.rows = results.given
        if results.before is not None:
            row_of = self._rows_of[results.at]
            assert row_of is not None
            read = self.read_all(results.before)
            results.rows = [row_of(one) for one in self.values(results.before.at, read)]
        return results.rows

    def _partition(self, results: LazyRows, wave: int, given: Shuffle, number: int) -> Partition:
        stage, plan = self.stages[results.at], results.plan
        assert plan is not None

        def read(report: Callable[[TaskReport], None]) -> Iterator[pa.RecordBatch]:
            assert plan is not None
            return stage.task(plan, wave, given.content, number, report)

        def arrive(said: Sequence[TaskReport]) -> None:
            for one in said:
                results.reports.setdefault(one.slot, []).append(one)

        lost = wave > 1 or results.before is not None
        return Partition(number, read, arrive, given if lost else None)
