"""Simulated Spark: tasks fail, run twice or lose their report, and sinks read in odd ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spillway.checkpoint.checkpoint import Checkpoint
from spillway.coordinator.batch.plan import BatchPlan
from spillway.coordinator.chain import Answers
from spillway.errors import SpillwayError
from spillway.ids import SlotId
from spillway.state.manifest.manifest import Manifest, empty_manifest
from spillway.testing.chaos.gate import Disasters, DriverGate, TaskDied
from spillway.testing.chaos.ledger import Entry, Ledger
from spillway.testing.chaos.schedule import Strike
from spillway.testing.simulated.context import TaskContext, task_running
from spillway.testing.simulated.engine import LazyRows, Partition, SimulatedEngine, Written
from spillway.testing.simulated.stages import SimulatedStage, TaskReport, fits_memory, fits_peak

#: Failures of a task after which Spark gives up the job.
_MOST_FAILURES = 4


class JobFailed(Exception):
    """Spark has given up a job."""


class SinkFailed(Exception):
    """The user's sink raised an error."""


@dataclass(frozen=True)
class _Task:
    """The partitions that a task of a stage reads, and its number."""

    at: int
    partitions: Sequence[Partition]
    number: int


class ChaosTasks:
    """Runs tasks on hosts, and repeats them like Spark."""

    def __init__(
        self, stages: Sequence[SimulatedStage], gate: DriverGate, disasters: Disasters
    ) -> None:
        self._stages = stages
        self._gate = gate
        self._disasters = disasters
        self._problem: Exception | None = None

    def run(
        self, at: int, partitions: Sequence[Partition], number: int | None = None
    ) -> list[pa.RecordBatch]:
        """Runs one task, and perhaps more attempts of it.

        `number` is Spark's number of the task, if a sink has renumbered the tasks.
        """
        # A driver that was paused gets no more disasters.
        strikes = [] if self._gate.past else self._disasters.at_task()
        kinds = {strike.kind: strike for strike in strikes}
        task = _Task(at, partitions, partitions[0].number if number is None else number)
        if "refetch" in kinds and (shuffle := partitions[0].shuffle) is not None:
            shuffle.lose()
        if "speculate" in kinds:
            self._try(task, kinds["speculate"].arg or None, elsewhere=True)
        read = self._until_done(task, kinds.get("retry"))
        if "resubmit" in kinds:
            self._arrive(partitions, read[1])
            read = self._until_done(task, None)
        if "unreported" not in kinds:
            self._arrive(partitions, read[1])
        return read[0]

    def _until_done(
        self, task: _Task, retry: Strike | None
    ) -> tuple[list[pa.RecordBatch], list[list[TaskReport]]]:
        if retry is not None:
            self._try(task, retry.arg + 1)
        for _ in range(_MOST_FAILURES):
            found = self._try(task, None)
            if found is not None:
                return found
        raise JobFailed("a task failed 4 times") from self._problem

    def _try(
        self, task: _Task, most: int | None, *, elsewhere: bool = False
    ) -> tuple[list[pa.RecordBatch], list[list[TaskReport]]] | None:
        """Runs one attempt; returns None if it dies. With `most`, it dies after this many batches."""
        read: list[pa.RecordBatch] = []
        said: list[list[TaskReport]] = []
        stage = self._stages[task.at]
        # The task of several partitions runs in one place; another attempt may run elsewhere.
        host = (stage.host_of(task.partitions[0].number) + elsewhere) % len(stage.hosts)
        context = TaskContext(task.number, host)
        for one in task.partitions:
            said.append([])
            try:
                with self._gate.task_on(host), task_running(context):
                    for batch in one.read(said[-1].append):
                        read.append(batch)
                        if most is not None and len(read) >= most:
                            return None
            except TaskDied as death:
                stage.hosts[host].restart_worker()
                if death.host:
                    stage.hosts[host].lose()
                return None
            except (OSError, SpillwayError) as problem:
                self._problem = problem
                return None
        return read, said

    @staticmethod
    def _arrive(partitions: Sequence[Partition], said: Sequence[Sequence[TaskReport]]) -> None:
        for one, reports in zip(partitions, said, strict=True):
            one.arrive(reports)


class ChaosEngine(SimulatedEngine):
    """Records the output of every step in the ledger."""

    ledger: Ledger
    #: The read-only checkpoint of a stage.
    look: Callable[[int], Checkpoint]

    def read_all(self, results: LazyRows) -> list[pa.RecordBatch]:
        """Reads everything, and records it."""
        read = super().read_all(results)
        self.note(results, Counter(self.values(results.at, read)))
        return read

    def collect_answers(
        self, at: int, results: LazyRows, plan: BatchPlan, *, replay: bool
    ) -> Answers:
        """Collects the records of a stage; checks that every slot kept its limit."""
        found = super().collect_answers(at, results, plan, replay=replay)
        stage = self.stages[at]
        for record in found.records.values():
            if not fits_peak(stage, plan, record, self._before(at, plan, record.slot)):
                peak = f"{record.peak_bytes} of {plan.memory_bytes[record.slot]} bytes"
                where = f"slot {record.slot} of stage {at} in batch {plan.batch}"
                self.ledger.differences.append(f"{where} had {peak} in memory")
            written = self.look(at).manifest(record.manifest)
            if not fits_memory(plan, record, written):
                bytes_ = f"{sum(record.state_bytes)} of {plan.memory_bytes[record.slot]} bytes"
                where = f"slot {record.slot} of stage {at} in batch {plan.batch}"
                self.ledger.differences.append(f"{where} has {bytes_} in memory")
        return found

    def _before(self, at: int, plan: BatchPlan, slot: int) -> Manifest:
        """The manifest of a slot at the start of a batch."""
        name = plan.manifests[slot]
        none = empty_manifest(SlotId(slot), len(self.stages[at].streams))
        return self.look(at).manifest(name) if name else none

    def note(self, results: LazyRows, output: Counter[Hashable]) -> None:
        """Records the output of a step."""
        assert results.plan is not None
        number = self.stages[results.at].conductor.coordinator.steps
        step = Entry(results.plan.batch, tuple(results.rows), output)
        self.ledger.note_step(results.at, number, step)


class ChaosSink:
    """A sink that stores steps by number, and reads them as the schedule says."""

    def __init__(self, mode: str, ledger: Ledger, disasters: Disasters, tasks: ChaosTasks) -> None:
        self._mode = mode
        self._ledger = ledger
        self._disasters = disasters
        self._tasks = tasks
        #: Whether an earlier start had begun the first step of this one.
        self.replays = False

    def write(self, step: Written, sink_id: int, *, replay: bool) -> None:
        """Reads a step and stores it."""
        if self._mode == "ids" and sink_id in self._ledger.sink:
            return
        strikes = {strike.kind: strike.arg for strike in self._disasters.at_write()}
        offered = sink_id in self._ledger.offered or self.replays
        self._ledger.offered.add(sink_id)
        if strikes.get("fails") == 0:
            raise SinkFailed("the sink fails before its write")
        # If the sink reads nothing of a step that had begun, it counts as one that has it.
        nothing = "partly" in strikes and (strikes["partly"] == 1 or step.slots == 1)
        if nothing and not (replay and offered):
            return
        if "partly" in strikes and not nothing:
            self._read(step, 1, part=True)
            return
        if "twice" in strikes:
            self._read(step, 1)
        output = self._read(step, max(1, strikes.get("coalesce", 1)))
        assert isinstance(step.engine, ChaosEngine)
        step.engine.note(step.results, output)
        self._ledger.note_output(sink_id, output)
        self.replays = False
        if "fails" in strikes:
            raise SinkFailed("the sink fails after its write")

    def _read(self, step: Written, together: int, *, part: bool = False) -> Counter[Hashable]:
        partitions = step.partitions()[::-1]
        if part:
            partitions = partitions[1:]
        read: list[pa.RecordBatch] = []
        for at in range(0, len(partitions), together):
            some = partitions[at : at + together]
            number = at // together if together > 1 else None
            read += self._tasks.run(step.results.at, some, number)
        return Counter(step.values(read))
